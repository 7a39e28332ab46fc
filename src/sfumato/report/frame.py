"""What every page is made of: one HTML file that needs nothing else, now or in ten years."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Template

from plotly.offline import get_plotlyjs

from sfumato.report import text
from sfumato.report.figure import Figure


@dataclass
class Figures:
    """The figures placed so far, by the id of their place in the page."""

    placed: dict[str, Figure] = field(default_factory=dict)

    def place(self, figure: Figure) -> str:
        """HTML for ``figure``: title, drawing, caption, and the table behind it folded away."""
        name = f"figure-{len(self.placed) + 1}-{figure.kind}"
        self.placed[name] = figure
        table = (
            f"<details><summary>Show the numbers</summary>{figure.table}</details>" if figure.table else ""
        )
        size = f"height:{figure.layout['height']:.0f}px;min-width:{figure.min_width}px"
        return (
            f'<figure aria-labelledby="{name}-title"><h3 id="{name}-title">{text.escape(figure.title)}</h3>'
            f'<div class="wide"><div class="plot {figure.kind}" id="{name}" role="img" '
            f'aria-label="{text.escape(figure.description)}" style="{size}"></div></div>'
            f"<figcaption>{text.escape(figure.caption)}</figcaption>{table}</figure>"
        )

    def json(self) -> str:
        """All figures as JSON that can stand inside a script element."""
        figures = {name: {"data": f.data, "layout": f.layout} for name, f in self.placed.items()}
        plain = json.dumps(figures, allow_nan=False, separators=(",", ":"))
        return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page(title: str, subtitle: str, sections: Sequence[str], figures: Figures) -> str:
    """A page of ``sections`` (HTML) with its figures, style and scripts inside; ``title`` is plain text."""
    plotly, script = get_plotlyjs(), _asset("page.js")
    return Template(_asset("page.html")).substitute(
        title=text.escape(title),
        subtitle=subtitle,
        style=_asset("page.css"),
        sections="\n".join(sections),
        figures=figures.json(),
        plotly=plotly,
        script=script,
        script_hashes=f"{_hash(plotly)} {_hash(script)}",
    )


def section(title: str, parts: Sequence[str]) -> str:
    """``parts`` (HTML) under a heading."""
    return f"<section><h2>{text.escape(title)}</h2>{''.join(parts)}</section>"


def listing(lines: Sequence[str]) -> str:
    """Plain lines as a list."""
    return "<ul>" + "".join(f"<li>{text.escape(line)}</li>" for line in lines) + "</ul>"


def empty(words: str) -> str:
    """Plain words in place of a figure that has nothing to show."""
    return f'<p class="empty">{text.escape(words)}</p>'


def _asset(name: str) -> str:
    return resources.files("sfumato.report").joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

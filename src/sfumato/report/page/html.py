"""The HTML page of a report: one file with its figures, styles and scripts, which loads nothing else.

The reports of a sweep's points share one copy of the plotting script in the sweep's folder, because the
script is large and there may be many points.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from string import Template

from plotly.offline import get_plotlyjs, get_plotlyjs_version

from sfumato.report import formatting as text
from sfumato.report.figures.figure import Figure, Json
from sfumato.report.results.series import Series
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import POINTS_FOLDER, write_text

_PIECES = re.compile(r"(<pre.*?</pre>|<[^>]*>)", re.DOTALL)
"""Splits HTML: every second piece is a tag, or text that must stay as it is."""
_SHARED = f"plotly-{get_plotlyjs_version()}.min.js"


@dataclass
class PlacedFigures:
    """The figures of a page, by the id of their HTML element. Of equal captions the first is shown."""

    placed: dict[str, Figure] = field(default_factory=dict)

    def place(self, figure: Figure) -> str:
        """Add a figure to the page; returns its HTML: title, plot, caption, and a folded table of numbers.

        In place of a caption that another figure has stands "As above". The legend of a drawing of the
        network is a list below it.
        """
        told = any(other.caption == figure.caption for other in self.placed.values())
        caption = "<figcaption>As above.</figcaption>" if told else _captions(figure)
        key = ""
        if figure.kind == "network":
            key, figure = key_of_marks(figure), _without_legend(figure)
        name = f"figure-{len(self.placed) + 1}-{figure.kind}"
        self.placed[name] = figure
        table = (
            f"<details><summary>Show the numbers</summary>{figure.table}</details>" if figure.table else ""
        )
        narrow = f'<div class="narrow">{figure.narrow}</div>' if figure.narrow else ""
        size = f"height:{figure.layout['height']:.0f}px;min-width:{figure.min_width}px"
        size += f";max-width:{figure.max_width}px;margin:auto" if figure.max_width else ""
        return (
            f'<figure aria-labelledby="{name}-title"><h3 id="{name}-title">{text.escape(figure.title)}</h3>'
            f'<div class="wide"><div class="plot {figure.kind}" id="{name}" role="img" '
            f'aria-label="{text.escape(figure.description)}" style="{size}"></div></div>'
            f"{key}{narrow}{caption}{table}</figure>"
        )

    def json(self) -> str:
        """Data and layout of all placed figures, by the id of their HTML element, as JSON.

        ``<``, ``>`` and ``&`` are escaped, so that it can stand in a script element.

        Raises:
            ValueError: a number in a figure is not finite.
        """
        figures = {name: {"data": f.data, "layout": f.layout} for name, f in self.placed.items()}
        plain = json.dumps(figures, allow_nan=False, separators=(",", ":"))
        return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _captions(figure: Figure) -> str:
    """The caption of a figure as HTML; of one that is a list on narrow screens, that of the list too."""
    said = f"<figcaption>{text.escape(figure.caption)}</figcaption>"
    if not figure.narrow_caption:
        return said
    words = f'<span class="of-plot">{text.escape(figure.caption)}</span>'
    return (
        f'<figcaption>{words}<span class="of-list">{text.escape(figure.narrow_caption)}</span></figcaption>'
    )


def _without_legend(figure: Figure) -> Figure:
    """The figure without its legend and the room for it; `key_of_marks` stands in its place."""
    margin = figure.layout["margin"]
    height = figure.layout["height"] - margin["b"]
    return replace(figure, layout=figure.layout | {
        "showlegend": False, "height": height + 4, "margin": margin | {"b": 4},
    })  # fmt: skip


def key_of_marks(figure: Figure) -> str:
    """The legend of a drawing as an HTML list of marks and their names, below a drawing that may scroll."""
    items = "".join(
        f"<li>{_drawn_mark(trace)}{text.escape(html.unescape(trace['name']))}</li>"
        for trace in figure.data
        if trace.get("name")
    )
    return f'<ul class="key">{items}</ul>'


def _drawn_mark(trace: Json) -> str:
    """A small SVG of the line or marker of a Plotly trace."""
    if "marker" not in trace:
        line = trace["line"]
        dashes = {"dot": "2 3", "dash": "6 4"}.get(line.get("dash", ""), "none")
        return (
            f'<svg width="28" height="14" aria-hidden="true"><path d="M1 7H27" fill="none" '
            f'stroke="{line["color"]}" stroke-width="{line["width"]}" stroke-dasharray="{dashes}"/></svg>'
        )
    marker = trace["marker"]
    edge = marker.get("line", {"color": "none", "width": 0})
    paint = f'fill="{marker["color"]}" stroke="{edge["color"]}" stroke-width="{edge["width"]}"'
    shapes = {
        "circle": f'<circle cx="7" cy="7" r="{min(6, marker["size"] / 2)}" {paint}/>',
        "square": f'<rect x="1" y="1" width="12" height="12" {paint}/>',
        "diamond": f'<path d="M7 1L13 7L7 13L1 7Z" {paint}/>',
    }
    return f'<svg width="14" height="14" aria-hidden="true">{shapes[marker["symbol"]]}</svg>'


def render_page(
    title: str, subtitle: str, sections: Sequence[str], figures: PlacedFigures, *, shared: str | None = None
) -> str:
    """The HTML text of a page of ``sections`` (HTML) with its figures, style and scripts inside.

    Args:
        title: plain text.
        subtitle: HTML.
        sections: HTML.
        figures: the figures in the sections.
        shared: path of the plotting script relative to the page; ``None``: the page contains a copy.
    """
    body, drawn = "\n".join(sections), figures.json()
    script = asset("theme.js") + asset("page.js")
    if shared is None:
        source = get_plotlyjs()
        plotly, allowed = f"<script>{source}</script>", _policy_hash(source)
        holds = "This file contains everything it needs: it loads nothing from the network."
    else:
        # the nonce depends on the content of the page, so an injected script cannot contain it
        nonce = hashlib.sha256((body + drawn).encode("utf-8")).hexdigest()
        plotly, allowed = f'<script nonce="{nonce}" src="{text.escape(shared)}"></script>', f"'nonce-{nonce}'"
        holds = f"Figures are plotted by {shared}; nothing is loaded from the network."
    return Template(asset("page.html")).substitute(
        title=text.escape(title),
        subtitle=subtitle,
        style=asset("page.css"),
        sections=body,
        figures=drawn,
        plotly=plotly,
        script=script,
        allowed_scripts=f"{allowed} {_policy_hash(script)}",
        holds=text.escape(holds),
    )


def share_script(sweep: Path) -> tuple[str, FileRecord]:
    """Write Plotly's script into the folder of a sweep, once for the reports of all its points.

    Returns:
        Its name in the folder, and its record for the manifest.

    Raises:
        RunError: it cannot be written.
    """
    return _SHARED, write_text(sweep / _SHARED, get_plotlyjs())


def shared_script(folder: Path) -> str | None:
    """Path of the sweep's Plotly script relative to a page in ``folder``.

    ``None`` unless that is a run folder of a sweep's point and the script is there.
    """
    point = folder.absolute()
    if len(point.parents) <= 2 or point.parents[1].name != POINTS_FOLDER:
        return None
    return f"../../../{_SHARED}" if (point.parents[2] / _SHARED).is_file() else None


def section(title: str, parts: Sequence[str], *, folded: bool = False) -> str:
    """An HTML section with the heading ``title`` and the HTML ``parts``.

    ``folded``: whether only the heading is shown until a reader opens it.
    """
    heading, content = f"<h2>{text.escape(title)}</h2>", "".join(parts)
    if folded:
        return f'<section><details class="part"><summary>{heading}</summary>{content}</details></section>'
    return f"<section>{heading}{content}</section>"


def under_name_of_run(one: Series, series: Sequence[Series], content: str) -> str:
    """The HTML ``content``, below a heading with the run's name if ``series`` has more than one run."""
    if len(series) == 1:
        return content
    return f'<div class="run"><h3>{text.escape(one.name)}</h3>{content}</div>'


def bullet_list(lines: Sequence[str]) -> str:
    """Lines of plain text as an HTML list, with special characters escaped."""
    return "<ul>" + "".join(f"<li>{text.escape(line)}</li>" for line in lines) + "</ul>"


def replaced_in_text(pattern: re.Pattern[str], new: Callable[[re.Match[str]], str], content: str) -> str:
    """The HTML ``content`` with ``new`` of every match of ``pattern`` in text outside tags and ``<pre>``."""
    pieces = _PIECES.split(content)
    return "".join(piece if at % 2 else pattern.sub(new, piece) for at, piece in enumerate(pieces))


def placeholder(words: str) -> str:
    """HTML with the plain text ``words``, in place of a figure that has no data."""
    return f'<p class="empty">{text.escape(words)}</p>'


def asset(name: str) -> str:
    """The text of the file ``name`` (a style, a script or the frame of the page) in this package.

    ``asset("page.css")``, for example.

    Raises:
        FileNotFoundError: there is no such file.
    """
    return resources.files("sfumato.report.page").joinpath(name).read_text(encoding="utf-8")


def _policy_hash(script: str) -> str:
    """The hash of a script as a content security policy names it: ``sha256-`` and base64."""
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"

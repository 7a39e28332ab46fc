"""Links from the places and errors of papers that a page names to a list at its end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sfumato.claims.papers import NAMED, PAPERS, explanation
from sfumato.report import formatting as text

_PIECES = re.compile(r"(<pre.*?</pre>|<[^>]*>)", re.DOTALL)


def with_papers_explained(sections: Sequence[str]) -> list[str]:
    """The HTML ``sections`` with a link at each place of a paper that they name, and a list of these.

    The list is the last section; without such names ``sections`` are returned as they are.
    """
    named: dict[str, None] = {}

    def linked(found: re.Match[str]) -> str:
        named.setdefault(found[0])
        return f'<a href="#{_anchor(found[0])}">{found[0]}</a>'

    def with_links(html: str) -> str:
        pieces = _PIECES.split(html)
        return "".join(piece if at % 2 else NAMED.sub(linked, piece) for at, piece in enumerate(pieces))

    changed = [with_links(section) for section in sections]
    if not named:
        return changed
    entries = "".join(
        f'<dt id="{_anchor(name)}">{text.escape(name.strip("()"))}</dt>'
        f"<dd>{text.escape(explanation(name))}</dd>"
        for name in named
    )
    papers = [f"{name}: {title}." for name, title in PAPERS.items() if _names(changed, name)]
    heading = "<h2>What is named of the papers</h2>"
    said = text.paragraphs([" ".join(papers)] if papers else [])
    return [*changed, f'<section class="papers">{heading}{said}<dl>{entries}</dl></section>']


def _anchor(name: str) -> str:
    """The id of the entry of a place or an error."""
    return f"paper-{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}"


def _names(sections: Sequence[str], paper: str) -> bool:
    """Whether a paper is named anywhere on the page."""
    return any(re.search(rf"(?<!\w){re.escape(paper)}(?!\w)", section) for section in sections)

"""Links from the places and errors of papers that a page names to a list at its end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sfumato.claims.papers import NAMED, PAPERS, entry_of
from sfumato.report import formatting as text
from sfumato.report.page.html import replaced_in_text


def with_papers_explained(sections: Sequence[str]) -> list[str]:
    """The HTML ``sections`` with the places and terms of papers linked to a list that explains them.

    The list is added as the last section. Where no such place is named, nothing is added.
    """
    named: dict[str, str] = {}

    def linked(found: re.Match[str]) -> str:
        """A place of a paper as a link to its entry, which is noted."""
        entry, says = entry_of(found[0])
        named.setdefault(entry, says)
        return f'<a href="#{_anchor(entry)}">{found[0]}</a>'

    changed = [replaced_in_text(NAMED, linked, section) for section in sections]
    if not named:
        return changed
    entries = "".join(
        f'<dt id="{_anchor(entry)}">{text.escape(entry)}</dt><dd>{text.escape(text.sentence(says))}</dd>'
        for entry, says in named.items()
    )
    papers = [f"{name}: {title}." for name, title in PAPERS.items() if _names([*changed, entries], name)]
    heading = "<h2>Terms of the papers</h2>"
    said = text.paragraphs([" ".join(papers)] if papers else [])
    return [*changed, f'<section class="papers">{heading}{said}<dl>{entries}</dl></section>']


def _anchor(entry: str) -> str:
    """The id in HTML of an entry: ``paper-Thm-1-17`` of ``Thm. 1 (17)``."""
    return f"paper-{re.sub(r'[^A-Za-z0-9]+', '-', entry).strip('-')}"


def _names(sections: Sequence[str], paper: str) -> bool:
    """Whether ``paper``, such as ``PFELS``, is named anywhere on the page."""
    return any(re.search(rf"(?<!\w){re.escape(paper)}(?!\w)", section) for section in sections)

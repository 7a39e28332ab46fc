"""HTML that notebooks show in place of every field of an object."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

MOST_ROWS = 24


def block(title: str, titles: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """HTML of a heading, a table of the first 24 rows, and a list of notes.

    Args:
        title: the heading.
        titles: of the columns.
        rows: cells as text.
        notes: further lines; how many rows are left out is one of them.
    """
    import pandas as pd

    table = pd.DataFrame(list(rows[:MOST_ROWS]), columns=list(titles)).to_html(index=False, border=0)
    hidden = [f"{len(rows) - MOST_ROWS:,} more rows"] if len(rows) > MOST_ROWS else []
    listed = "".join(f"<li>{escape(note)}</li>" for note in [*hidden, *notes])
    return f"<b>{escape(title)}</b>{table}" + (f"<ul>{listed}</ul>" if listed else "")


def preformatted(title: str, text: str) -> str:
    """HTML of the heading ``title``, and of ``text`` with its line breaks kept."""
    return f"<b>{escape(title)}</b><pre>{escape(text)}</pre>"

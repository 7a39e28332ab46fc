"""The progress bar of commands that work in a few long steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sfumato.cli.console import console

if TYPE_CHECKING:
    from sfumato.progress import Progress


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Shows steps done and time elapsed on a terminal; prints nothing if the output is not a terminal."""
    from sfumato.progress import silent

    out = console(stderr=True)
    if not out.is_terminal:
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Line

    fields = (TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn())
    line = Line(*fields, TimeElapsedColumn(), console=out, transient=True)
    task = line.add_task(title, total=None)
    with line:
        yield lambda done, total: line.update(task, completed=done, total=total)

"""The progress bars of all long work, from Python, in notebooks and on the command line.

They are drawn on standard error where that is a terminal, in the cell of a notebook, and nowhere else.
rich is imported only when something is drawn.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import Task, TaskID

    from sfumato.progress import Progress

_SECONDS_BETWEEN_DRAWINGS = 0.1
_WIDEST_TITLE = 44


class ProgressBar:
    """One piece of work: its title, how much of it is done, the time, and what is being done."""

    def __init__(self, line: _Line | None) -> None:
        self._line = line

    def show(self, said: str, done: float | None = None, total: float | None = None) -> None:
        """Redraw the line with the text ``said``, and with ``done`` of ``total`` where these are given."""
        if self._line is not None:
            self._line.drawn.update(self._line.task, completed=done, total=total, said=said)
            self._line.draw(done is None)  # a step may last, and is drawn at once

    def remove(self) -> None:
        """Remove this line from the bars."""
        if self._line is not None:
            self._line.drawn.remove_task(self._line.task)
            self._line.draw(False)


class ProgressBars:
    """A line for each piece of work.

    Args:
        drawn: what rich draws; ``None`` if nobody looks at it.
        draw: called after every change, and whether it must be drawn at once, where rich does not draw by
            itself.
    """

    def __init__(self, drawn: RichProgress | None = None, draw: Callable[[bool], None] | None = None) -> None:
        self._drawn, self._draw = drawn, draw

    @property
    def are_drawn(self) -> bool:
        """Whether the bars are shown: on a terminal or in a notebook."""
        return self._drawn is not None

    def add(self, title: str) -> ProgressBar:
        """Add a line called ``title``; its total is not known yet."""
        if self._drawn is None:
            return ProgressBar(None)
        task = self._drawn.add_task(title, total=None, said="")
        return ProgressBar(_Line(self._drawn, task, self._draw or _draw_nothing))

    def counter(self, title: str) -> Progress:
        """Add a line called ``title``; returns the `Progress` callback that draws it."""
        bar = self.add(title)
        return lambda done, total: bar.show(f"{done}/{total}", done, total)

    def print(self, text: str) -> None:
        """Print a line of text above the bars; nothing where no bars are drawn."""
        if self._drawn is not None and self._draw is None:
            self._drawn.console.print(text)
        elif self._drawn is not None:
            print(text, file=sys.stderr)


@dataclass(frozen=True)
class _Line:
    drawn: RichProgress
    task: TaskID
    draw: Callable[[bool], None]


def _draw_nothing(now: bool) -> None:
    """Draw nothing, whatever ``now`` says: where rich draws by itself."""
    pass


@contextmanager
def progress_bars(*, wanted: bool = True) -> Iterator[ProgressBars]:
    """Context with progress bars, shown until it ends; none are shown if they are not ``wanted``."""
    out = _console() if wanted else None
    if out is None:
        yield ProgressBars()
    elif out.is_jupyter:
        drawn = _create_display(out, live=False)
        cell = _Cell(drawn)
        try:
            yield ProgressBars(drawn, cell.draw)
        finally:
            cell.draw(True)
    else:
        with _create_display(out, live=True) as drawn:
            yield ProgressBars(drawn)


class _Cell:
    """The output of a notebook's cell. rich itself would need ipywidgets to draw there more than once."""

    def __init__(self, drawn: RichProgress) -> None:
        from IPython.display import display

        self._drawn, self._at = drawn, -math.inf
        self._handle: Any = display(drawn, display_id=True)

    def draw(self, now: bool) -> None:
        """Draw the bars in the cell if ``now``, or if the last time was over a tenth of a second ago."""
        if now or time.monotonic() - self._at > _SECONDS_BETWEEN_DRAWINGS:
            self._at = time.monotonic()
            self._handle.update(self._drawn)


def _console() -> Console | None:
    """The console on standard error or in a notebook; ``None`` where nobody would see it."""
    from rich.console import Console

    out = Console(stderr=True, markup=False, highlight=False, emoji=False)
    return out if out.is_terminal or out.is_jupyter else None


def _create_display(out: Console, *, live: bool) -> RichProgress:
    """rich's progress display on ``out``, with the columns of all bars.

    ``live``: drawn several times a second, not only at changes.
    """
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class TimeColumn(ProgressColumn):
        """The time that is left, where it is known; else, and at the end, the time that has passed."""

        def render(self, task: Task) -> Text:
            left = None if task.finished else task.time_remaining
            seconds = (task.finished_time if task.finished else task.elapsed) if left is None else left
            if seconds is None or (left is None and not live and not task.finished):
                return Text("")
            return Text(f"{timedelta(seconds=int(seconds))}{'' if left is None else ' left'}")

    title = Column(max_width=_WIDEST_TITLE, no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=12),
        TimeColumn(),
        TextColumn("{task.fields[said]}", markup=False, table_column=Column(ratio=1)),
        console=out,
        auto_refresh=live,
        expand=True,
    )

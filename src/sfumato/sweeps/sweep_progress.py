"""The progress bars of a sweep: one for all of it, and one for each run that is being trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sfumato.progress_bars import ProgressBar, ProgressBars, progress_bars


@dataclass(frozen=True)
class PointProgress:
    """The progress of one point and seed.

    Attributes:
        point: name of the point.
        seed: its seed; ``None`` if the point's spec is invalid.
        round: rounds done.
        rounds: number of rounds; 0 before training.
        finished: whether it is done now, was done before, or has failed.
        failure: the error if it failed, otherwise empty.
    """

    point: str
    seed: int | None
    round: int = 0
    rounds: int = 0
    finished: bool = False
    failure: str = ""


@contextmanager
def sweep_progress(
    size: int, *, wanted: bool, otherwise: Callable[[PointProgress], None] = lambda progress: None
) -> Iterator[Callable[[PointProgress], None]]:
    """Context with a function to call with every `PointProgress` of ``size`` runs.

    It draws bars; where these are not ``wanted`` or cannot be drawn it is ``otherwise``, which does nothing
    by default.
    """
    with progress_bars(wanted=wanted) as bars:
        yield SweepBars(bars, size).show if bars.are_drawn else otherwise


def title_of_point(progress: PointProgress) -> str:
    """The name of the point, with its seed if it has one, as text: ``epsilon=2, seed 0``."""
    return progress.point if progress.seed is None else f"{progress.point}, seed {progress.seed}"


class SweepBars:
    """The bars of one sweep: one of all its runs, and one for each run that is being trained.

    It is made with the display of all bars (``bars``), the number of runs (``size``), each a point and seed
    or a point that was refused, and the name before the bar of the sweep (``title``).
    """

    def __init__(self, bars: ProgressBars, size: int, title: str = "sweep") -> None:
        self._bars, self._size = bars, size
        self._sweep = bars.add(title)
        self._sweep.show(f"0/{size}", 0, size)
        self._running: dict[tuple[str, int | None], tuple[ProgressBar, float]] = {}
        self._finished = self._accounted = 0

    def show(self, progress: PointProgress) -> None:
        """Draw the progress of one run and of the whole sweep; the message of a failed run stands above."""
        at = (progress.point, progress.seed)
        if progress.finished:
            self._finished += 1
            if at in self._running:
                self._running.pop(at)[0].remove()
            if progress.failure:
                self._bars.print(f"{title_of_point(progress)}: failed: {progress.failure}")
        elif progress.rounds:
            bar = self._running[at][0] if at in self._running else self._bars.add(title_of_point(progress))
            self._running[at] = bar, progress.round / progress.rounds
            bar.show(f"round {progress.round}/{progress.rounds}", progress.round, progress.rounds)
        else:
            self._accounted += 1
        parts = sum(part for _, part in self._running.values())
        trains = self._finished or self._running
        said = f"{self._finished}/{self._size}" if trains else f"ε of {self._accounted}/{self._size}"
        self._sweep.show(said, self._finished + parts, self._size)

    def remove(self) -> None:
        """Remove all bars of this sweep from the display."""
        for bar in (self._sweep, *(bar for bar, _ in self._running.values())):
            bar.remove()

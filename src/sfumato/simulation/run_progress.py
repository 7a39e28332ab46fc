"""What the progress bar of a run says: first what is being prepared, then rounds with the score and ε."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sfumato.progress_bars import ProgressBar, progress_bars
from sfumato.rounding import upper_bound
from sfumato.run_folder.headline import headline_of
from sfumato.spec.document import Spec


class RunProgress:
    """The progress of one run, drawn on ``bar``."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._score = ""
        self._said = ""

    def step(self, name: str) -> None:
        """Show that a step other than a round begins, by its ``name``."""
        self._bar.show(name)

    def round(self, done: int, rounds: int, metrics: Mapping[str, float]) -> None:
        """Show that ``done`` of ``rounds`` rounds are done, with the last known score and the ε of the last.

        ``metrics``: the row of ``metrics.parquet`` of the last of these rounds.
        """
        score = headline_of(metrics)
        measured = metrics.get(score.column, math.nan)
        if not math.isnan(measured):  # not every round is evaluated
            self._score = f"{score.name} {score.text(measured)}"
        said = [f"{done}/{rounds}", self._score, *epsilon_texts(metrics)]
        self._said = " ".join(filter(None, said))
        self._bar.show(self._said, done, rounds)

    def end(self) -> None:
        """Show the text of the last round in place of that of a step."""
        self._bar.show(self._said)


@contextmanager
def run_progress(spec: Spec, *, wanted: bool) -> Iterator[RunProgress]:
    """Context that shows the progress bar of a run of ``spec``; shows nothing unless ``wanted``."""
    with progress_bars(wanted=wanted) as bars:
        shown = RunProgress(bars.add(f"{spec.name}, seed {spec.seed}"))
        try:
            yield shown
        finally:
            shown.end()


def epsilon_texts(metrics: Mapping[str, float]) -> list[str]:
    """A text ``ε OBSERVER VALUE`` for every column ``epsilon:OBSERVER`` of the row ``metrics``."""
    watched = {name.removeprefix("epsilon:"): value for name, value in metrics.items() if "epsilon:" in name}
    return [f"ε {observer} {upper_bound(value)}" for observer, value in watched.items()]

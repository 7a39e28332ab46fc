"""`SeedRuns`: several seeds of one spec, with means and 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from sfumato.report.results.series import Mean, Series
from sfumato.run_folder.headline import headline_of
from sfumato.run_folder.metrics_table import last_measured
from sfumato.run_folder.reader import REPORT_FILE
from sfumato.simulation.finished_run import Run

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class SeedRuns:
    """The runs of several seeds: a sequence of `Run`.

    Attributes:
        folder: that holds their folders ``seed-N``.
        runs: in order of seeds.
    """

    folder: Path
    runs: tuple[Run, ...]

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, number: int) -> Run:
        return self.runs[number]

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __repr__(self) -> str:
        score = headline_of(self.runs[0].metrics)
        final = self.final(score.column)
        spread = f" ± {score.figure(final.half_width)} (95 %)" if len(self.runs) > 1 else ""
        reached = f"{score.name} {score.text(final.value)}{spread}"
        return f"<SeedRuns {self.runs[0].name}: {len(self.runs):,} seeds, {reached}, in {self.folder}>"

    def _repr_html_(self) -> str:
        from sfumato.notebook import block

        score = headline_of(self.runs[0].metrics)
        rows = [
            (str(run.spec.seed), score.text(last_measured(run.metrics[score.column]))) for run in self.runs
        ]
        return block(repr(self)[1:-1], ("seed", f"final {score.name}"), rows)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The metrics of all seeds: a column ``seed``, then those of each run, one row a round."""
        tables = [run.metrics.assign(seed=run.spec.seed) for run in self.runs]
        table = pd.concat(tables, ignore_index=True)
        return table[["seed", *(name for name in table.columns if name != "seed")]]

    def final(self, column: str) -> Mean:
        """The last measured value of a column: mean over seeds, and half of the 95 % t interval.

        The half is NaN for a single seed.
        """
        return Series(self.runs[0].name, tuple(run.folder for run in self.runs)).final(column)

    def report(self, out: Path | None = None) -> Path:
        """Write the HTML report of all seeds to ``out`` (default: into their folder); returns its path.

        Raises:
            SpecError: another process is writing to ``out``.
            RunError: a run is damaged, or the page cannot be written.
        """
        from sfumato.report import write_report

        return write_report([self.folder], out or self.folder / REPORT_FILE)

    def plot(self) -> go.Figure:
        """Score and ε over rounds with bands of 95 %, beside the twins without noise, as a Plotly figure."""
        from sfumato.report.figures.plotted import plotted_runs

        twins = [run.baseline.path for run in self.runs if run.baseline is not None]
        return plotted_runs([*(run.path for run in self.runs), *twins])

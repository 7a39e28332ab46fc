"""A comparison of runs: one row for each run, or for each set of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.report.page.sections import write_page
from sfumato.report.results.comparability import unasked_columns, warnings_of_series
from sfumato.report.results.series import Series, load_series
from sfumato.report.results.summary import summarise


@dataclass(frozen=True)
class Comparison:
    """Runs to be compared: `table` has them as numbers, `report` writes their figures.

    Attributes:
        series: one for each run, or for all seeds of a run.
    """

    series: tuple[Series, ...]

    def table(self) -> pd.DataFrame:
        """One row for each run, with the fields of ``summary.Summary`` as columns.

        Accuracies are shares; ``final_accuracy_half_width`` is the 95 % half-width over seeds, NaN for one.
        ``epsilon_cloud``, ``epsilon_own_edge`` and ``epsilon_other_edge`` are the largest over all units of
        the kind ``unit`` (and seeds) at ``delta``: infinite without a guarantee, NaN if there is no such
        observer. Own edges that are trusted with raw updates are left out; ``raw_to_trusted_edge`` says how
        many devices have one, as text. ``epsilon_peers`` is the largest towards another worker of overlapping
        groups, and ``epsilon_public`` towards the public. ``score`` is the column of metrics that the run is
        judged by: the accuracy, if there is one; ``final_score`` is its last value. Energy and delay are
        those of all messages; `notices` says which figures cannot be compared.
        """
        return pd.DataFrame([vars(summarise(series)) for series in self.series])

    @property
    def notices(self) -> list[str]:
        """A list of sentences on figures of the runs that cannot be compared; empty where all can.

        They are ε of different units, relations or δ, scores on different data, and energies of different
        radios.
        """
        return warnings_of_series(self.series)

    @property
    def unasked_columns(self) -> tuple[str, ...]:
        """Names of the energy and delay columns if no run's spec asks for a radio; they are then left out.

        A spec asks by ``radio``, by ``control`` or by sending over the air. () if some run's spec does.
        """
        return unasked_columns(self.series)

    def report(self, out: str | Path) -> Path:
        """Write a report with figures of all runs to ``out``, one self-contained HTML file; returns ``out``.

        Raises:
            RunError: the file cannot be written.
        """
        return write_page(self.series, Path(out))


def compare(run_folders: Sequence[str | Path]) -> Comparison:
    """Load runs to be compared; ``seed-K`` folders of one run count as one, with a 95 % interval.

    Runs stand in the order of the folders.

    Raises:
        SpecError: no folder was given, or one of them is not a run.
        RunError: a run is damaged.
    """
    if isinstance(run_folders, str | Path):
        raise SpecError(Argument("run_folders"), str(run_folders), "must be a list of run folders")
    return Comparison(load_series([Path(folder) for folder in run_folders]))

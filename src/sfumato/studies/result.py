"""A study that was run: its table, its verdicts, and what failed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sfumato.studies.grids import StudyPlan
from sfumato.studies.verdicts import StatementVerdict

PAGE_FILE = "index.html"


@dataclass(frozen=True)
class StudyResult:
    """The result of running a study.

    Attributes:
        plan: of the study.
        folder: with ``results.parquet`` and ``index.html``.
        table: everything that was measured, one row each.
        verdicts: on the paper's statements.
        failures: what failed, and why.
        seconds: that this call took, without runs that were there before.
        steps: device steps of all its runs.
    """

    plan: StudyPlan
    folder: Path
    table: pd.DataFrame
    verdicts: tuple[StatementVerdict, ...]
    failures: tuple[tuple[str, str], ...]
    seconds: float
    steps: float

    @property
    def page(self) -> Path:
        """The path of its page."""
        return self.folder / PAGE_FILE

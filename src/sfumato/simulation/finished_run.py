"""`Run`: a run and its folder, as `run` returns it and `load_run` reads it: metrics, guarantees, model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfumato.accounting import PrivacyReport, account
from sfumato.data.given import given
from sfumato.notebook import block
from sfumato.rounding import number, upper_bound
from sfumato.run_folder.headline import headline_of
from sfumato.run_folder.metrics_table import last_measured
from sfumato.run_folder.reader import MODEL_FILE, REPORT_FILE, SPEC_FILE, RunFolder, read_ledger
from sfumato.run_folder.reader import load_run as read_run_folder
from sfumato.simulation.after_run import with_realised
from sfumato.spec.document import Spec
from sfumato.spec.load import load_spec

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from torch import nn


@dataclass(frozen=True)
class Run:
    """A run and its folder.

    Attributes:
        folder: its folder.
        data: what was given as data in Python.
        given_model: what was given as model in Python.
        baseline: its twin without noise, where one was asked for.
    """

    folder: RunFolder
    data: Any = None
    given_model: nn.Module | None = None
    baseline: Run | None = None

    def __repr__(self) -> str:
        score = headline_of(self.metrics)
        last = last_measured(self.metrics[score.column])
        reached = "" if math.isnan(last) else f", {score.name} {score.text(last)}"
        planned = "" if self.finished else f" of {self.folder.rounds:,}"
        return f"<Run {self.name}: {len(self.metrics):,}{planned} rounds{reached}, in {self.path}>"

    def _repr_html_(self) -> str:
        privacy = self.folder.privacy
        rows = sorted(privacy.guarantees, key=lambda row: -row.epsilon)
        return block(
            repr(self)[1:-1],
            ("relation", "unit", "observer", f"ε (δ = {number(privacy.delta)})", "pairs"),
            [
                (row.relation.words, row.unit, row.observer, upper_bound(row.epsilon), f"{row.stands_for:,}")
                for row in rows
            ],
        )

    @property
    def name(self) -> str:
        """The name of the run's spec."""
        return self.folder.name

    @property
    def path(self) -> Path:
        """The path of the run folder."""
        return self.folder.path

    @property
    def finished(self) -> bool:
        """Whether all rounds are done; false if the run was stopped or interrupted."""
        return self.folder.finished

    @property
    def metrics(self) -> pd.DataFrame:
        """One row for each round that is done, with the columns of ``metrics.parquet``."""
        return self.folder.metrics

    @cached_property
    def spec(self) -> Spec:
        """The resolved spec, read from the run folder.

        Raises:
            SpecError: its spec.yaml is not a spec.
        """
        return load_spec(self.path / SPEC_FILE)

    @cached_property
    def privacy(self) -> PrivacyReport:
        """Guarantees and claims of all rounds of the spec, even of a stopped run, and ε after the run."""
        report = account(self.spec, data=self.data)
        realised = read_ledger(self.path).get("realised")
        return with_realised(report, realised) if realised else report

    @cached_property
    def model(self) -> nn.Module:
        """The trained model, on the CPU, in eval mode: the global one, or the average of the workers' own.

        If the run was stopped, the model of its checkpoint.

        Raises:
            RunError: there is neither a trained model nor a checkpoint, or the file is damaged.
        """
        from sfumato.simulation.trained_model import trained_model

        state = self.path / MODEL_FILE if self.finished else None
        return trained_model(self.spec, self.path, state, self.data, self.given_model)

    def predict(self, features: Any) -> npt.NDArray[np.generic]:
        """What the model predicts for some examples.

        Args:
            features: a data frame with the columns of features, which are scaled as ``data.scale`` says, or
                an array [N, ...] of examples as the model was trained on.

        Returns:
            The label of the likeliest class, [N]: its text where the data have labels of text, else its
            number; of a regression the numbers [N, K], on the scale of ``data.scale``
            if that names them; of label sets 0 or 1, [N, K]; of tokens the likeliest next ones, [N, T].

        Raises:
            SpecError: a column is missing.
        """
        from sfumato.simulation.trained_model import predictions

        with given(self.data):
            return predictions(self.model, self.spec, features)

    def report(self, out: Path | None = None) -> Path:
        """Write the HTML report to ``out`` (default: into the run folder); returns its path.

        Raises:
            SpecError: another process is writing to ``out``.
            RunError: the run is damaged, or the page cannot be written.
        """
        from sfumato.report import write_report

        return write_report([self.path], out or self.path / REPORT_FILE)

    def plot(self) -> go.Figure:
        """Score and ε over rounds, beside the twin without noise if there is one, as a Plotly figure.

        ``.show()`` opens it, ``.write_html(file)`` and ``.write_image(file)`` keep it.
        """
        from sfumato.report.figures.plotted import plotted_runs

        return plotted_runs([self.path, *([self.baseline.path] if self.baseline is not None else [])])


def load_run(path: str | Path, *, data: Any = None, model: nn.Module | None = None) -> Run:
    """Read a run folder; returns the same as `run` did. Files are checked.

    Args:
        path: of the folder.
        data: as it was given to `run`, if it was.
        model: as it was given to `run`, if it was.

    Raises:
        SpecError: there is no run at ``path``, or its spec.yaml is not a spec.
        RunError: a file of the run is missing, damaged, or of another kind.
    """
    return Run(read_run_folder(path), data, model)

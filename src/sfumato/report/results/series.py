"""One entry of a report: a run, or several seeds of it with mean and 95 % interval."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from sfumato.errors import SpecError
from sfumato.report.results.network import Network, read_network
from sfumato.report.results.run_findings import RunFindings
from sfumato.run_folder.label_counts import read_test_labels
from sfumato.run_folder.metrics_table import last_measured
from sfumato.run_folder.reader import SPEC_FILE, RunFolder, load_run

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
_SEED_FOLDER = re.compile(r"seed-(\d+)")


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with the half-width of its 95 % t interval; NaN half-width for a single seed."""

    value: float
    half_width: float


@dataclass(frozen=True)
class Curve:
    """A metric over rounds: mean over seeds, and 95 % band (equal to the mean for a single seed).

    All four are ``[R]``, in the order of rounds.

    Attributes:
        rounds: from 1; or costs, where it is a curve over these.
        mean: of the seeds that measured it.
        low: the lower end of the band.
        high: its upper end.
    """

    rounds: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray

    def only(self, kept: BoolArray) -> Curve:
        """The curve at the rounds where ``kept`` ``[rounds]`` is set."""
        return Curve(self.rounds[kept], self.mean[kept], self.low[kept], self.high[kept])


@dataclass(frozen=True)
class Series:
    """One entry of the report: ``runs`` are the seeds of one experiment, at least one.

    Attributes:
        name: in legends; unique within a report.
        runs: the folders, in order of seeds.
    """

    name: str
    runs: tuple[RunFolder, ...]

    @property
    def first(self) -> RunFolder:
        """The run of the first seed, whose spec and guarantees represent the series."""
        return self.runs[0]

    @cached_property
    def network(self) -> Network:
        """The network of the first run, read once: one that moves has a tree for every era."""
        return read_network(self.first.spec_dict)

    @cached_property
    def test_labels(self) -> Mapping[str, int] | None:
        """Label to number of test examples of the first run, read once; ``None`` where they are not known.

        Raises:
            RunError: the file with them is damaged.
        """
        return read_test_labels(self.first.path)

    @cached_property
    def findings(self) -> RunFindings:
        """What is worth a warning about the first run, found once."""
        return RunFindings.of(self.first, self.network, self.test_labels)

    @property
    def folder(self) -> Path:
        """The folder of the run; of several seeds, the folder that contains theirs."""
        path = self.first.path
        return path.parent if _SEED_FOLDER.fullmatch(path.name) else path

    @property
    def rounds_played(self) -> int:
        """The number of rounds that every seed has done: that of the seed with the fewest."""
        return min(len(run.metrics) for run in self.runs)

    @property
    def observers(self) -> tuple[str, ...]:
        """A tuple of the observers watched in any seed, in the order of first appearance."""
        return tuple(dict.fromkeys(o for run in self.runs for o in run.observers))

    def curve(self, column: str, *, cumulative: bool = False) -> Curve:
        """``column`` of the metrics over rounds: mean over seeds with its 95 % interval.

        Rounds in which no seed measured it are left out; ``cumulative``: add up over the rounds. Empty where
        no run has such a column.
        """
        table = pd.concat(
            [metric_by_round(run, column, cumulative=cumulative) for run in self.runs], axis=1, join="outer"
        ).sort_index()
        table = table[table.notna().any(axis=1)]
        values = table.to_numpy(dtype=float)
        means = [mean(row) for row in values]
        middle = np.array([m.value for m in means], dtype=float)
        spread = np.nan_to_num(np.array([m.half_width for m in means], dtype=float))
        rounds = table.index.to_numpy(dtype=float)
        return Curve(rounds, middle, middle - spread, middle + spread)

    def worst(self, column: str) -> tuple[FloatArray, FloatArray]:
        """Rounds ``[R]``, ascending, and the largest value of ``column`` over the seeds in each.

        So an ε is shown, which is not averaged. Rounds in which no seed measured it are left out.
        """
        table = pd.concat([metric_by_round(run, column) for run in self.runs], axis=1).sort_index()
        largest = table.max(axis=1).dropna()
        return largest.index.to_numpy(dtype=float), largest.to_numpy(dtype=float)

    def final(self, column: str) -> Mean:
        """The last measured value of a metrics column: mean over seeds with its 95 % half-width.

        NaN where no seed measured it; seeds that did not are left out.

        Raises:
            KeyError: a run has no such column.
        """
        return mean(last_measured(run.metrics[column]) for run in self.runs)

    def best(self, column: str) -> Mean:
        """The largest measured value of a metrics column: mean over seeds with its 95 % half-width.

        NaN where no seed measured it; seeds that did not are left out.

        Raises:
            KeyError: a run has no such column.
        """
        return mean(float(run.metrics[column].max()) for run in self.runs)

    def total(self, *columns: str) -> Mean:
        """The sum of ``columns`` over all rounds: mean over seeds with its 95 % half-width.

        Columns that a run does not have, and values that are missing, add nothing; NaN where nothing was
        measured.
        """
        return mean(
            sum_of_measured(np.concatenate([metric_by_round(run, column) for column in columns]))
            for run in self.runs
        )


def mean(values: Iterable[float]) -> Mean:
    """Mean of the values that are not NaN, with the half-width of its 95 % interval (Student's t).

    NaN where there is no value; the half-width is NaN for one, and of an infinite mean.
    """
    measured = np.array([v for v in values if not math.isnan(v)], dtype=float)
    if measured.size == 0:
        return Mean(math.nan, math.nan)
    middle = float(measured.mean())
    if measured.size == 1 or not math.isfinite(middle):
        return Mean(middle, math.nan)
    error = float(measured.std(ddof=1)) / math.sqrt(measured.size)
    return Mean(middle, float(stats.t.ppf(0.975, measured.size - 1)) * error)


def load_series(run_folders: Sequence[Path]) -> tuple[Series, ...]:
    """Load runs: a tuple with one `Series` for each of ``run_folders``, in their order.

    Folders ``seed-K`` in one folder, or the folder that contains them, are one series.

    Raises:
        SpecError: no folder was given, or one of them is not a run.
        RunError: a run is damaged.
    """
    if not run_folders:
        raise SpecError("run folders", None, "give at least one")
    members: dict[Path, list[Path]] = {}
    for folder in run_folders:
        for path in folders_of_seeds(folder):
            together = path.parent if _SEED_FOLDER.fullmatch(path.name) else path
            members.setdefault(together, []).append(path)
    series = []
    for together, paths in members.items():
        runs = tuple(load_run(path) for path in dict.fromkeys(paths))
        series.append((together, Series(runs[0].name, runs)))
    return _with_unique_names(series)


def _with_unique_names(series: list[tuple[Path, Series]]) -> tuple[Series, ...]:
    """The series of these pairs (folder, series), each name unique.

    A name that several have is followed by the folder's name in brackets; where these too are equal, by the
    path. Where all have one name, the folder's name, or path, stands alone.
    """
    if len(series) > 1 and len({one.first.name for _, one in series}) == 1:
        names = [path.name for path, _ in series]
        alone = names if len(set(names)) == len(names) else [str(path) for path, _ in series]
        return tuple(replace(one, name=name) for (_, one), name in zip(series, alone, strict=True))
    for further in (lambda path: path.name, str):
        counts = Counter(one.name for _, one in series)
        series = [
            (path, replace(one, name=f"{one.first.name} ({further(path)})") if counts[one.name] > 1 else one)
            for path, one in series
        ]
    return tuple(one for _, one in series)


def folders_of_seeds(folder: Path) -> list[Path]:
    """The folders ``seed-K`` in ``folder``, by K; ``folder`` alone where there are none, or it is a run."""
    if not folder.is_dir() or (folder / SPEC_FILE).exists():
        return [folder]
    found = [(match, path) for path in folder.iterdir() if (match := _SEED_FOLDER.fullmatch(path.name))]
    return [path for match, path in sorted(found, key=lambda pair: int(pair[0][1]))] or [folder]


def metric_by_round(run: RunFolder, column: str, *, cumulative: bool = False) -> pd.Series[float]:
    """A column of a run's metrics, indexed by round, as floats; empty where the run has no such column.

    NaN where nothing was measured. ``cumulative``: the sums up to and with each round.
    """
    if column not in run.metrics.columns:
        return pd.Series(dtype=float, index=pd.Index([], dtype=float))
    values = run.metrics.set_index("round")[column].astype(float)
    return values.cumsum() if cumulative else values


def sum_of_measured(values: FloatArray) -> float:
    """The sum of the values that are not NaN; NaN where all are."""
    measured = values[~np.isnan(values)]
    return float(measured.sum()) if measured.size else math.nan

"""The results of a sweep: one row for each point and seed, means over seeds, and the report."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd

from sfumato.durable_files import replacing
from sfumato.errors import RunError, SfumatoError, SpecError
from sfumato.notebook import block
from sfumato.report.pareto.page import write_pareto_page
from sfumato.report.pareto.points import ParetoPage, SweptPoint
from sfumato.report.results.comparability import RADIO_COSTS, notices
from sfumato.report.results.cost_of_privacy import command_without_noise, costs_of_noise, twin_in
from sfumato.report.results.series import Mean, Series, load_series, mean
from sfumato.report.results.spec_sections import has_noise
from sfumato.report.results.summary import guess_of_run, unit_of_run
from sfumato.rounding import number, upper_bound
from sfumato.run_folder.headline import Headline, headline_of
from sfumato.run_folder.manifest import FileRecord, read_manifest, record_files
from sfumato.run_folder.metrics_table import EPSILON_PREFIX
from sfumato.run_folder.reader import REPORT_FILE, read_json, write_json
from sfumato.spec.without_noise import trains_alike_but_for_noise
from sfumato.spec.words_of_keys import setting_in_words
from sfumato.sweeps.grid import as_yaml, key_words
from sfumato.sweeps.point_result import LAST, SCORES, TOTALS, result_of
from sfumato.sweeps.request import Failure, SweepRequest, task_folder

SWEEP_FILE = "sweep.json"
TABLE_FILE = "sweep.parquet"
FACTS = ("raw_devices", "devices", "radio")
_MEASURES = (*LAST, *TOTALS)
_MOST_READ = 20  # points whose folders are read for a report


@dataclass(frozen=True)
class Sweep:
    """A finished sweep; some of its points may have failed.

    Attributes:
        folder: of the sweep.
        table: one row for each point and seed: ``point``, a column for every swept key, ``seed``, ``delta``,
            rounds, last and best accuracy, last loss and further metrics, ``epsilon:OBSERVER`` for the
            observers in ``watch`` (worst unit, before training; infinite without a guarantee),
            ``raw_devices`` that send raw updates to a trusted edge, of so many ``devices``, the ``radio``
            model of the energies (missing where the spec does not ask for energy), totals of energy (J),
            delay (s), bytes and wall time (s), and ``error``. NaN: not measured.
        failures: the points and seeds that failed.
    """

    folder: Path
    table: pd.DataFrame
    failures: tuple[Failure, ...]

    def __repr__(self) -> str:
        points = f"{self.table['point'].nunique():,} points of {', '.join(self.keys)}"
        failed = f", {len(self.failures):,} failed" if self.failures else ""
        return f"<Sweep {self.folder}: {points}, {len(self.table):,} runs{failed}>"

    def _repr_html_(self) -> str:
        """The points as an HTML table, for notebooks."""
        score, rows = self.score, self.summary()
        epsilons = [f"{EPSILON_PREFIX}{observer}" for observer in self.observers]
        titles = (*self.keys, "seeds", score.title, *(f"ε {observer}" for observer in self.observers))
        cells = [
            (
                *(str(row[key]) for key in self.keys),
                str(row["seeds"]),
                score.figure(row[score.column]),
                *(upper_bound(row[name]) for name in epsilons),
            )
            for row in rows.to_dict("records")
        ]
        return block(repr(self)[1:-1], titles, cells, self.notices)

    @property
    def keys(self) -> tuple[str, ...]:
        """The swept keys, which are columns of the table; a swept seed is the column ``seed``.

        Raises:
            RunError: ``sweep.json`` cannot be read.
        """
        return tuple(read_json(self.folder / SWEEP_FILE)["keys"])

    @property
    def observers(self) -> tuple[str, ...]:
        """Names of the observers with a column ``epsilon:OBSERVER`` in the table.

        Such as ``cloud``.
        """
        names = (str(name) for name in self.table.columns)
        return tuple(n.removeprefix(EPSILON_PREFIX) for n in names if n.startswith(EPSILON_PREFIX))

    @property
    def notices(self) -> list[str]:
        """Sentences on figures that cannot be compared: ε at different δ, or energies of different radios.

        [] where all can be.
        """
        measured = self.table[self.table["energy_j"].notna()]
        return notices(self.table["delta"].dropna(), measured["radio"].dropna())

    @property
    def asks_for_energy(self) -> bool:
        """Whether the spec of some point asks for energy and delay: by radio, control or the air."""
        return bool(self.table["radio"].notna().any())

    @property
    def has_raw_devices(self) -> bool:
        """Whether some point has devices that send raw updates to a trusted edge."""
        return bool((self.table["raw_devices"].fillna(0) > 0).any())

    @property
    def score(self) -> Headline:
        """The score by which the points are compared: the accuracy if there is one; see `headline_of`."""
        return headline_of(self.table)

    @property
    def _asked_for(self) -> list[str]:
        """Names of the scores that specs ask for, beside accuracy and loss, and that the table has."""
        return [name for name in SCORES if name in self.table.columns]

    def summary(self) -> pd.DataFrame:
        """One row for each point: means over seeds, and in ``NAME_half_width`` half their 95 % t interval.

        ε is the largest over the seeds, not the mean. ``seeds`` is the number of seeds that did not fail.
        Means are over those that were measured: NaN where none was, and half-widths are NaN of a single seed.
        ``raw_to_trusted_edge`` is text: ``25 of 50``, or "–".
        """
        rows = []
        for _, seeds in self.table.groupby("point", sort=False):
            row: dict[str, Any] = dict(seeds.iloc[0][["point", *self.keys]])
            row["seeds"] = int((seeds["error"] == "").sum())
            for name in (*_MEASURES, *self._asked_for):
                found = mean(seeds[name])
                row |= {name: found.value, f"{name}_half_width": found.half_width}
            for observer in self.observers:
                row[f"{EPSILON_PREFIX}{observer}"] = seeds[f"{EPSILON_PREFIX}{observer}"].max()
            known = seeds.dropna(subset=["raw_devices", "devices"])
            worst = known["raw_devices"].max() if len(known) else None
            row["raw_to_trusted_edge"] = (
                "–" if worst is None else f"{worst:,} of {known['devices'].iloc[0]:,}"
            )
            rows.append(row)
        return pd.DataFrame(rows)

    def report(self, out: Path | None = None) -> Path:
        """Write the HTML report of the sweep to the file ``out``; returns its path.

        By default it goes into the sweep's folder. Points of which every seed failed are listed, not drawn.

        Raises:
            RunError: ``sweep.json`` cannot be read, or the report cannot be written.
        """
        request = read_json(self.folder / SWEEP_FILE)
        points, page = [], out or self.folder / REPORT_FILE
        names = (self.score.column, *(RADIO_COSTS if self.asks_for_energy else ()))
        for row in self.summary().to_dict("records"):
            if row["seeds"] == 0:
                continue
            objectives = {name: Mean(row[name], row[f"{name}_half_width"]) for name in names}
            for observer in self.observers:
                name = f"{EPSILON_PREFIX}{observer}"
                objectives[name] = Mean(row[name], math.nan)
            labels = tuple(
                _setting_label(key, row[key], written)
                for key, written in zip(self.keys, request["points"][row["point"]], strict=True)
            )
            reports = self._reports_of(row["point"], page.parent)
            points.append(
                SweptPoint(labels, int(row["seeds"]), objectives, row["raw_to_trusted_edge"], reports)
            )
        deltas = sorted(set(self.table["delta"].dropna()))
        swept = ParetoPage(
            title=request["title"],
            facts=[*request["facts"], *([f"δ = {number(deltas[0])}"] if len(deltas) == 1 else [])],
            keys=key_words(self.keys),
            points=tuple(points),
            notices=self.notices,
            failures=tuple((_describe_failure(failure), failure.message) for failure in self.failures),
            **self._levels(),
        )
        return write_pareto_page(swept, page)

    def _levels(self) -> dict[str, Any]:
        """What a page shows beside the points: arguments of `ParetoPage`, by name.

        They are the accuracy of guessing (``guess``), the number of test examples (``tested``), the unit, and
        the score of a run without noise in a folder beside the sweep (``silent``, ``silent_name``) or the
        command that trains one (``silent_command``). Each is there only where it is the same for every point;
        {} where there are too many points to read them all.
        """
        done = self.table[self.table["error"] == ""]
        if not 0 < done["point"].nunique() <= _MOST_READ:
            return {}
        runs = [
            task_folder(self.folder, *task)
            for task in zip(done["point"], done["seed"].astype(int), strict=True)
        ]
        try:
            points = load_series(runs)
        except SfumatoError:  # damaged since it was done
            return {}
        guesses = {guess_of_run(one) for one in points}
        found: dict[str, Any] = {"guess": guesses.pop()} if len(guesses) == 1 else {}
        tested = {sum((one.test_labels or {}).values()) for one in points}
        found |= {"tested": tested.pop()} if len(tested) == 1 else {}
        units = {unit_of_run(one.first) for one in points}
        found |= {"unit": units.pop()} if len(units) == 1 else {}
        twin = twin_in(self.folder.resolve().parent, points[0])
        if twin is not None and all(costs_of_noise([one, twin]) for one in points):
            seeds = "one seed" if len(twin.runs) == 1 else f"{len(twin.runs)} seeds"
            silent = twin.final(self.score.column).value
            return found | {"silent": silent, "silent_name": f"{twin.name}; {seeds}"}
        return found | {"silent_command": self._command_without_noise(points)}

    def _command_without_noise(self, points: Sequence[Series]) -> str:
        """A shell command, for the folder that holds the sweep, that trains a point's spec without noise.

        "" where points differ in more than noise, so that no such run compares with all of them, or a point
        has no noise.
        """
        first = points[0].first.spec_dict
        alike = all(trains_alike_but_for_noise(first, one.first.spec_dict) for one in points)
        if not alike or not all(has_noise(one.first.spec_dict) for one in points):
            return ""
        return command_without_noise(points[0], self.folder)

    def _reports_of(self, point: str, beside: Path) -> dict[int, str]:
        """By seed, the path of the report of a point's run, relative to the folder ``beside``.

        Seeds whose run has no report are left out.
        """
        found = {
            int(seed): task_folder(self.folder, point, int(seed)) / REPORT_FILE
            for seed in self.table.loc[self.table["point"] == point, "seed"].dropna()
        }
        return {
            seed: Path(os.path.relpath(path, beside)).as_posix()
            for seed, path in found.items()
            if path.is_file()
        }


def collect(request: SweepRequest, failures: Sequence[Failure]) -> Sweep:
    """Read what the points of ``request`` left in its folder into one table, written to ``sweep.parquet``.

    A row for each point and seed, as `Sweep` says; a failed one has its message in ``error``, and a point
    whose spec was refused has one row without a seed. ``failures``: points and seeds that failed, with their
    errors.

    Raises:
        RunError: the table cannot be written.
    """
    errors = {(failure.point, failure.seed): failure.message for failure in failures}
    seeds: dict[str, list[int | None]] = {failure.point: [None] for failure in request.refused}
    for task in request.tasks:
        seeds.setdefault(task.point.name, []).append(task.seed)
    rows: list[dict[str, Any]] = []
    observers: dict[str, None] = {}
    for point in request.points:
        for seed in seeds[point.name]:
            row: dict[str, Any] = {"point": point.name, **dict(point.values), "seed": seed}
            row["error"] = errors.get((point.name, seed), "")
            result = None if seed is None else result_of(task_folder(request.folder, point.name, seed))
            if result is not None:
                row |= (result["metrics"] or {}) | {"delta": result["delta"]}
                row |= {name: result.get(name) for name in FACTS}
                observers |= dict.fromkeys(result["epsilon"])
                for name, value in result["epsilon"].items():
                    row[f"{EPSILON_PREFIX}{name}"] = float(value)
            rows.append(row)
    keys = [key for key, _ in request.points[0].values if key != "seed"]
    epsilons = [f"{EPSILON_PREFIX}{observer}" for observer in observers]
    asked_for = [name for name in SCORES if any(name in row for row in rows)]
    columns = ["point", *keys, "seed", "delta", *LAST, *asked_for, *epsilons, *FACTS, *TOTALS, "error"]
    table = pd.DataFrame(rows).reindex(columns=columns)
    table = table.astype(
        {"seed": "Int64", "raw_devices": "Int64", "devices": "Int64", "radio": "string"}
        | dict.fromkeys(["delta", *LAST, *asked_for, *epsilons, *TOTALS], "float64")
    )
    for key in keys:
        if not all(isinstance(value, Real) and not isinstance(value, bool) for value in table[key]):
            table[key] = [as_yaml(value) for value in table[key]]
    with replacing(request.folder / TABLE_FILE) as file:
        table.to_parquet(file, engine="pyarrow", index=False)
    record_files(request.folder, {TABLE_FILE: FileRecord.of(file)})
    return Sweep(request.folder, table, tuple(failures))


def write_request(request: SweepRequest) -> FileRecord:
    """Write to ``sweep.json`` what a report needs of the request; returns the file's record."""
    specs = [task.spec for task in request.tasks]
    units = [spec.privacy.unit for spec in specs]
    facts: dict[str, list[str]] = {
        "protected: one": ["device and one record" if unit == "both" else unit for unit in units],
        "protocol": [spec.protocol for spec in specs],
        "data": [spec.data.source for spec in specs],
        "model": [spec.model.kind for spec in specs],
        "rounds": [str(spec.training.rounds) for spec in specs],
    }
    return write_json(
        request.folder / SWEEP_FILE,
        {
            "title": specs[0].name,
            "keys": [key for key, _ in request.points[0].values],
            "points": {point.name: [as_yaml(value) for _, value in point.values] for point in request.points},
            "facts": [f"{what} {found[0]}" for what, found in facts.items() if len(set(found)) == 1],
        },
    )


def load_sweep(folder: str | Path) -> Sweep:
    """Read a finished sweep, those of its points that failed among them.

    Args:
        folder: that `sfumato.sweep` wrote.

    Raises:
        SpecError: the folder holds no finished sweep.
        RunError: its files are damaged.
    """
    path = Path(folder)
    if not (path / SWEEP_FILE).is_file() or not (path / TABLE_FILE).is_file():
        raise SpecError(str(path), None, f"is no finished sweep: it needs {SWEEP_FILE} and {TABLE_FILE}")
    for lost in read_manifest(path).damages(path, [SWEEP_FILE, TABLE_FILE]):
        raise RunError(f"{path / lost.name}: {lost.what}; run the same sweep again to restore it")
    try:
        table = pd.read_parquet(path / TABLE_FILE, engine="pyarrow")
    except (OSError, ValueError) as error:
        raise RunError(f"{path / TABLE_FILE}: cannot be read: {error}") from None
    for name in FACTS:
        if name not in table:  # of an earlier version
            table[name] = pd.NA
    failed = table[table["error"] != ""]
    failures = [
        Failure(row["point"], None if pd.isna(row["seed"]) else int(row["seed"]), row["error"])
        for row in failed.to_dict("records")
    ]
    return Sweep(path, table, tuple(failures))


def _setting_label(key: str, value: Any, written: str) -> str:
    """A swept value on the page: shares of trusted parties in words, others as ``written`` in a spec."""
    is_share = key.startswith("trust.") and isinstance(value, Real) and not isinstance(value, bool)
    return setting_in_words(key, float(value)) if is_share else written


def _describe_failure(failure: Failure) -> str:
    """The point of a failure, with its seed if it has one, as text."""
    return failure.point if failure.seed is None else f"{failure.point}, seed {failure.seed}"

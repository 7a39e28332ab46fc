"""The tidy table of a study: one row for every measured number, with the settings of its point as columns."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sfumato.durable_files import replacing
from sfumato.errors import SfumatoError
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import read_json, write_json
from sfumato.spec.document import Spec, fingerprint
from sfumato.spec.load import load_spec
from sfumato.studies.grids import StudyPlan, StudyPoint, points_of
from sfumato.studies.measures.base import SPREAD, Measurement, Measurements
from sfumato.studies.measures.registry import measure_named
from sfumato.sweeps.request import SweepRequest, Task

TABLE_FILE = "results.parquet"
MEASURES_FOLDER = "measures"
_OBSERVED = ("series", "at", "unit", "observer", "value")


@dataclass(frozen=True)
class FormulaTask:
    """A measure of one point and seed that is computed from its spec, and the file that keeps it."""

    task: Task
    measure: str
    file: Path

    @property
    def is_done(self) -> bool:
        """Whether the file holds it, of the same spec."""
        try:
            return self.file.is_file() and read_json(self.file)["spec"] == _key(self.task.spec)
        except (SfumatoError, KeyError):
            return False


def formula_tasks(plan: StudyPlan, name: str, request: SweepRequest) -> list[FormulaTask]:
    """The measures of a grid that are computed from specs alone, at the points that they are asked of."""
    named = {point.folder_name: point for point in points_of(plan.axes(name))}
    return [
        FormulaTask(task, measure, _file(request.folder, task, measure))
        for measure in plan.measures(name)
        if measure_named(measure)[0].source == "formula"
        for task in request.tasks
        if plan.is_asked(name, measure, named[task.point.name])
    ]


def compute_measure(spec: Mapping[str, Any], measure: str, file: Path) -> None:
    """Compute a measure and keep it in ``file``: what a worker process does."""
    loaded = load_spec(spec)
    found, argument = measure_named(measure)
    assert found.from_spec is not None
    rows = [
        [_or_none(one.value), one.series, _or_none(one.at), one.unit, one.observer]
        for one in found.from_spec(loaded, argument)
    ]
    write_json(file, {"measure": measure, "spec": _key(loaded), "rows": rows})


def collect_observations(
    plan: StudyPlan, requests: Mapping[str, SweepRequest], failed: Mapping[str, set[tuple[str, int | None]]]
) -> pd.DataFrame:
    """Everything that was measured; points and seeds in ``failed`` are left out, by grid."""
    parts = []
    for name, request in requests.items():
        named = {point.folder_name: point for point in points_of(plan.axes(name))}
        for measure in plan.measures(name):
            asked = plan.series_of(name, measure)
            for task in request.tasks:
                point = named[task.point.name]
                is_lost = bool({(task.point.name, task.seed), (task.point.name, None)} & failed[name])
                if is_lost or not plan.is_asked(name, measure, point):
                    continue
                found = _of_series(_measured(measure, request, task), asked)
                parts.append(_rows(plan, name, measure, point, task, found))
    axes = dict.fromkeys(axis.name for grid in requests for axis in plan.axes(grid))
    columns = ["study", "form", "quick", "grid", "point", *axes, "seed", "measure", *_OBSERVED]
    known = [part for part in parts if len(part)]
    return (pd.concat(known, ignore_index=True) if known else pd.DataFrame()).reindex(columns=columns)


def _of_series(found: Measurements, asked: set[str] | None) -> Measurements:
    """Those of the asked series, and the spreads that belong to them."""
    if asked is None:
        return found
    wanted = asked | {name + SPREAD for name in asked}
    return [one for one in found if one.series in wanted]


def _measured(measure: str, request: SweepRequest, task: Task) -> Measurements:
    found, argument = measure_named(measure)
    if found.from_folder is not None:
        return found.from_folder(task.folder, argument)
    rows = read_json(_file(request.folder, task, measure))["rows"]
    return [
        Measurement(_or_nan(value), series, _or_nan(at), unit, observer)
        for value, series, at, unit, observer in rows
    ]


def _rows(
    plan: StudyPlan, name: str, measure: str, point: StudyPoint, task: Task, found: Measurements
) -> pd.DataFrame:
    """The rows of one measure of one point and seed."""
    table = pd.DataFrame({column: [getattr(one, column) for one in found] for column in _OBSERVED})
    table = table.assign(
        study=plan.name, form=plan.form, quick=plan.quick, grid=name, point=point.folder_name
    )
    for axis, setting in point.settings.items():
        table[axis] = [setting] * len(table)
    return table.assign(seed=task.seed, measure=measure)


def write_observations(table: pd.DataFrame, file: Path, axes: Sequence[str]) -> FileRecord:
    """Write the table as Parquet; an axis with values that are no numbers is written as text."""
    written = table.copy()
    for axis in axes:
        kinds = {type(value) for value in written[axis].dropna()}
        if not kinds <= {int, float}:
            written[axis] = [None if _is_missing(value) else _text(value) for value in written[axis]]
    with replacing(file) as opened:
        written.to_parquet(opened, engine="pyarrow", index=False)
    return FileRecord.of(opened)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _or_nan(value: float | str | None) -> float:
    return math.nan if value is None else float(value)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _file(folder: Path, task: Task, measure: str) -> Path:
    digest = hashlib.sha256(measure.encode()).hexdigest()[:8]
    return folder / MEASURES_FOLDER / task.point.name / f"seed-{task.seed}-{digest}.json"


def _key(spec: Spec) -> str:
    return fingerprint(spec.model_dump(mode="json"))

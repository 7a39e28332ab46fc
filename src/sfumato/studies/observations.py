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
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.durable_files import replacing
from sfumato.run_folder.manifest import FileRecord
from sfumato.spec.document import Spec, fingerprint
from sfumato.spec.frozen import versions
from sfumato.spec.load import load_spec
from sfumato.studies.grids import StudyPlan, StudyPoint, points_of
from sfumato.studies.measures.base import SPREAD, Measurements, PointFolder
from sfumato.studies.measures.computing import measure_folder, measure_spec
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.study import MEASUREMENT_COLUMNS, POINT_COLUMNS, SEED_COLUMNS
from sfumato.sweeps.request import SweepRequest, Task

MEASURES_FOLDER = "measures"
_SPEC = b"sfumato"
"""Key, in the file of a computed measure, of the fingerprint of what it was computed from."""


@dataclass(frozen=True)
class FormulaTask:
    """A measure of one point and seed that is computed from its spec.

    Attributes:
        task: the point and seed, with the spec.
        measure: its name.
        file: where the result is kept.
    """

    task: Task
    measure: str
    file: Path

    @property
    def is_done(self) -> bool:
        """Whether the file exists and was computed from the same spec by the same version of Sfumato."""
        try:
            kept = pq.read_schema(self.file).metadata or {}
        except (OSError, pa.ArrowInvalid):
            return False
        return kept.get(_SPEC) == _key(self.task.spec)


def formula_tasks(plan: StudyPlan, name: str, request: SweepRequest) -> list[FormulaTask]:
    """The tasks for measures of the grid ``name`` that are computed from specs, at the points that use them.

    Those that are done are among them (`FormulaTask.is_done`). ``request``: the sweep of the grid.
    """
    named = {point.folder_name: point for point in points_of(plan.axes(name))}
    return [
        FormulaTask(task, measure, _file(request.folder, task, measure))
        for measure in plan.measures(name)
        if measure_named(measure)[0].source == "formula"
        for task in request.tasks
        if plan.is_asked(name, measure, named[task.point.name])
    ]


def compute_measure(spec: Mapping[str, Any], measure: str, file: Path) -> None:
    """Compute a measure from ``spec`` and write it to ``file``; worker processes call this.

    ``spec``: as YAML has it. A file that is there is replaced.

    Raises:
        SpecError: of `measure_spec`.
    """
    loaded = load_spec(spec)
    table = pa.Table.from_pandas(_frame(measure_spec(measure, loaded)), preserve_index=False)
    with replacing(file) as opened:
        pq.write_table(table.replace_schema_metadata({_SPEC: _key(loaded)}), opened)


def collect_observations(
    plan: StudyPlan, requests: Mapping[str, SweepRequest], failed: Mapping[str, set[tuple[str, int | None]]]
) -> pd.DataFrame:
    """The tidy table of a study: a row for every measured number.

    Columns are those of the grid and point, one for each axis of the study (empty where a grid has no such
    axis), and those of the seed and the measurement. Without any measurement the table has columns and no
    rows.

    Raises:
        SpecError: a run that is not among ``failed`` is not in its folder.
        RunError: its files are missing or damaged.

    Args:
        plan: of the study.
        requests: the sweep of every grid, by its name.
        failed: (point, seed) pairs that are left out, by grid; a seed of ``None`` stands for all seeds.
    """
    parts = []
    for name, request in requests.items():
        named = {point.folder_name: point for point in points_of(plan.axes(name))}
        folders = {task.folder: PointFolder(task.folder) for task in request.tasks}
        for measure in plan.measures(name):
            asked = plan.series_of(name, measure)
            for task in request.tasks:
                point = named[task.point.name]
                is_lost = bool({(task.point.name, task.seed), (task.point.name, None)} & failed[name])
                if is_lost or not plan.is_asked(name, measure, point):
                    continue
                found = _measured(measure, folders[task.folder], request, task)
                if asked is not None:  # with the spreads that belong to them
                    found = found[found["series"].isin([*asked, *(series + SPREAD for series in asked)])]
                parts.append(_rows(plan, name, measure, point, task, found))
    columns = [*POINT_COLUMNS, *plan.axis_names, *SEED_COLUMNS, *MEASUREMENT_COLUMNS]
    known = [part for part in parts if len(part)]
    return (pd.concat(known, ignore_index=True) if known else pd.DataFrame()).reindex(columns=columns)


def _measured(measure: str, folder: PointFolder, request: SweepRequest, task: Task) -> pd.DataFrame:
    """The measurements of one point and seed, read from its run or account, or from a formula's file."""
    if measure_named(measure)[0].source != "formula":
        return _frame(measure_folder(measure, folder))
    kept: pd.DataFrame = pq.read_table(_file(request.folder, task, measure)).to_pandas()
    return kept


def _frame(found: Measurements) -> pd.DataFrame:
    """Measurements as a table with the columns `MEASUREMENT_COLUMNS`, a row each."""
    return pd.DataFrame({column: [getattr(one, column) for one in found] for column in MEASUREMENT_COLUMNS})


def _rows(
    plan: StudyPlan, name: str, measure: str, point: StudyPoint, task: Task, found: pd.DataFrame
) -> pd.DataFrame:
    """The rows of the table for one measure of one point and seed; ``found``: its values.

    ``name``: of the grid.
    """
    table = found.assign(study=plan.name, form=plan.form, quick=plan.quick, grid=name)
    table = table.assign(point=point.folder_name, seed=task.seed, measure=measure)
    for axis, setting in point.settings.items():
        table[axis] = [setting] * len(table)
    return table


def last_by_seed(rows: pd.DataFrame) -> pd.Series[float]:
    """The last measured value of every seed, indexed by seed; NaN where a seed has none.

    ``rows``: of the table, of one point, measure and series. Of a measure over rounds it is the last round's.
    """
    return rows.sort_values("at", kind="stable").groupby("seed")["value"].last()


def write_observations(table: pd.DataFrame, file: Path, axes: Sequence[str]) -> FileRecord:
    """Write the table as a Parquet file; returns its record for the manifest.

    Args:
        table: of `collect_observations`.
        file: to write.
        axes: names of its columns of settings; one with values that are no numbers is written as text.
    """
    written = table.copy()
    for axis in axes:
        kinds = {type(value) for value in written[axis].dropna()}
        if not kinds <= {int, float}:
            written[axis] = [None if _is_missing(value) else _text(value) for value in written[axis]]
    with replacing(file) as opened:
        written.to_parquet(opened, engine="pyarrow", index=False)
    return FileRecord.of(opened)


def _is_missing(value: Any) -> bool:
    """Whether ``value`` is ``None`` or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    """``value`` as text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _file(folder: Path, task: Task, measure: str) -> Path:
    """The file of a measure of ``task`` in the ``folder`` of a sweep.

    Its name has a hash of the measure's name.
    """
    digest = hashlib.sha256(measure.encode()).hexdigest()[:8]
    return folder / MEASURES_FOLDER / task.point.name / f"seed-{task.seed}-{digest}.parquet"


def _key(spec: Spec) -> bytes:
    """A fingerprint of ``spec`` and of Sfumato's version, by which a file shows what it was computed from."""
    return fingerprint({"spec": spec.model_dump(mode="json"), "version": versions().get("sfumato")}).encode()

"""The files that a sweep keeps of one point and seed beside its run: ε before training, and metrics."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, get_args

from sfumato.accounting import account, pair_guarantee
from sfumato.errors import RunError
from sfumato.privacy.guarantee import Guarantee, json_number
from sfumato.report.results.comparability import stated_radio
from sfumato.report.results.series import Series
from sfumato.run_folder.contents import refuse_folders
from sfumato.run_folder.damage import check_folder
from sfumato.run_folder.manifest import read_manifest
from sfumato.run_folder.reader import (
    PRIVACY_FILE,
    add_json,
    adding_files,
    has_run_files,
    load_run,
    read_json,
    write_json,
    write_text,
)
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.watch import worst_pair
from sfumato.simulation.input_hashes import check_files
from sfumato.spec.document import Spec
from sfumato.spec.load import dump_spec
from sfumato.spec.model import Metric
from sfumato.sweeps.request import POINT_FILE, RESULT_FILE

LOG = logging.getLogger("sfumato")
TOTALS = ("energy_j", "delay_s", "bytes_up", "bytes_down", "wall_time_s")
LAST = ("rounds", "accuracy", "best_accuracy", "loss")
SCORES: tuple[str, ...] = get_args(Metric)
"""Metrics that a spec may ask for."""


def write_accounting(spec: Spec, folder: Path) -> None:
    """Account for ``spec``; write ``privacy.json``, and ε towards the watched observers to ``result.json``.

    A ``privacy.json`` of a run that was started in ``folder`` is kept.

    Raises:
        SpecError: the spec does not resolve, or another process is writing there.
        RunError: a file cannot be written, or a folder is in its place.
    """
    plan = resolve(spec)
    report = account(plan.spec)
    known = {(row.unit, row.observer): row for row in report.guarantees}

    def pair(unit: str, observer: str) -> Guarantee:
        """The guarantee of a pair: that of the account, else computed for it alone."""
        found = known.get((unit, observer))
        return found or pair_guarantee(plan, unit, observer, delta=report.delta)

    epsilons = {}
    for name in plan.default_watch if spec.watch is None else spec.watch:
        worst = worst_pair(plan, name, pair)
        if worst is not None:
            epsilons[name] = json_number(pair(worst.unit, worst.observer).epsilon)
    with adding_files(folder) as files:
        refuse_folders(folder, (POINT_FILE, RESULT_FILE))
        files[POINT_FILE] = write_text(folder / POINT_FILE, dump_spec(spec))
        if not has_run_files(folder):  # a run has its own privacy.json, which includes ε after the run
            files[PRIVACY_FILE] = write_json(folder / PRIVACY_FILE, report.to_dict())
        result = {
            "delta": report.delta,
            "epsilon": epsilons,
            "raw_devices": plan.raw_to_trusted_edge,
            "devices": plan.parties.device_count,
            "radio": stated_radio(plan.spec.model_dump(mode="json")),
            "metrics": None,
        }
        files[RESULT_FILE] = write_json(folder / RESULT_FILE, result)


def add_metrics(folder: Path) -> None:
    """Add the metrics of the finished run in ``folder`` to ``result.json``: last values and total costs.

    Raises:
        SpecError: another process is writing there, or there is no run in ``folder``.
        RunError: a file of the run is damaged.
    """
    run = Series("", (load_run(folder),))
    others = [name for name in SCORES if name in run.first.metrics]
    metrics = {
        "rounds": float(run.rounds_played),
        "accuracy": run.final("accuracy").value,
        "best_accuracy": run.best("accuracy").value,
        "loss": run.final("loss").value,
        **{name: run.final(name).value for name in others},
    } | {name: run.total(name).value for name in TOTALS}
    measured = {name: None if math.isnan(value) else value for name, value in metrics.items()}
    add_json(folder, RESULT_FILE, _read_result(folder) | {"metrics": measured})


def result_of(folder: Path) -> dict[str, Any] | None:
    """The content of ``result.json``: ``delta``, ``epsilon`` by observer, ``metrics`` and facts of the spec.

    ``None`` if the point in ``folder`` has no ε yet, or if the file is damaged, which is logged.
    """
    if not (folder / RESULT_FILE).exists():
        return None
    try:
        return _read_result(folder)
    except RunError as error:
        LOG.warning("%s; the point is accounted for again", error)
        return None


def is_trained(task: Path, spec: Spec) -> bool:
    """Whether the run in the folder ``task`` is finished and undamaged, and was made from the same data.

    Raises:
        DataError: data files have changed since the run.
    """
    result = result_of(task)
    if result is None or result["metrics"] is None or check_folder(task):
        return False
    check_files(load_run(task).spec_dict["hashes"], spec, f"the run in {task}")
    return True


def _read_result(folder: Path) -> dict[str, Any]:
    """The content of ``result.json`` in ``folder``.

    Raises:
        RunError: it is damaged, or that cannot be checked.
    """
    manifest = read_manifest(folder)
    for name in (RESULT_FILE, POINT_FILE):
        if name not in manifest.files:
            raise RunError(f"{folder / name}: is not in the manifest")
    for lost in manifest.damages(folder, [RESULT_FILE, POINT_FILE]):
        raise RunError(f"{folder / lost.name}: {lost.what}")
    return read_json(folder / RESULT_FILE)

"""What a sweep keeps of one point and seed beside its run: ε before training, and what the run measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from sfumato.accounting import account, pair_guarantee
from sfumato.privacy.guarantee import Guarantee, number
from sfumato.report.series import Series
from sfumato.run_folder import load_run, read_json, write_json, write_privacy
from sfumato.schedule.resolve import resolve
from sfumato.schedule.watch import worst_pair
from sfumato.spec.document import Spec

RESULT_FILE = "result.json"
TOTALS = ("energy_j", "delay_s", "bytes_up", "bytes_down", "wall_time_s")
LAST = ("rounds", "accuracy", "best_accuracy", "loss")


def account_into(spec: Spec, folder: Path) -> None:
    """Account for ``spec``; keeps ``privacy.json`` and, in ``result.json``, ε towards the watched observers.

    Raises:
        SpecError: the spec does not resolve.
    """
    plan = resolve(spec)
    report = account(plan.spec)
    known = {(row.unit, row.observer): row for row in report.guarantees}

    def pair(unit: str, observer: str) -> Guarantee:
        found = known.get((unit, observer))
        return found or pair_guarantee(plan, unit, observer, delta=report.delta)

    epsilons = {}
    for name in plan.default_watch if spec.watch is None else spec.watch:
        worst = worst_pair(plan, name, pair)
        if worst is not None:
            epsilons[name] = number(pair(worst.unit, worst.observer).epsilon)
    write_privacy(folder, report.to_dict())
    write_json(folder / RESULT_FILE, {"delta": report.delta, "epsilon": epsilons, "metrics": None})


def add_metrics(folder: Path) -> None:
    """Add to ``result.json`` what the finished run in ``folder`` measured: last values, totals of costs."""
    run = Series("", (load_run(folder),))
    metrics = {
        "rounds": float(run.rounds_played),
        "accuracy": run.final("accuracy").value,
        "best_accuracy": run.best("accuracy").value,
        "loss": run.final("loss").value,
    } | {name: run.total(name).value for name in TOTALS}
    measured = {name: None if math.isnan(value) else value for name, value in metrics.items()}
    write_json(folder / RESULT_FILE, read_result(folder) | {"metrics": measured})


def is_accounted(folder: Path) -> bool:
    """Whether the point in ``folder`` has its ε."""
    return (folder / RESULT_FILE).is_file()


def is_trained(folder: Path) -> bool:
    """Whether the point in ``folder`` has run to its end."""
    return is_accounted(folder) and read_result(folder)["metrics"] is not None


def read_result(folder: Path) -> dict[str, Any]:
    """``result.json``: ``delta``, ``epsilon`` by observer, and ``metrics`` once the point has run."""
    return read_json(folder / RESULT_FILE)

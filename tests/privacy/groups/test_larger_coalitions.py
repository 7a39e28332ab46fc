"""Records of workers in several groups are charged towards a larger coalition, where that is less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_worlds import groups_plan
from slow import first_quick

import sfumato as sf
from sfumato.accounting import pair_guarantee, unit_kinds
from sfumato.auditing import audit_pair
from sfumato.privacy.observers import Party
from sfumato.schedule.base import Plan
from sfumato.verify.checker import check_run

TRAINING = {"batches": "poisson", "participation": {"kind": "all"}, "merge_every": 1, "rounds": 10}


def ring(kind: str, multiplier: float, **sections: Any) -> Plan:
    privacy = {"unit": "record", "clip": {"kind": kind, "norm": 1.0}, "noise": {"multiplier": multiplier}}
    return groups_plan(
        **{
            "data": {"source": "synthetic", "examples_per_device": 20},
            "training": TRAINING | sections.pop("training", {}),
            "trust": {"trusted_aggregators": []},
            "privacy": privacy | sections.pop("privacy", {}),
        }
        | sections
    )


def epsilon(plan: Plan, unit: str, observer: str) -> float:
    return pair_guarantee(plan, unit, observer, delta=1e-5).epsilon


@pytest.mark.parametrize(("kind", "multiplier", "most"), [("update", 3.0, 1.376), ("example", 1.0, 2.957)])
def test_what_more_observers_learn_at_most_one_of_them_learns_at_most(
    kind: str, multiplier: float, most: float
) -> None:
    plan = ring(kind, multiplier)
    found = pair_guarantee(plan, "record:3", "master:0", delta=1e-5)
    assert found.as_seen_by == "master:0,device:4"
    assert found.epsilon == pytest.approx(most, abs=1e-3)
    assert found.epsilon <= epsilon(plan, "record:3", "master:0,device:4") * (1 + 1e-9)
    assert found.epsilon <= epsilon(plan, "record:3", "master:0,master:1") * (1 + 1e-9)
    assert "no more than master:0,device:4 learn together" in found.why
    assert found.to_dict()["as_seen_by"] == found.as_seen_by


def test_a_worker_of_one_group_needs_no_larger_coalition() -> None:
    plan = ring("update", 3.0)
    assert pair_guarantee(plan, "record:4", "device:3", delta=1e-5).as_seen_by == ""
    assert "as_seen_by" not in pair_guarantee(plan, "record:4", "device:3", delta=1e-5).to_dict()


def test_all_pairs_of_a_ring() -> None:
    plan, smaller = ring("update", 3.0, training={"rounds": 3}), 0
    for unit in (0, 3, 4):
        for observer in {*range(12)} - {unit}:
            larger = plan.releases.larger_coalition(unit, (Party("device", 0, observer),))
            alone = pair_guarantee(plan, f"record:{unit}", f"device:{observer}", delta=1e-5)
            if larger is not None:
                names = ",".join(f"device:{party.index}" for party in larger)
                assert alone.epsilon <= epsilon(plan, f"record:{unit}", names) * (1 + 1e-9)
            smaller += bool(alone.as_seen_by)
    assert smaller >= 10


def test_devices_are_charged_as_before() -> None:
    plan = ring("update", 3.0, privacy={"unit": "both"})
    assert set(unit_kinds(plan)) == {"device", "record"}
    assert pair_guarantee(plan, "device:3", "master:0", delta=1e-5).as_seen_by == ""


def test_audits_stay_below() -> None:
    plan = ring("update", 1.0, training={"rounds": 4})
    found = audit_pair(plan, "record:3", "master:0", trials=2_000)
    assert 0 < found.lower.epsilon <= found.upper


@pytest.mark.parametrize("seed", first_quick(range(6), 2, 4))
def test_random_groups(seed: int) -> None:
    """A record's ε is no larger than towards the coalition that closes the unit's groups."""
    rng = np.random.default_rng(seed)
    groups = [sorted(rng.choice(9, size=int(rng.integers(3, 6)), replace=False).tolist()) for _ in range(3)]
    missing = sorted(set(range(9)) - {worker for group in groups for worker in group})
    groups[0] = sorted({*groups[0], *missing})
    plan = ring(
        ["update", "example"][seed % 2], 2.0,
        topology={"kind": "groups", "structure": "list", "groups": groups, "devices": 9},
        trust={"trusted_aggregators": [[], 1.0][seed // 2 % 2]},
        training={"rounds": 4, "merge_every": 1 + seed % 2},
    )  # fmt: skip
    for unit in range(9):
        observer = int(rng.choice([worker for worker in range(9) if worker != unit]))
        larger = plan.releases.larger_coalition(unit, (Party("device", 0, observer),))
        if larger is None:
            continue
        names = ",".join(f"device:{party.index}" for party in larger)
        alone = pair_guarantee(plan, f"record:{unit}", f"device:{observer}", delta=1e-5)
        assert alone.epsilon <= epsilon(plan, f"record:{unit}", names) * (1 + 1e-9)


def written(tmp_path: Path) -> Path:
    plan = ring("update", 3.0, training={"rounds": 3})
    sf.run(plan.spec, out=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.usefixtures("no_report")
def test_the_checker_derives_rows_from_the_larger_coalition(tmp_path: Path) -> None:
    run = written(tmp_path)
    rows = json.loads((run / "privacy.json").read_text())["guarantees"]
    assert any(row.get("as_seen_by") for row in rows)
    assert check_run(run).problems == []


Change = Callable[[dict[str, Any]], None]


def alone(row: dict[str, Any]) -> None:
    row["as_seen_by"] = row["as_seen_by"].partition(",")[2]


def itself(row: dict[str, Any]) -> None:
    row["as_seen_by"] = f"{row['observer']},device:{row['unit'].partition(':')[2]}"


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(
    ("change", "said"),
    [(alone, "does not contain"), (itself, "the unit observes itself")],
)
def test_other_coalitions_are_found(change: Change, said: str, tmp_path: Path) -> None:
    run = written(tmp_path)
    for name, part in (("privacy.json", ("guarantees",)), ("ledger.json", ("certificates", "rows"))):
        document = json.loads((run / name).read_text())
        rows = document
        for key in part:
            rows = rows[key]
        for row in rows:
            if row.get("as_seen_by"):
                change(row)
        (run / name).write_text(json.dumps(document))
    problems = [problem for problem in check_run(run).problems if "SHA-256" not in problem]
    assert problems
    assert any(said in problem for problem in problems)

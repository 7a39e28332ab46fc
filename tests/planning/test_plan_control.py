"""Plans of specs with control: noise for the schedule of the budget, which the run then keeps."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controlled_runs import CONTROLLED

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning import plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.checkpoint import load
from sfumato.spec.document import Spec

TARGETS = {"cloud": 4.0, "own-edge": 9.0}

pytestmark = pytest.mark.usefixtures("no_report")


def spec(**changes: Any) -> Spec:
    return sf.load_spec(CONTROLLED | changes)


def test_the_planned_noise_is_that_of_the_schedule_without_control() -> None:
    found, alone = plan(spec(), TARGETS), plan(spec(control=None), TARGETS)
    assert found.plan.spec.privacy.noise == alone.plan.spec.privacy.noise
    assert [met.epsilon for met in found.targets] == [met.epsilon for met in alone.targets]
    assert found.plan.spec.control == spec().control


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"transport": {"devices_to_edge": "secure-aggregation"}, "faults": {"dropout_rate": 0.2}},
        {"privacy": CONTROLLED["privacy"] | {"unit": "record"}},
    ],
    ids=["plain", "masked dropouts", "record"],
)
def test_the_planned_spec_runs_and_keeps_its_targets(tmp_path: Path, changes: dict[str, Any]) -> None:
    targets = {"cloud": 4.0} if "transport" in changes else TARGETS
    made = plan(spec(**changes), targets)
    assert isinstance(made.plan, TreePlan)
    report = sf.account(made.plan.spec)
    for target in made.targets:
        assert 0.99 * target.target.epsilon <= target.epsilon <= target.target.epsilon
        assert report.epsilon(target.unit, target.observer) == pytest.approx(target.epsilon)
    run = sf.run(made.plan.spec, out=tmp_path / "run")
    assert run.metrics["epsilon:cloud"].iloc[-1] <= 4.0
    held = load(tmp_path / "run")
    assert held is not None
    account = dataclasses.replace(Budget.of(made.plan).fresh(), spent=held.position.state.spent)
    finite = np.isfinite(account.budget)
    assert (account.spent[finite] <= account.budget[finite] * (1 + 1e-9)).all()


def test_a_coalition_needs_a_budget() -> None:
    pair = {"cloud,edge:1": 20.0}
    with pytest.raises(
        SpecError, match=r"cloud,edge:1: has no budget under control: name this coalition in watch"
    ):
        plan(spec(), pair)
    made = plan(spec(watch=["edge:1,cloud"]), pair)
    rows = sf.account(made.plan.spec, observer="cloud,edge:1").guarantees
    assert 0.9 * 20 < max(row.epsilon for row in rows if math.isfinite(row.epsilon)) <= 20


def test_control_chooses_participation_itself() -> None:
    with pytest.raises(SpecError, match=r"minimize: .* must be noise with control"):
        plan(spec(), TARGETS, minimize="energy")

"""Control that chooses participants edge by edge: budgets of every device and observer, added up by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from controlled_runs import observers, played

import sfumato as sf
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import squared_mu_of_exposure
from sfumato.schedule.control.adaptive import RoundSettings, participants, round_plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.checkpoint import load
from sfumato.simulation.run import run_rounds
from sfumato.spec.load import load_spec

SPEC = """
name: controlled
protocol: h2fdp
data: {source: synthetic, examples_per_device: 30, partition: {kind: iid}}
model: {kind: softmax, bias: false}
topology: {kind: tree, edges: 3, devices_per_edge: 4}
trust: {trusted_edges: [0]}
training: {rounds: 5, steps_per_round: 8, edge_every: 4, batch_size: 5, learning_rate: 0.1}
privacy: {delta: 1.0e-5, clip: {kind: step, norm: 1.0}, noise: {multiplier: 3.0}}
control: {energy: 0.3, delay: 20, optimality_gap_weight: 0.0013, optimality_gap_scale: 1.0, max_steps: 6,
    smoothness: 0.5, per_edge: true}
evaluate_every: 100
"""
OWNERS = "edge:0/devices, edge:1/devices, edge:2/devices"
SAME_NOISE = f"privacy.noise={{sources: [{{owners: [{OWNERS}], multipliers: [3, 3]}}]}}"

pytestmark = pytest.mark.usefixtures("no_report")


def costs(plan: TreePlan, unit: int, observer: Party, rounds: int) -> dict[str, float]:
    found = plan.releases.after(rounds).exposures(unit, (observer,))
    return {e.bound_name: squared_mu_of_exposure(e, "zero-out") for e in found}


MANY = ("control.optimality_gap_weight=0.01", "control.max_steps=12")


@pytest.mark.parametrize(
    "changes",
    [("seed=0",), (SAME_NOISE,), ("seed=1", *MANY, "control.budget_policy=stop")],
    ids=["spread", "same noise", "stop"],
)
def test_no_device_passes_its_budget_towards_anybody(
    written: Path, tmp_path: Path, changes: tuple[str, ...]
) -> None:
    _, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written, list(changes)))
    budget = Budget.of(plan)
    account = dataclasses.replace(budget.fresh(), spent=state.spent)
    rounds = [round_plan(plan, setting) for setting in state.history]
    present = [set(draw_participants(one, number).tolist()) for number, one in enumerate(rounds)]
    assert any(isinstance(s.untrusted, tuple) and len(set(s.untrusted)) > 1 for s in state.history)
    used = []
    for unit in range(plan.tree.device_count):
        for observer in observers(plan, unit):
            whole = costs(plan, unit, observer, plan.spec.training.rounds)
            bound = min(whole, key=lambda name: (whole[name], name != "flow"))
            if math.isinf(whole[bound]):
                assert budget.spent(account, unit, (observer,)) == math.inf
                continue
            by_hand = sum(
                costs(one, unit, observer, 1)[bound]
                for one, who in zip(rounds, present, strict=True)
                if unit in who
            )
            assert by_hand <= whole[bound] * (1 + 1e-9)
            assert budget.spent(account, unit, (observer,)) == pytest.approx(by_hand, rel=1e-9)
            used.append(by_hand / whole[bound])
    assert max(used) > 0.5


def test_edges_that_are_alike_are_charged_for_their_own_participants(written: Path) -> None:
    """Towards the cloud: 1/(s z²) an aggregation, s of the unit's own edge."""
    plan = resolve_tree(load_spec(written, ["trust.trusted_edges=[]"]))
    settings = RoundSettings(8, (), (1, 2, 4), 0.1, 1.0)
    assert participants(plan, settings).tolist() == [1, 2, 4]
    budget = Budget.of(plan)
    charge = budget.charge(round_plan(plan, settings), np.arange(12))
    for device, share in ((0, 1), (4, 2), (8, 4)):
        kinds = [held.coalition[0] for held in budget.columns[int(budget.kinds[device])]]
        assert charge[device, kinds.index(Party("node", 0, 0))] == pytest.approx(2 / (9 * share))


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(written: Path, tmp_path: Path) -> None:
    whole, state = played(written, tmp_path / "whole")
    spec = load_spec(written)
    for _ in itertools.islice(run_rounds(spec, out=tmp_path / "part"), 2):
        pass
    sf.run(spec, out=tmp_path / "part", resume=True)
    held = load(tmp_path / "part")
    assert held is not None
    assert held.position.state.history == state.history
    assert np.array_equal(held.position.state.spent, state.spent)
    for name in ("ledger.json", "privacy.json", "spec.yaml"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert held.position.state.inner.model.equal(state.inner.model)
    counts = whole.metrics[["participants_trusted", "participants_untrusted"]].iloc[1]
    chosen = state.history[1]
    assert counts.tolist() == [np.mean(chosen.trusted), np.mean(chosen.untrusted)]


def test_larger_edges_are_never_asked_for_more_than_they_have(written: Path, tmp_path: Path) -> None:
    sizes = "topology={kind: tree, edges: 3, devices_per_edge: [2, 5, 3]}"
    changes = (sizes, "control.energy=0", "control.delay=0", "training.rounds=2")
    _, state = played(written, tmp_path / "run", *changes)
    assert (state.history[1].trusted, state.history[1].untrusted) == ((2,), (5, 3))
    _, few = played(written, tmp_path / "few", *changes, "control.max_devices=2")
    assert (few.history[1].trusted, few.history[1].untrusted) == ((2,), (2, 2))

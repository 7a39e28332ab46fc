"""Control that divides local epochs: intervals count epochs, and every round is one release."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from controlled_runs import played

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.privacy.observers import Party
from sfumato.protocols.tree.rounds import TreeProtocol
from sfumato.schedule.control.adaptive import RoundSettings, round_plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.simulation.checkpoint import load
from sfumato.simulation.run import run_rounds
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

SPEC = """
name: controlled
protocol: h2fdp
data: {source: synthetic, examples_per_device: 20, partition: {kind: iid}}
model: {kind: softmax, bias: false}
topology: {kind: tree, edges: 3, devices_per_edge: 4}
trust: {trusted_edges: [0]}
training: {rounds: 6, local_epochs: 2, batch_size: 5, learning_rate: 0.1}
privacy: {delta: 1.0e-5, clip: {kind: update, norm: 1.0}, noise: {multiplier: 3.0}}
control: {energy: 30.0, delay: 30.0, optimality_gap_weight: 2, optimality_gap_scale: 1.0, max_steps: 4,
    bounds: {smoothness: 5.0}}
evaluate_every: 100
"""
CLOUD = Party("node", 0, 0)

pytestmark = pytest.mark.usefixtures("no_report")


def test_intervals_count_epochs_and_a_round_trains_for_as_many(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, steps = TreeProtocol._batches, []

    def counting(self: TreeProtocol, chosen: np.ndarray, number: int) -> BatchPlan:
        found = right(self, chosen, number)
        steps.append(found.steps.unique().tolist())
        return found

    monkeypatch.setattr(TreeProtocol, "_batches", counting)
    run, state = played(written, tmp_path / "run")
    assert steps == [[4 * setting.steps] for setting in state.history]  # four batches an epoch
    assert state.steps == run.metrics["interval"].sum() == 12
    assert len({setting.steps for setting in state.history}) > 1
    assert state.ended == "all local steps are done"
    assert run.metrics["gap_drift"].isna().all()
    assert (run.metrics["smoothness"] == 5.0).all()


def test_every_round_is_one_release_however_long(written: Path, tmp_path: Path) -> None:
    _, state = played(written, tmp_path / "run")
    plan = resolve_tree(load_spec(written))
    budget, spent = Budget.of(plan), np.zeros(12)
    for number, setting in enumerate(state.history):
        one = round_plan(plan, setting)
        for device in draw_participants(one, number).tolist():
            noisers = 1 if device < 4 else setting.untrusted
            spent[device] += 1 / noisers / (3 * setting.noise) ** 2
    for device in range(12):
        columns = budget.columns[int(budget.kinds[device])]
        (column,) = (c for c, held in enumerate(columns) if held.coalition == (CLOUD,))
        assert state.spent[device, column] == pytest.approx(spent[device], rel=1e-9)
        assert budget.fresh().budget[device, column] == pytest.approx(6 / (9 * (1 if device < 4 else 4)))
        assert spent[device] <= columns[column].budget * (1 + 1e-9)


def test_a_run_that_was_stopped_goes_on_and_is_verified(written: Path, tmp_path: Path) -> None:
    _, state = played(written, tmp_path / "whole")
    spec = load_spec(written)
    for _ in itertools.islice(run_rounds(spec, out=tmp_path / "part"), 2):
        pass
    sf.run(spec, out=tmp_path / "part", resume=True)
    held = load(tmp_path / "part")
    assert held is not None
    assert held.position.state.inner.model.equal(state.inner.model)
    for name in ("ledger.json", "privacy.json", "spec.yaml"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert check_run(tmp_path / "whole").problems == []


def test_a_plan_of_a_round_has_one_aggregation(written: Path) -> None:
    one = round_plan(resolve_tree(load_spec(written)), RoundSettings(3, 2, 2, 0.1, 1.0))
    assert (one.spec.training.local_epochs, one.spec.training.local_steps) == (3, None)
    assert len(one.aggregations) == 1


@pytest.mark.parametrize(
    "change", ["control.bounds={}", "control.step_size=theorem", "control={smoothness: 1.0}"]
)
def test_epochs_without_a_known_smoothness_are_refused(written: Path, change: str) -> None:
    with pytest.raises(SpecError, match=r"training\.local_epochs: .* needs control\.bounds\.smoothness"):
        resolve_tree(load_spec(written, [change]))

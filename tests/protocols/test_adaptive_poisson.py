"""Control whose participants are drawn one by one: each round is charged as one of those that were drawn."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from controlled_runs import observers, played
from message_graph.trees import TreeAsMessages
from scipy import stats

import sfumato as sf
from sfumato.auditing import audit
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import squared_mu_of_exposure
from sfumato.schedule.control.adaptive import RoundSettings, round_plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.control.realised_rounds import settings_of_run
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.simulation.checkpoint import load
from sfumato.simulation.run import run_rounds
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

SPEC = """
name: controlled
protocol: h2fdp
data: {source: synthetic, examples_per_device: 30, partition: {kind: iid}}
model: {kind: softmax, bias: false}
topology: {kind: tree, edges: 3, devices_per_edge: 6}
trust: {trusted_edges: [0]}
training: {rounds: 4, steps_per_round: 8, edge_every: 4, batch_size: 5, learning_rate: 0.1}
privacy: {delta: 1.0e-5, clip: {kind: step, norm: 1.0}, noise: {multiplier: 3.0}}
control: {energy: 30.0, delay: 30.0, optimality_gap_weight: 0.02, optimality_gap_scale: 1.0, max_steps: 8,
    smoothness: 0.5, draw: poisson}
evaluate_every: 100
"""
CLOUD = Party("node", 0, 0)

pytestmark = pytest.mark.usefixtures("no_report")


def test_each_device_is_drawn_by_itself_at_the_chosen_rate(written: Path) -> None:
    plan = resolve_tree(load_spec(written))
    setting = RoundSettings(8, 2, 3, 0.1, 1.0)
    drawn = np.zeros((400, 18), dtype=np.bool_)
    for number in range(400):
        one = round_plan(plan, setting, number)
        assert one.participants.count.tolist() == [2, 3, 3]  # what sums are divided by, whoever comes
        drawn[number, draw_participants(one, number)] = True
        came = np.add.reduceat(drawn[number], [0, 6, 12], dtype=np.int64)
        assert one.participants.drawn.tolist() == came.tolist()
    for devices, rate in ((slice(0, 6), 2 / 6), (slice(6, 18), 3 / 6)):
        of_edge = drawn[:, devices]
        assert stats.binomtest(int(of_edge.sum()), of_edge.size, rate).pvalue > 1e-6
        spread = of_edge[:, :6].sum(axis=1).var()
        assert spread == pytest.approx(6 * rate * (1 - rate), rel=0.4)  # no fixed number
    with pytest.raises(ValueError, match="number: needed"):
        round_plan(plan, setting)


def test_a_round_is_charged_as_one_of_the_devices_that_were_drawn(written: Path) -> None:
    """Towards the cloud 1/(m z²) where m were drawn, not the expected number; 1/z² towards their own edge."""
    plan = resolve_tree(load_spec(written))
    budget, sizes = Budget.of(plan), set()
    for number in range(6):
        one = round_plan(plan, RoundSettings(8, 3, 3, 0.1, 2.0), number)
        chosen = draw_participants(one, number)
        charge, compiled = budget.charge(one, chosen), TreeAsMessages(one.releases.after(1))
        came = one.participants.drawn
        for row, device in enumerate(chosen.tolist()):
            edge = device // 6
            for column, held in enumerate(budget.columns[int(budget.kinds[device])]):
                if not math.isfinite(held.budget):
                    continue
                bound = getattr(compiled, held.bound)(held.unit, held.coalition)
                assert charge[row, column] == pytest.approx(squared_mu_of_exposure(bound, "zero-out"))
                if held.coalition == (CLOUD,):
                    expected = 2 / 36 if edge == 0 else 2 / (36 * came[edge])
                    # a trusted edge's noise is sized for the expected number, which divides the sum
                    assert charge[row, column] == pytest.approx(expected)
                    sizes.add((edge, came[edge]))
                if held.coalition == (Party("node", 1, edge),):
                    assert charge[row, column] == pytest.approx(2 / 36)
    assert len(sizes) > 4


@pytest.mark.parametrize("rule", ["spread", "stop"])
def test_no_device_passes_its_budget_towards_anybody(written: Path, tmp_path: Path, rule: str) -> None:
    changes = (f"control.budget_policy={rule}",)
    _, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written, list(changes)))
    budget = Budget.of(plan)
    account = dataclasses.replace(budget.fresh(), spent=state.spent)
    rounds = [round_plan(plan, setting, number) for number, setting in enumerate(state.history)]
    assert len({tuple(one.participants.drawn) for one in rounds}) > 1
    used = []
    for unit in range(18):
        for observer in observers(plan, unit):
            whole = {
                e.bound_name: squared_mu_of_exposure(e, "zero-out")
                for e in plan.releases.exposures(unit, (observer,))
            }
            bound = min(whole, key=lambda name: (whole[name], name != "flow"))
            if math.isinf(whole[bound]):
                assert budget.spent(account, unit, (observer,)) == math.inf
                continue
            by_hand = 0.0
            for number, one in enumerate(rounds):
                if unit in draw_participants(one, number):
                    exposures = one.releases.after(1).exposures(unit, (observer,))
                    by_hand += next(
                        squared_mu_of_exposure(e, "zero-out") for e in exposures if e.bound_name == bound
                    )
            assert budget.spent(account, unit, (observer,)) == pytest.approx(by_hand, rel=1e-9)
            assert by_hand <= whole[bound] * (1 + 1e-9)
            used.append(by_hand / whole[bound])
    assert max(used) > 0.5


def test_a_round_for_which_nobody_is_drawn_costs_nothing(written: Path, tmp_path: Path) -> None:
    changes = ("control.max_devices=1", "topology.devices_per_edge=6", "training.rounds=6")
    run, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written, list(changes)))
    came = [round_plan(plan, s, n).participants.drawn.sum() for n, s in enumerate(state.history)]
    assert 0 in came
    assert np.isfinite(run.metrics["noise_factor"]).all()


def test_a_run_that_was_stopped_goes_on_and_is_verified_and_audited(written: Path, tmp_path: Path) -> None:
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
    settings = settings_of_run(tmp_path / "whole")
    (row,) = audit(spec, observers=["edge:1"], trials=500, settings=settings).findings
    assert 0 < row.lower.epsilon <= row.upper


def test_sessions_of_any_size_are_refused(written: Path) -> None:
    with pytest.raises(
        SpecError, match=r"control\.draw: got 'poisson'; must be left out with secure aggregation"
    ):
        resolve_tree(load_spec(written, ["transport={devices_to_edge: secure-aggregation}"]))

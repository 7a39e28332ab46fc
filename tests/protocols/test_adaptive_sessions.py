"""Control with secure aggregation and dropouts: each round is charged for what is sure to be in its sums."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from controlled_runs import played
from message_graph.trees import TreeAsMessages

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import squared_mu_of_exposure
from sfumato.protocols.adaptive.settings import candidates
from sfumato.schedule.control.adaptive import RoundSettings, round_plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.faults.dropouts import turnout_of
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
topology: {kind: tree, edges: 3, devices_per_edge: 7}
trust: {trusted_edges: [0]}
training: {rounds: 4, steps_per_round: 8, edge_every: 4, batch_size: 5, learning_rate: 0.1}
privacy: {delta: 1.0e-5, clip: {kind: step, norm: 1.0}, noise: {multiplier: 3.0}}
control: {energy: 30.0, delay: 30.0, optimality_gap_weight: 0.02, optimality_gap_scale: 1.0, max_steps: 8,
    smoothness: 0.5}
evaluate_every: 100
"""
MASKED = "transport={devices_to_edge: secure-aggregation}"
SILENT = "faults={dropout_rate: 0.2}"
CLOUD = Party("node", 0, 0)
KINDS = {"masked": (MASKED,), "dropouts": (SILENT,), "masked dropouts": (MASKED, SILENT)}

pytestmark = pytest.mark.usefixtures("no_report")


def sure(kind: str, participants: int) -> int:
    """How many messages are sure to be in a sum that has the unit's."""
    return {
        "masked": participants,
        "dropouts": 1,  # nobody else is sure to be there
        "masked dropouts": 2 * participants // 3 + 1,
    }[kind]


def one_aggregation(kind: str, edge: int, observer: Party, participants: int) -> float:
    """mu squared at noise multiplier 1 of a device of ``edge`` towards its edge or the cloud, by hand.

    A trusted edge adds 1 over the sensitivity of its average. In another each message has noise of 1 over its
    bound, and the observer meets the sum of all that are sure to be there, or its own edge single messages.
    """
    own = observer == Party("node", 1, edge)
    if edge == 0:
        return math.inf if own else 1.0
    return 1.0 if own and "masked" not in kind else 1 / sure(kind, participants)


@pytest.mark.parametrize("participants", [3, 4, 5, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_round_is_charged_by_hand_and_by_the_general_ledger(
    written: Path, kind: str, participants: int
) -> None:
    plan = resolve_tree(load_spec(written, list(KINDS[kind])))
    budget = Budget.of(plan)
    one = round_plan(plan, RoundSettings(6, participants, participants, 0.1, 2.0))
    charge, compiled = budget.charge(one, np.arange(21)), TreeAsMessages(one.releases.after(1))
    asked = 0
    for unit in (0, 8, 15):
        for column, held in enumerate(budget.columns[int(budget.kinds[unit])]):
            general = {
                exposure.bound_name: squared_mu_of_exposure(exposure, "zero-out")
                for exposure in (
                    compiled.flow(held.unit, held.coalition),
                    compiled.cut(held.unit, held.coalition),
                )
            }
            if math.isfinite(held.budget):
                assert charge[unit, column] == pytest.approx(general[held.bound])
            towards = held.coalition[0]
            if towards not in (CLOUD, Party("node", 1, held.unit // 7)):
                continue
            whole = one_aggregation(kind, held.unit // 7, towards, 7) * 4 * 2 / 9
            by_hand = one_aggregation(kind, held.unit // 7, towards, participants) * 2 / (9 * 4)
            assert held.bound == "flow"
            assert held.budget == pytest.approx(whole)
            assert charge[unit, column] == pytest.approx(0.0 if math.isinf(whole) else by_hand)
            asked += 1
    assert asked == 6


@pytest.mark.parametrize("rule", ["spread", "stop"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_round_is_charged_to_all_that_were_drawn(
    written: Path, tmp_path: Path, kind: str, rule: str
) -> None:
    changes = (*KINDS[kind], f"control.budget_policy={rule}")
    _, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written, list(changes)))
    budget, spent = Budget.of(plan), np.zeros(21)
    assert len({setting.untrusted for setting in state.history}) > 1
    assert min(setting.untrusted for setting in state.history) >= (3 if "masked" in kind else 1)
    for number, setting in enumerate(state.history):
        one = round_plan(plan, setting)
        for device in draw_participants(one, number).tolist():
            s = setting.trusted if device < 7 else setting.untrusted
            spent[device] += one_aggregation(kind, device // 7, CLOUD, s) * 2 / (3 * setting.noise) ** 2
    allowed = budget.fresh().budget
    for device in range(21):
        (column,) = (
            c for c, h in enumerate(budget.columns[int(budget.kinds[device])]) if h.coalition == (CLOUD,)
        )
        assert budget.columns[int(budget.kinds[device])][column].bound == "flow"
        assert state.spent[device, column] == pytest.approx(spent[device], rel=1e-9)
        assert spent[device] <= allowed[device, column] * (1 + 1e-9)
    assert spent.max() > 0.4 * allowed[0, 0]


@pytest.mark.parametrize(("participants", "noisers"), [(10, 5), (8, 3), (7, 1)])
def test_a_coalition_takes_masks_off_by_the_threshold_of_the_round(
    written: Path, participants: int, noisers: int
) -> None:
    """Five members have too few shares for a session of 10 or 8 (7, 6); of 7 they have enough (5)."""
    members = ",".join(f"device:{device}" for device in range(11, 16))
    changes = [MASKED, "topology.devices_per_edge=10", f'watch=["edge:1,{members}"]']
    plan = resolve_tree(load_spec(written, changes))
    budget = Budget.of(plan)
    one = round_plan(plan, RoundSettings(8, participants, participants, 0.1, 1.0))
    charge = budget.charge(one, np.array([10, 11]))[:, -1]
    assert charge == pytest.approx([2 / (9 * noisers), 0.0])  # a member is no unit
    assert budget.together[0].budgets[1] == pytest.approx(4 * 2 / (9 * 5))


def test_no_session_is_smaller_than_three(written: Path, tmp_path: Path) -> None:
    cheap = ("control.energy=1e6", "control.delay=0")
    for changes, least in (((MASKED,), 3), ((), 1)):
        _, state = played(written, tmp_path / str(least), *changes, *cheap)
        assert {(s.trusted, s.untrusted) for s in state.history[1:]} == {(least, least)}
    _, state = played(written, tmp_path / "each", MASKED, "control.per_edge=true", *cheap)
    assert {(s.trusted, s.untrusted) for s in state.history[1:]} == {((3,), (3, 3))}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            ["topology={kind: tree, edges: 3, devices_per_edge: [7, 2, 7]}"],
            r"transport\.devices_to_edge: .* needs at least 3 devices in every edge .*edge:1 has 2",
        ),
        (
            ["control.max_devices=2"],
            r"control\.max_devices: got 2; must be at least 3 with secure aggregation",
        ),
        (["transport={devices_to_edge: air}", "radio={}"], "does not go with the air"),
    ],
)
def test_sessions_that_cannot_be_are_refused(written: Path, changes: list[str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        resolve_tree(load_spec(written, [MASKED, *changes]))


def test_edges_of_three_devices_leave_one_choice(written: Path) -> None:
    plan = resolve_tree(load_spec(written, [MASKED, "topology.devices_per_edge=3"]))
    assert plan.spec.control is not None
    assert [several.tolist() for several in candidates(plan, plan.spec.control)] == [[3], [3]]


def test_noise_too_quiet_for_the_ring_leaves_no_first_round(written: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no first round: whole numbers of 32 bits are too coarse") as refused:
        sf.run(load_spec(written, [MASKED, "privacy.noise.multiplier=1e-6"]), out=tmp_path / "run")
    assert "budget" not in str(refused.value)


def test_a_masked_run_says_nothing_of_single_messages(written: Path, tmp_path: Path) -> None:
    for name, changes in (
        ("masked", (MASKED,)),
        ("noiseless", (MASKED, "protocol=hfl", "privacy.noise=none")),
    ):
        run, _ = played(written, tmp_path / name, *changes)
        assert run.metrics["z1"].isna().all()
        assert run.metrics["energy_j"].min() > 0


def test_both_hops_may_be_masked_with_one_aggregation_a_round(written: Path, tmp_path: Path) -> None:
    both = "transport={devices_to_edge: secure-aggregation, edge_to_cloud: secure-aggregation}"
    with pytest.raises(SpecError, match="needs one aggregation a round"):
        resolve_tree(load_spec(written, [both]))
    changes = [both, "training.edge_every=8", "training.rounds=2"]
    _, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written, changes))
    budget, spent = Budget.of(plan), 0.0
    for number, setting in enumerate(state.history):
        one = round_plan(plan, setting)
        if 8 in draw_participants(one, number):
            # two untrusted edges' devices and the trusted edge's own noise are in the sum of three averages
            variance = 1 / setting.trusted**2 + 2 / setting.untrusted
            spent += 1 / setting.untrusted**2 / variance / (3 * setting.noise) ** 2
    account = replace(budget.fresh(), spent=state.spent)
    assert budget.spent(account, 8, (CLOUD,)) == pytest.approx(spent, rel=1e-9)


@pytest.mark.parametrize(
    "changes", [(MASKED, SILENT), (SILENT, "control.per_edge=true")], ids=["masked", "per edge"]
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    written: Path, tmp_path: Path, changes: tuple[str, ...]
) -> None:
    _, state = played(written, tmp_path / "whole", *changes)
    spec = load_spec(written, list(changes))
    for _ in itertools.islice(run_rounds(spec, out=tmp_path / "part"), 2):
        pass
    sf.run(spec, out=tmp_path / "part", resume=True)
    held = load(tmp_path / "part")
    assert held is not None
    assert held.position.state.history == state.history
    assert held.position.state.inner.model.equal(state.inner.model)
    for name in ("ledger.json", "privacy.json", "spec.yaml"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_folder_says_who_survived_and_is_verified(written: Path, tmp_path: Path) -> None:
    changes = (MASKED, SILENT)
    run, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written, list(changes)))
    realised = json.loads((tmp_path / "run" / "ledger.json").read_text())["realised"]
    for number, setting in enumerate(state.history):
        one = round_plan(plan, setting)
        chosen = draw_participants(one, number)
        for index in range(2):
            turnout, found = turnout_of(one, number, index, chosen), realised["survivors"][number][index]
            came = np.bincount(plan.tree.leaves_of(chosen[turnout.received]), minlength=3)
            assert found == np.where(turnout.formed, came, 0).tolist()
            sizes = (setting.trusted, setting.untrusted, setting.untrusted)
            assert all(n == 0 or n >= 2 * s // 3 + 1 for n, s in zip(found, sizes, strict=True))
    outcome = check_run(tmp_path / "run")
    assert outcome.problems == []
    budget = "whether the run kept the budget of its privacy filter: "
    assert any(said.startswith(budget) for said in outcome.unchecked)
    privacy = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert not any("ex_post" in row for row in privacy["guarantees"])  # the budget is the guarantee
    assert len(run.metrics) == len(state.history)


def test_a_run_in_which_nobody_is_heard_goes_on(written: Path, tmp_path: Path) -> None:
    noised = "control.estimates={multiplier: 20.0, bound: 10.0}"
    run, state = played(written, tmp_path / "run", "faults={dropout_rate: 0.99}", noised, "training.rounds=2")
    realised = json.loads((tmp_path / "run" / "ledger.json").read_text())["realised"]
    assert [0, 0, 0] in [survivors[-1] for survivors in realised["survivors"]]
    assert np.isfinite(run.metrics["smoothness"]).all()
    assert (state.spent[:, 0] > 0).any()  # charged all the same


def test_what_members_of_a_session_could_unmask_is_not_recorded(written: Path, tmp_path: Path) -> None:
    spec = load_spec(written, [MASKED])
    with pytest.raises(SpecError, match=r"record_views: .*must be devices only, or aggregators only"):
        sf.run(spec, out=tmp_path / "run", record_views=("edge:1,device:8",))

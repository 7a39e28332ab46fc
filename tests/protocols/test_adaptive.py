"""Adaptive control: settings chosen on the way, a budget that is never passed, a run that resumes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from controlled_runs import played
from folder_damages import files_of
from scipy import stats

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.privacy_filter import squared_mu_of_exposure
from sfumato.protocols.adaptive.settings import step_size
from sfumato.protocols.adaptive.smoothness import SmoothnessEstimator
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.schedule.control.adaptive import RoundSettings, evenly_spaced_aggregations, round_plan
from sfumato.schedule.control.budget import Budget
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.simulation.checkpoint import load
from sfumato.simulation.run import run_rounds
from sfumato.spec.load import load_spec

SPEC = """
name: controlled
protocol: h2fdp
data: {source: synthetic, examples_per_device: 30, partition: {kind: iid}}
model: {kind: softmax, bias: false}
topology: {kind: tree, edges: 4, devices_per_edge: 4}
trust: {trusted_edges: [0, 2]}
training: {rounds: 6, steps_per_round: 8, edge_every: 2, batch_size: 5, learning_rate: 0.1}
privacy: {delta: 1.0e-5, clip: {kind: step, norm: 1.0}, noise: {multiplier: 3.0}}
control: {energy: 1.0, delay: 1.0, optimality_gap_weight: 1.0, optimality_gap_scale: 1.0, max_steps: 12,
    smoothness: 0.5}
evaluate_every: 100
"""

pytestmark = pytest.mark.usefixtures("no_report")


def spent_by_hand(plan, state: AdaptiveState, extra: float = 0.0) -> dict[tuple[int, int], float]:
    """Every device's charges towards every observer, added up from the settings that were played."""
    budget = Budget.of(plan)
    total: dict[tuple[int, int], float] = {}
    for number, setting in enumerate(state.history):
        one = round_plan(plan, setting)
        declared = one.releases.after(1)
        for device in draw_participants(one, number):
            for column, held in enumerate(budget.columns[int(budget.kinds[device])]):
                exposures = {e.bound_name: e for e in declared.exposures(held.unit, held.coalition)}
                cost = squared_mu_of_exposure(exposures[held.bound], "zero-out") + extra
                key = (int(device), column)
                total[key] = total.get(key, 0.0) + (cost if math.isfinite(held.budget) else extra)
    return total


@pytest.mark.parametrize("rule", ["spread", "stop"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_pair_passes_its_budget_and_all_rounds_are_charged(
    written: Path, tmp_path: Path, rule: str, seed: int
) -> None:
    run, state = played(written, tmp_path / "run", f"control.budget_policy={rule}", f"seed={seed}")
    plan = resolve_tree(load_spec(written, [f"seed={seed}"]))
    budget = Budget.of(plan)
    for (device, column), cost in spent_by_hand(plan, state).items():
        assert state.spent[device, column] == pytest.approx(cost, rel=1e-9)
        assert cost <= budget.fresh().budget[device, column] * (1 + 1e-9)
    report = {(g.unit, g.observer): g.epsilon for g in sf.account(load_spec(written)).guarantees}
    for name in run.metrics.columns:
        if name.startswith("epsilon:"):
            after = run.metrics[name].iloc[-1]
            before = max(e for (_, o), e in report.items() if o == name.split(":", 1)[1])
            assert after <= before * (1 + 1e-9)


def test_a_budget_that_is_spent_ends_the_run_below_it(written: Path, tmp_path: Path) -> None:
    changes = ("control.budget_policy=stop", "control.energy=0", "control.delay=0")
    _, state = played(written, tmp_path / "run", *changes)
    said, _, pair = state.ended.partition(", first that of ")
    assert said == "the privacy budget is spent"
    unit, _, observer = pair.partition(" towards ")
    assert state.steps < 48
    plan = resolve_tree(load_spec(written))
    account = replace(Budget.of(plan).fresh(), spent=state.spent)
    following = round_plan(plan, state.history[-1])
    chosen = draw_participants(following, state.round)
    budget, charge = Budget.of(plan), Budget.of(plan).charge(following, chosen)
    assert not account.allows(charge, chosen)
    # the pair named is one whose budget no other's is nearer to being passed than
    ratio = (account.spent[chosen] + charge) / account.budget[chosen]
    columns = {
        (f"device:{held.unit}", plan.releases.party_name(held.coalition[0])): column
        for columns in budget.columns.values()
        for column, held in enumerate(columns)
    }
    of_kind = budget.kinds[chosen] == budget.kinds[int(unit.removeprefix("device:"))]
    assert ratio[of_kind, columns[unit, observer]].max() == np.nanmax(ratio)
    assert np.nanmax(ratio) > 1


def test_spread_noise_lets_all_local_steps_be_done(written: Path, tmp_path: Path) -> None:
    run, state = played(written, tmp_path / "run")
    assert state.ended == "all local steps are done"
    assert state.steps == run.metrics["interval"].sum()
    assert 48 - state.steps < 4
    assert len(run.metrics) == state.round == len(state.history)


def test_budgets_are_those_of_the_spec_without_control(written: Path) -> None:
    """Uncontrolled, the same spec spends them: K_g rounds with everybody, whatever control will choose."""
    plan = resolve_tree(load_spec(written))
    budget = Budget.of(plan)
    usual = RoundSettings(8, 4, 4, 0.1, 1.0)
    charge = budget.charge(round_plan(plan, usual), np.arange(16))
    finite = np.isfinite(budget.fresh().budget)
    assert np.allclose(6 * charge[finite], budget.fresh().budget[finite])
    for held in budget.held:
        reported = sf.account(load_spec(written)).epsilon(
            held.unit, plan.releases.party_name(held.coalition[0])
        )
        expected = gaussian.epsilon(delta=1e-5, mu=math.sqrt(held.budget))
        assert reported == pytest.approx(expected) or reported == expected == math.inf


@pytest.mark.parametrize(("trusted", "untrusted"), [(1, 2), (3, 1), (4, 4)])
def test_a_round_is_charged_at_its_own_participation_and_noise(
    written: Path, trusted: int, untrusted: int
) -> None:
    """Towards the cloud: 1/(s z²) where s devices add noise, 1/z² where their trusted edge does."""
    plan = resolve_tree(load_spec(written))
    played = round_plan(plan, RoundSettings(8, trusted, untrusted, 0.1, 2.0))
    declared, aggregations = played.releases.after(1), 4
    for device, expected in ((0, aggregations / 36), (4, aggregations / (36 * untrusted))):
        (flow, _) = declared.exposures(device, (Party("node", 0, 0),))
        assert squared_mu_of_exposure(flow, "zero-out") == pytest.approx(expected)
    stds = [played.device_stds_of(3, np.array([4]))[0] / played.releases.steps[3].message_norm[1]]
    stds.append(
        played.releases.steps[3].node_std[1][0] / (played.releases.steps[3].message_norm[0] / trusted)
    )
    assert stds == pytest.approx([6.0, 6.0])  # what is played


def test_noised_estimates_cost_every_participant_every_round(written: Path, tmp_path: Path) -> None:
    changes = ("control.estimates={multiplier: 4.0, bound: 10.0}",)
    _, state = played(written, tmp_path / "run", *changes)
    plan = resolve_tree(load_spec(written))
    for (device, column), cost in spent_by_hand(plan, state, extra=1 / 16).items():
        assert state.spent[device, column] == pytest.approx(cost, rel=1e-9)
        assert cost <= Budget.of(plan).fresh().budget[device, column] * (1 + 1e-9)


def test_measured_smoothness_is_cut_off_and_noised_as_it_is_charged(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errs with probability below 1e-6 for the right scale, and rejects 2/3 and 3/2 of it."""
    plan = resolve_tree(load_spec(written, ["control.estimates={multiplier: 0.5, bound: 4.0}"]))
    assert plan.spec.control is not None
    estimator = SmoothnessEstimator(plan, plan.spec.control, None, None)  # type: ignore[arg-type]  # not asked
    devices, rounds = np.arange(16), 2000
    monkeypatch.setattr(
        SmoothnessEstimator, "_gradient_changes", lambda *_: np.where(devices % 2, np.inf, 2.0)
    )

    def estimate(number: int) -> float:
        learnt = SimpleNamespace(round=number, seen=SimpleNamespace(models=torch.zeros(2, 1)))
        return estimator.estimate(learnt, torch.zeros(1), devices)  # type: ignore[arg-type]

    away = np.array([estimate(number) for number in range(rounds)]) - 3.0  # of 2.0 and the bound
    assert abs(away.mean()) < 5 * 0.5 / math.sqrt(rounds)
    for scale, fits in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        square = float(((away / (0.5 * 4.0 / 4 * scale)) ** 2).sum())
        found = stats.chi2(rounds)
        assert (2 * min(found.cdf(square), found.sf(square)) > 2e-7) == fits


@pytest.mark.parametrize("steps", range(4, 20))
def test_edge_aggregations_keep_their_number_when_the_interval_changes(steps: int) -> None:
    found = evenly_spaced_aggregations(steps, 3)
    assert [a.tier for a in found] == [1, 1, 1, 0]
    assert found[-1].step == steps
    assert sum(a.local_steps for a in found) == steps
    assert max(a.local_steps for a in found) - min(a.local_steps for a in found) <= 1


def test_the_first_interval_is_drawn_and_later_ones_keep_their_range(written: Path, tmp_path: Path) -> None:
    firsts = set()
    for seed in range(4):
        run, _ = played(written, tmp_path / str(seed), f"seed={seed}")
        firsts.add(run.metrics["interval"].iloc[0])
        assert run.metrics["interval"].between(4, 12).all()
        assert (
            run.metrics[["participants_trusted", "participants_untrusted"]].isin([1, 2, 3, 4]).all(axis=None)
        )
    assert len(firsts) > 1


def test_the_theorem_s_step_sizes_follow_section_5_1(written: Path, tmp_path: Path) -> None:
    run, _ = played(written, tmp_path / "run", "control.step_size=theorem")
    intervals = run.metrics["interval"].to_numpy()
    last = np.concatenate([[intervals[0]], intervals[:-1]])
    gamma = np.minimum(1 / last, 1 / 6) / run.metrics["smoothness"].to_numpy()
    expected = gamma / np.sqrt(np.arange(len(intervals)) + 1)
    assert np.allclose(run.metrics["step_size"], expected)


RATE = "training.learning_rate={kind: inverse-sqrt, initial: 0.4}"


def test_a_stable_step_is_that_of_the_spec_up_to_one_over_beta(written: Path, tmp_path: Path) -> None:
    plan = resolve_tree(load_spec(written, [RATE]))
    for beta in (0.5, 4.0, 100.0):
        for number in range(8):
            stated = 0.4 / math.sqrt(number + 1)
            assert step_size(plan, number, 4, beta) == pytest.approx(min(stated, 1 / beta))
    off = resolve_tree(load_spec(written, [RATE, "control.step_size=scheduled"]))
    assert step_size(off, 3, 4, 1e9) == pytest.approx(0.2)


def test_a_cosine_ends_with_the_spec_s_rounds(written: Path) -> None:
    plan = resolve_tree(load_spec(written, ["training.learning_rate={kind: cosine, initial: 0.1, final: 0}"]))
    assert step_size(plan, 5, 4, 1.0) == step_size(plan, 6, 4, 1.0) == step_size(plan, 11, 4, 1.0) > 0


def test_a_known_bound_is_the_smoothness_from_the_first_round_on(written: Path, tmp_path: Path) -> None:
    for rule, first in (("stable", 1 / 40), ("theorem", None)):
        changes = ("control.bounds.smoothness=40", f"control.step_size={rule}")
        run, _ = played(written, tmp_path / rule, *changes)
        assert (run.metrics["smoothness"] == 40).all()
        if first is not None:
            assert run.metrics["step_size"].iloc[0] == pytest.approx(first)


def test_a_known_bound_and_paid_estimates_are_refused(written: Path) -> None:
    both = ["control.bounds.smoothness=40", "control.estimates={multiplier: 4.0, bound: 10.0}"]
    with pytest.raises(SpecError, match=r"control\.estimates: must be released with bounds\.smoothness"):
        load_spec(written, both)


def test_a_known_gradient_bound_is_in_the_diagnostics(written: Path, tmp_path: Path) -> None:
    usual, _ = played(written, tmp_path / "usual")
    known, _ = played(written, tmp_path / "known", "control.bounds.gradient=0.1")
    beyond, _ = played(written, tmp_path / "beyond", "control.bounds.gradient=7.0")
    assert (known.metrics["gap_drift"] < usual.metrics["gap_drift"]).all()
    assert known.metrics["gap_noise"].equals(usual.metrics["gap_noise"])  # noise is sized by the clip
    assert beyond.metrics["gap_drift"].equals(usual.metrics["gap_drift"])  # a gradient is clipped anyway


@pytest.mark.parametrize("rule", ["spread", "stop"])
def test_a_run_without_a_first_round_says_so(written: Path, tmp_path: Path, rule: str) -> None:
    changes = ["control.estimates={multiplier: 0.01, bound: 10.0}", f"control.budget_policy={rule}"]
    said = "control: leaves no first round: the privacy budget is spent, first that of device:"
    with pytest.raises(SpecError, match=said):
        sf.run(load_spec(written, changes), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()  # no folder that would be taken for that of a killed run


def test_a_run_without_a_first_round_does_not_replace_another(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    sf.run(load_spec(written), out=folder)
    before = {name: (folder / name).read_bytes() for name in files_of(folder)}
    spent = load_spec(written, ["control.estimates={multiplier: 0.01, bound: 10.0}"])
    with pytest.raises(SpecError, match="leaves no first round"):
        sf.run(spent, out=folder, force=True)
    assert {name: (folder / name).read_bytes() for name in files_of(folder)} == before


def test_part_one_changes_neither_energy_nor_delay(written: Path, tmp_path: Path) -> None:
    on, _ = played(written, tmp_path / "on", "control.bounds.smoothness=40")
    off, _ = played(written, tmp_path / "off", "control.step_size=scheduled")
    assert not on.metrics["step_size"].equals(off.metrics["step_size"])
    for column in ("energy_j", "delay_s", "interval", "noise_factor"):
        assert on.metrics[column].equals(off.metrics[column])


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(written: Path, tmp_path: Path) -> None:
    whole, state = played(written, tmp_path / "whole")
    spec = load_spec(written)
    for _ in itertools.islice(run_rounds(spec, out=tmp_path / "part"), 3):
        pass
    for _ in run_rounds(spec, out=tmp_path / "part", resume=True):
        pass
    held = load(tmp_path / "part")
    assert held is not None
    again = sf.run(spec, out=tmp_path / "part", resume=True)
    columns = [c for c in whole.metrics.columns if c != "wall_time_s"]
    assert whole.metrics[columns].equals(again.metrics[columns])
    assert np.array_equal(held.position.state.spent, state.spent)
    assert held.position.state.inner.model.equal(state.inner.model)


def test_dearer_energy_means_longer_intervals(written: Path, tmp_path: Path) -> None:
    means = []
    for alpha in ("1e-3", "1e6"):
        run, _ = played(written, tmp_path / alpha, f"control.energy={alpha}", "control.delay=0")
        means.append(run.metrics["interval"].iloc[1:-1].mean())
    assert means[0] < means[1]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("protocol=hfl", None),
        ("training.participation={kind: fixed, count: 2}", "training.participation"),
        ("control.max_steps=3", "control.max_steps"),
        ("control.energy=-1", "control.energy"),
        ("control.smoothness=0", "control.smoothness"),
    ],
)
def test_what_control_cannot_steer_is_refused(written: Path, change: str, place: str | None) -> None:
    if place is None:
        resolve_tree(load_spec(written, [change]))  # without noise there is no limit to hold
        return
    with pytest.raises(SpecError, match=place.replace(".", r"\.")):
        resolve_tree(load_spec(written, [change]))


def test_the_same_noise_at_trusted_and_untrusted_edges_is_refused(written: Path) -> None:
    """One charge would stand for both kinds of edge, though fewer take part in one than in the other."""
    owners = ", ".join(f"edge:{edge}/devices" for edge in range(4))
    noise = f"privacy.noise={{sources: [{{owners: [{owners}], multipliers: [3.0, 3.0]}}]}}"
    with pytest.raises(SpecError, match="must not be the same at trusted and untrusted edges"):
        resolve_tree(load_spec(written, [noise]))
    alike = resolve_tree(load_spec(written, [noise, "trust.trusted_edges=[]"]))
    budget, fewer = Budget.of(alike), round_plan(alike, RoundSettings(8, 1, 2, 0.1, 1.0))
    charge = budget.charge(fewer, np.arange(16))
    for device in (0, 5):
        column = [h.coalition[0].kind for h in budget.columns[int(budget.kinds[device])]].index("node")
        (flow, _) = fewer.releases.after(1).exposures(device, (Party("node", 0, 0),))
        assert charge[device, column] == pytest.approx(squared_mu_of_exposure(flow, "zero-out"))


def test_raw_messages_at_trusted_edges_are_in_no_diagnostic(written: Path, tmp_path: Path) -> None:
    trusted, _ = played(written, tmp_path / "trusted", "trust.trusted_edges=[0, 1, 2, 3]")
    assert trusted.metrics["z1"].isna().all()
    mixed, _ = played(written, tmp_path / "mixed")
    assert mixed.metrics["z1"].notna().all()
    open_, _ = played(written, tmp_path / "open", "protocol=hfl", "privacy.noise=none")
    assert open_.metrics["z1"].notna().all()  # nothing is protected
    assert open_.metrics["z1"].iloc[0] > 0  # later rounds have one participant an edge


def test_control_is_for_edges_under_a_cloud() -> None:
    with pytest.raises(SpecError, match="edges under the cloud"):
        resolve_tree(load_spec("three-tier", ["control={smoothness: 1.0}"]))


TOGETHER = 'watch=["cloud", "cloud,edge:1", "device:5,device:12"]'


@pytest.mark.parametrize("rule", ["spread", "stop"])
def test_coalitions_in_watch_have_a_budget(written: Path, tmp_path: Path, rule: str) -> None:
    """Every device's charges, added up from the settings that were played and its own exposures."""
    run, state = played(written, tmp_path / "run", f"control.budget_policy={rule}", TOGETHER)
    plan = resolve_tree(load_spec(written, [TOGETHER]))
    budget = Budget.of(plan)
    first = max(map(len, budget.columns.values()))
    assert budget.fresh().budget.shape == (16, first + 2)
    allowed = {}
    spent = np.zeros((16, 2))
    for column, held in enumerate(budget.together):
        members = {party.index for party in held.coalition if party.kind == "device"}
        for device in set(range(16)) - members:
            exposures = plan.releases.exposures(device, held.coalition)
            allowed[device, column] = min(squared_mu_of_exposure(e, "zero-out") for e in exposures)
    for number, setting in enumerate(state.history):
        one = round_plan(plan, setting)
        for device in draw_participants(one, number).tolist():
            for column, held in enumerate(budget.together):
                if (device, column) in allowed:
                    exposures = one.releases.after(1).exposures(device, held.coalition)
                    bound = held.bounds[plan.tree.leaf_of(device)]
                    found = next(e for e in exposures if e.bound_name == bound)
                    spent[device, column] += squared_mu_of_exposure(found, "zero-out")
    assert state.spent[:, first:] == pytest.approx(spent)
    assert spent[5, 1] == spent[12, 1] == 0 < spent[4, 1]
    for (device, column), most in allowed.items():
        assert budget.fresh().budget[device, first + column] == pytest.approx(most)
        assert spent[device, column] <= most * (1 + 1e-9)
    stated = sf.account(load_spec(written, [TOGETHER]), observer="cloud,edge:1").guarantees
    assert 0 < run.metrics["epsilon:cloud,edge:1"].iloc[-1] <= max(g.epsilon for g in stated) * (1 + 1e-9)


def test_the_budget_of_a_coalition_is_what_the_spec_without_control_spends(written: Path) -> None:
    for observer in ("cloud,edge:1", "edge:1,cloud"):
        for unit in ("device:0", "device:4"):
            held = sf.account(load_spec(written, [TOGETHER]), unit=unit, observer=observer)
            alone = sf.account(load_spec(written, ["control=null"]), unit=unit, observer=observer)
            assert held.guarantees[0].epsilon == alone.guarantees[0].epsilon < math.inf


def test_a_run_may_end_with_the_budget_of_a_coalition(written: Path) -> None:
    budget = Budget.of(resolve_tree(load_spec(written, [TOGETHER])))
    assert budget.pair_in_words(4, max(map(len, budget.columns.values()))) == "device:4 towards cloud,edge:1"


def test_the_coalitions_of_a_controlled_run_cannot_change(written: Path, tmp_path: Path) -> None:
    for _ in itertools.islice(run_rounds(load_spec(written, [TOGETHER]), out=tmp_path / "run"), 1):
        pass
    with pytest.raises(SpecError, match="every coalition in watch has a budget"):
        sf.run(load_spec(written), out=tmp_path / "run", resume=True)
    other = 'watch=["edge:1,cloud", "device:12,device:5"]'
    run = sf.run(load_spec(written, [other]), out=tmp_path / "run", resume=True)
    assert len(run.metrics) > 1


def test_no_filter_holds_another_coalition(written: Path) -> None:
    report = sf.account(load_spec(written), unit="device:0", observer="cloud,device:5")
    assert report.guarantees[0].epsilon == math.inf
    assert "filter" in report.guarantees[0].why

"""Audits of records: below the accountant everywhere, near it where the attack is the worst case."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audit_worlds import groups_plan, hospitals_plan, records_plan
from scipy import stats

import sfumato
from sfumato.auditing import audit_pair
from sfumato.auditing.harness import TargetDraw
from sfumato.auditing.mixture_ratio import fit_mixture_test
from sfumato.auditing.record_canary import RecordCanary, canary_of_tree
from sfumato.cli import main
from sfumato.data.partition import Partition
from sfumato.errors import SpecError
from sfumato.protocols.tree.local_work import batches_of
from sfumato.schedule.base import Plan
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan

TRIALS = 4_000
HOSPITALS = "examples/hospitals/hospitals.yaml"


def ratios_of(plan: Plan, trials: int) -> list[float]:
    """Audit records towards their own edge, the cloud above a trusted edge, and a peer: lower over upper."""
    ratios = []
    for unit, observer in [("record:4", "edge:1"), ("record:0", "cloud"), ("record:0", "device:1")]:
        found = audit_pair(plan, unit, observer, trials=trials)
        assert found.holds, found
        assert found.unit == unit
        ratios.append(found.lower.epsilon / found.upper)
    return ratios


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"clip": "step", "training": {"global_update": "resend"}},
        {"training": {"participation": {"kind": "poisson", "rate": 0.5}}},
        {"privacy": {"neighbours": "replace"}},
        {"training": {"batches": "shuffled"}},
        {"transport": {"devices_to_edge": "secure-aggregation"}, "faults": {"dropout_rate": 0.2}},
    ],
    ids=["update", "step, resend", "participation", "replace", "shuffled", "masked, dropouts"],
)
def test_observers_in_a_tree_hold(sections: dict[str, Any]) -> None:
    often = {"data": {"examples_per_device": 4}}
    assert max(ratios_of(records_plan(**{**often, **sections}), trials=1_000)) > 0.05


@pytest.mark.parametrize(
    ("privacy", "ratio"),
    [
        ({}, 0.4),
        ({"noise": {"multiplier": 0.8, "at": "step"}}, 0.4),
        ({"neighbours": "replace"}, 0.5),
        ({"neighbours": "replace", "noise": {"multiplier": 0.8, "at": "step"}}, 0.5),
    ],
    ids=["R2", "R3", "R2, replace", "R3, replace"],
)
def test_clipped_examples_are_found_within_a_factor(privacy: dict[str, Any], ratio: float) -> None:
    """Noise on messages or at the one local step of each: the attack is the pair that is charged."""
    found = audit_pair(hospitals_plan(privacy=privacy), "record:0", "cloud", trials=TRIALS)
    print(f"ε ≥ {found.lower.epsilon:.3f} of {found.upper:.3f}")
    assert ratio * found.upper < found.lower.epsilon <= found.upper


def test_clipped_examples_hold_under_masks_with_dropouts() -> None:
    """The master of five hospitals receives their sum; three of them at least are in it."""
    masked = {
        "transport": {"devices_to_cloud": "secure-aggregation"},
        "faults": {"dropout_rate": 0.1},
        "data": {"examples_per_device": 4},
    }
    found = audit_pair(hospitals_plan(**masked), "record:0", "cloud", trials=TRIALS)
    print(f"ε ≥ {found.lower.epsilon:.3f} of {found.upper:.3f}")
    assert 0.3 * found.upper < found.lower.epsilon <= found.upper


def test_the_public_sees_a_record_behind_the_noise_of_all_hospitals() -> None:
    """Noise on messages adds up over hospitals; the lower bounds differ as the upper ones do."""
    plan = hospitals_plan(data={"examples_per_device": 4})
    cloud, public = (audit_pair(plan, "record:0", who, trials=TRIALS) for who in ("cloud", "public"))
    assert cloud.holds
    assert public.holds
    assert cloud.lower.epsilon > public.upper


@pytest.mark.parametrize("clip", ["update", "example"])
def test_a_record_in_every_batch_is_a_plain_gaussian(clip: str) -> None:
    """Batches as large as the data: nothing is drawn, and ε = 8 is met to fifteen percent."""
    plan = hospitals_plan(
        data={"examples_per_device": 2},
        training={"rounds": 1},
        privacy={"clip": {"kind": clip, "norm": 1.0}, "noise": {"epsilon": 8.0, "for": "cloud"}},
    )
    found = audit_pair(plan, "record:0", "cloud", trials=20_000)
    assert found.upper == pytest.approx(8.0, rel=1e-6)
    assert 0.85 * 8 <= found.lower.epsilon <= 8


@pytest.mark.parametrize("at", [{}, {"at": "step"}])
def test_more_steps_a_message_hold_with_momentum(at: dict[str, str]) -> None:
    plan = hospitals_plan(
        data={"examples_per_device": 4},
        training={"local_steps": 3, "momentum": 0.5},
        privacy={"noise": {"multiplier": 0.8, **at}},
    )
    found = audit_pair(plan, "record:0", "cloud", trials=1_000)
    assert 0 < found.lower.epsilon <= found.upper


@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "adam"},
        {"weight_decay": 0.1},
        {"drift_correction": {"kind": "fedprox", "mu": 1.0}},
    ],
)
def test_noise_of_steps_that_do_not_add_up_is_not_audited(training: dict[str, Any]) -> None:
    """With noise on messages of clipped updates the same steps are: there they change nothing."""
    noise = {"noise": {"multiplier": 0.8, "at": "step"}}
    plan = hospitals_plan(data={"examples_per_device": 4}, training=training, privacy=noise)
    with pytest.raises(SpecError, match="the sum of its noised steps"):
        audit_pair(plan, "record:0", "cloud", trials=1_000)
    plan = hospitals_plan(training=training, privacy={"clip": {"kind": "update", "norm": 1.0}})
    assert audit_pair(plan, "record:0", "cloud", trials=1_000).holds


def tree(plan: Plan) -> TreePlan:
    assert isinstance(plan, TreePlan)
    return plan


def test_the_canary_is_drawn_as_the_runtime_draws_records() -> None:
    """Messages of the canary against those that the batches of 12 x 100 devices amount to."""
    plan = tree(records_plan("step", training={"momentum": 0.5}))
    canary = canary_of_tree(plan, 0, "zero-out")
    assert canary is not None
    assert canary.weights[0] == pytest.approx((1.5 / 2.5, 1 / 2.5))
    played, rest = canary.sample(np.random.default_rng(1), 1200)
    assert (rest == -1).all()
    every = np.arange(12 * 20, dtype=np.int64)
    partition = Partition(every, np.arange(0, len(every) + 1, 20, dtype=np.int64))
    real = []
    for number in range(100):
        batches = batches_of(plan, partition, np.arange(12), number)
        valid = np.arange(batches.width) < batches.counts.numpy()[..., None]
        here = ((batches.rows.numpy() % 20 == 0) & valid).any(axis=2)  # the first record of every device
        whole = here.reshape(12, 3, 2)
        real.append(np.where(whole[..., 0], 1.0, np.where(whole[..., 1], -1 + 2 / 2.5, -1.0)))
    found = np.concatenate(real).T
    for level in (-1.0, -1 + 2 / 2.5, 1.0):
        counts = [int(np.isclose(values, level).sum()) for values in (played, found)]
        table = [counts, [played.size - counts[0], found.size - counts[1]]]
        assert stats.fisher_exact(table).pvalue > 1e-4


def test_listed_messages_are_those_of_two_worlds() -> None:
    canary = RecordCanary(0.25, ((0.5, 0.5), (1.0,)), "step", "zero-out")
    other, present = canary.likeliest_messages(np.random.default_rng(0), answers=False)
    assert other.sent.T.tolist() == [[-1.0, -1.0]]
    chances = {tuple(sent): chance for sent, chance in zip(present.sent.T, present.chances, strict=True)}
    assert chances[-1.0, -1.0] == pytest.approx(0.75**3, abs=0.01)
    assert chances[0.0, 1.0] == pytest.approx(0.75 * 0.25**2, abs=0.01)
    _, answered = canary.likeliest_messages(np.random.default_rng(0), answers=True)
    assert (0.0, -1.0) not in set(map(tuple, answered.sent.T))


def test_the_ratio_of_a_mixture_is_exact() -> None:
    rng = np.random.default_rng(2)
    x = 3 * rng.standard_normal((1, 200_000))
    draw = TargetDraw(0.5, visible=False)
    shifts, chances = (np.zeros((1, 1)), np.array([[0.0, 6.0]])), (np.ones(1), np.array([0.75, 0.25]))
    test = fit_mixture_test(x, x + 3.0, shifts, chances, draw)
    seen = np.array([[-4.0, 0.0, 5.0]])
    law = stats.norm(0, 3).pdf
    absent, rest, moved = law(seen[0] - 3), law(seen[0]), law(seen[0] - 6)
    wanted = np.log((absent + 0.75 * rest + 0.25 * moved) / (absent + rest))
    assert test.scores(seen, np.ones(3, dtype=bool)) == pytest.approx(wanted, abs=0.03)


def test_the_command_audits_records(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [HOSPITALS, "--trials", "300", "--set", "training.rounds=3", "--json"]
    assert main(["audit", *arguments]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["observer"] for row in printed["findings"]] == ["cloud", "device:1"]
    assert {row["unit"] for row in printed["findings"]} == {"record:0"}
    assert all(row["holds"] and row["one_run"] is None for row in printed["findings"])


def test_both_units_are_audited_side_by_side() -> None:
    spec = records_plan(privacy={"unit": "both"}).spec
    report = sfumato.audit(spec, observers=["cloud"], trials=300)
    assert [row.unit.partition(":")[0] for row in report.findings] == ["device", "record"]
    assert report.holds
    examples = hospitals_plan(privacy={"unit": "both"}).spec  # a device has no guarantee there
    units = [row.unit for row in sfumato.audit(examples, observers=["cloud"], trials=300).findings]
    assert units == ["record:0"]


def test_what_cannot_be_audited_for_records_is_refused() -> None:
    with pytest.raises(SpecError, match="a whole device"):
        sfumato.audit(hospitals_plan(privacy={"unit": "device"}).spec, observers=["cloud"])
    with pytest.raises(SpecError, match="global_update"):
        audit_pair(records_plan(training={"global_update": "resend"}), "record:0", "cloud")


def record_rings(
    clip: str = "update",
    noise: dict[str, Any] | None = None,
    *,
    training: dict[str, Any] | None = None,
    privacy: dict[str, Any] | None = None,
    **sections: Any,
) -> Plan:
    """Two groups of seven and six workers that share one; twenty records each, one of ten in a step."""
    lists = [[0, 1, 2, 3, 4, 5, 6], [6, 7, 8, 9, 10, 11]]
    stated: dict[str, Any] = {
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "groups", "structure": "list", "groups": lists},
        "trust": {"trusted_aggregators": []},
        "privacy": {"unit": "record", "clip": {"kind": clip, "norm": 1.0}, "noise": noise or MESSAGE},
        "training": {"rounds": 10, "batches": "poisson", "merge_every": 1, "participation": {"kind": "all"}},
    }
    stated["training"] |= training or {}
    stated["privacy"] |= privacy or {}
    return groups_plan(**stated | sections)


MESSAGE, LOUD, STEP = {"multiplier": 1.5}, {"multiplier": 0.8}, {"multiplier": 0.8, "at": "step"}
QUIET = {"multiplier": 0.6}
TRUSTED = {"trusted_aggregators": 1.0}
IN_GROUPS: dict[str, tuple[Plan, str, str, float]] = {
    "R1": (record_rings(), "record:0", "master:0", 0.3),
    "R2": (record_rings("example", LOUD), "record:0", "master:0", 0.25),
    "R2, replace": (
        record_rings("example", LOUD, privacy={"neighbours": "replace"}), "record:0", "master:0", 0.35
    ),
    "R3": (record_rings("example", STEP), "record:0", "master:0", 0.3),
    "intervals": (
        record_rings(protocol="dp-ogl-local", training={"merge_every": 2}), "record:0", "master:0", 0.35
    ),
    "two groups": (record_rings(), "record:6", "master:0,master:1", 0.4),
    "trusted masters": (record_rings(trust=TRUSTED), "record:0", "device:1", 0.3),
    "peer": (record_rings(noise=QUIET), "record:0", "device:1", 0.2),
    "workers drawn": (
        record_rings(noise=QUIET, training={"participation": {"kind": "poisson", "rate": 0.7}}),
        "record:0", "device:1", 0.02,
    ),
    "cohorts": (
        record_rings(noise=QUIET, training={"participation": {"kind": "fixed", "count": 4}}),
        "record:0", "device:1", 0.02,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_GROUPS)
def test_records_in_groups(name: str) -> None:
    plan, unit, observer, ratio = IN_GROUPS[name]
    found = audit_pair(plan, unit, observer, trials=TRIALS)
    print(f"{name}: ε ≥ {found.lower.epsilon:.3f} of {found.upper:.3f}")
    assert ratio * found.upper < found.lower.epsilon <= found.upper


def test_shuffled_batches_that_are_charged_as_drawn_are_found() -> None:
    """The account of Poisson batches, the rounds of shuffled ones."""
    plan = record_rings(noise={"multiplier": 1.0}, training={"rounds": 4})
    assert isinstance(plan, GroupPlan)
    training = plan.spec.training.model_copy(update={"batches": "shuffled"})
    broken = replace(plan, spec=plan.spec.model_copy(update={"training": training}))
    broken.__dict__["releases"] = plan.releases
    assert not audit_pair(broken, "record:0", "master:0", trials=20_000).holds


def test_half_the_noise_is_found() -> None:
    plan = record_rings("example", {"multiplier": 0.8}, training={"rounds": 20})
    assert isinstance(plan, GroupPlan)
    broken = replace(plan, multipliers=plan.multipliers / 2)
    broken.__dict__["releases"] = plan.releases
    assert not audit_pair(broken, "record:0", "master:0", trials=20_000).holds


def test_shuffled_records_in_groups_count_as_in_every_message() -> None:
    plan = groups_plan(training={"participation": {"kind": "all"}}, privacy={"unit": "record"})
    found = audit_pair(plan, "record:0", "device:1", trials=TRIALS)
    assert 0.3 * found.upper < found.lower.epsilon <= found.upper
    assert not math.isinf(found.upper)

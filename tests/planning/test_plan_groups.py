"""Plans for overlapping groups: every target confirmed by account, with less noise than one multiplier."""

import math

import numpy as np
import pytest
import yaml

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.planning import group_descent
from sfumato.planning.exposure_response import responses_of
from sfumato.planning.noise_response import global_variance, measure_response
from sfumato.planning.problem import pose_problem, resolve_to_plan
from sfumato.planning.targets import EpsilonTarget, observed_pair, pair_charge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve import resolve

pytestmark = [pytest.mark.needs("plan"), pytest.mark.usefixtures("coarse_losses")]

DRAWN = "training.participation={kind: poisson, rate: 0.5}"


def chain(sizes=(8, 4), *overrides, shared=2, rounds=12, merge_every=4):
    """Groups of these sizes in a row, each of which shares some workers with the next."""
    groups, start = [], 0
    for size in sizes:
        groups.append(list(range(start, start + size)))
        start += size - shared
    raw = {
        "name": "chain",
        "protocol": "dp-ogl",
        "data": {"source": "synthetic", "examples_per_device": 10},
        "model": "softmax",
        "topology": {"kind": "groups", "structure": "list", "devices": start + shared, "groups": groups},
        "training": {
            "rounds": rounds,
            "local_steps": 1,
            "batch_size": 5,
            "learning_rate": 0.1,
            "merge_every": merge_every,
        },
        "privacy": {"delta": 1e-5, "clip": {"kind": "update", "norm": 0.1}, "noise": {"multiplier": 1.0}},
    }
    return sf.load_spec(raw, list(overrides))


def judged(planned, kind):
    """The largest ε towards ``kind`` that account reports of the spec as a file brings it back."""
    relation = {"peer": "device in a common group", "edge": "master"}[kind]
    again = sf.load_spec(yaml.safe_load(sf.dump_spec(planned.spec)))
    rows = [row for row in sf.account(again).guarantees if relation in row.relation.words and not row.trusted]
    return max(row.epsilon for row in rows)


def multipliers(planned):
    return {owner: s.multiplier for s in planned.sources for owner in s.owners}


def test_two_unequal_groups_are_the_closed_form():
    """The shared workers' releases of both groups have n/z0² + n/z1² = μ²; a release costs (z/n_m)²."""
    planned = sf.plan(chain((8, 4)), {"peer": 5.0})
    mu = gaussian.mu(epsilon=5.0, delta=1e-5)
    found = multipliers(planned)
    # minimise z0²/8² + z1²/4²: z0²/z1² = 8/4
    assert found["master:0"] == pytest.approx(math.sqrt(12 * (1 + 8 / 4) / (8 / 4) * 2) / mu, rel=0.01)
    assert found["master:1"] == pytest.approx(math.sqrt(12 * 1.5) / mu, rel=0.01)
    assert planned.saved == pytest.approx(1 - (1 / 8 + 1 / 4) ** 2 / (2 * (1 / 8**2 + 1 / 4**2)), abs=2e-3)
    assert 5.0 * (1 - 1e-3) <= judged(planned, "peer") <= 5.0


def test_the_noise_is_that_of_the_groups_models():
    plan = resolve(chain((8, 4), "privacy.noise={multiplier: [2.0, 3.0]}"))
    stds = 0.1 * np.array([2.0, 3.0]) / np.array([8, 4])
    assert global_variance(plan) == pytest.approx(12 * np.mean(stds**2))


@pytest.mark.parametrize("trust", [[], ["trust.trusted_aggregators=[]"]], ids=["masters", "workers"])
def test_one_multiplier_for_groups_that_are_alike(trust):
    """A ring has one source; the plan is what `noise: {epsilon, for}` finds."""
    ring = ["topology={kind: groups, structure: ring, groups: 4, devices: 12}", DRAWN, *trust]
    planned = sf.plan(chain((8, 4), *ring), {"peer": 8.0})
    (source,) = planned.sources
    assert len(source.owners) == 4
    calibrated = resolve(chain((8, 4), *ring, "privacy.noise={epsilon: 8, for: peer}"))
    assert source.multiplier <= calibrated.multipliers[0] * (1 + 1e-12)
    assert planned.noise == planned.own_noise
    assert 7.99 <= judged(planned, "peer") <= 8.0


@pytest.mark.parametrize(
    ("overrides", "targets"),
    [
        (["trust.trusted_aggregators=[]"], {"peer": 6.0, "master:0": 3.0}),
        ([], {"peer": 4.0, "other-edge": 1.0}),
        (["trust.trusted_aggregators=[]"], {"peer": 4.0, "device:5,master:1": 9.0}),
        ([DRAWN], {"peer": 4.0, "other-edge": 1.0}),
        (["privacy.unit=record", "training.batches=poisson"], {"peer": 2.0}),
        (["protocol=dp-ogl-local"], {"device": 3.0}),
        (["protocol=dp-ogl+"], {"other-device": 9.0}),
    ],
    ids=["masters", "two", "coalition", "drawn", "records", "local", "plus"],
)
def test_every_target_holds_by_account_and_one_binds(overrides, targets):
    planned = sf.plan(chain((8, 5, 4), *overrides, rounds=6, merge_every=2), targets)
    again = sf.load_spec(yaml.safe_load(sf.dump_spec(planned.spec)))
    plan = resolve(again)
    found = {}
    for row in planned.targets:
        report = sf.account(again, unit=row.unit, observer=row.observer).guarantees[0]
        found[row.target.observer] = report.epsilon
        assert row.epsilon == report.epsilon <= row.target.epsilon
    assert max(found[name] / epsilon for name, epsilon in targets.items()) >= 1 - 1e-3
    assert planned.noise == math.sqrt(global_variance(plan))
    assert planned.noise <= planned.own_noise * (1 + 1e-9)


def test_no_other_multipliers_have_less_noise():
    """All ratios of three multipliers on a grid, each scaled to meet the targets."""
    spec, targets = chain((9, 6, 4), rounds=8), {"peer": 6.0, "other-device": 2.5}
    planned = sf.plan(spec, targets)
    stated = [EpsilonTarget(name, epsilon) for name, epsilon in targets.items()]
    least = math.inf
    for one in (0.7, 1.0, 1.4):
        for two in (0.7, 1.0, 1.4):
            noise = f"privacy.noise={{multiplier: [1.0, {one}, {two}]}}"
            start = resolve(chain((9, 6, 4), noise, rounds=8))
            least = min(least, global_variance(group_descent.scale_to_targets(start, stated)))
    assert planned.noise**2 <= least * (1 + 1e-3)
    assert not planned.notes


@pytest.mark.parametrize("overrides", [[], [DRAWN], [DRAWN, "trust.trusted_aggregators=[]"]])
def test_a_held_set_answers_what_a_ledger_would(overrides):
    """ε of the responses at some multipliers is that of the exposures that a ledger has there."""
    spec = chain((8, 5, 4), *overrides)
    problem = pose_problem(spec, [EpsilonTarget("peer", 4.0)])
    response = measure_response(problem.base, problem.sources)
    intensities = np.array([3.0, 5.0, 4.0]) ** 2
    made = group_descent.with_intensities(problem.base, problem.sources, intensities)
    pair = observed_pair(made, 6, (Party("device", 0, 12),), 1)
    for exposure in pair_charge(made, pair).exposures:
        expected = made.releases.bound_epsilon(exposure, delta=1e-5, neighbours="zero-out").epsilon
        found = min(way.epsilon(intensities) for way in responses_of(response, pair, exposure))
        assert found == pytest.approx(expected, rel=1e-6)


def refused(spec, targets, **more):
    with pytest.raises(SpecError) as error:
        sf.plan(spec, targets, **more)
    return str(error.value)


def test_targets_that_no_noise_meets_name_the_pair():
    message = refused(chain((8, 4)), {"master:0": 4.0})
    assert "master:0 is trusted with the raw updates of device:0 and 1 more" in message
    message = refused(chain((8, 4), "protocol=dp-ogl+"), {"peer": 4.0})
    assert "to the updates of device:0" in message
    assert "before peer device:1 receives them" in message


def test_what_groups_do_not_plan():
    assert "runs on groups, whose energy is not planned" in refused(chain(), {"peer": 4.0}, minimize="energy")
    assert "adds no noise" in refused(
        chain((8, 4), "protocol=ms-fedavg", "training.merge_every=null"), {"peer": 4.0}
    )
    assert "names no pair" in refused(chain(), {"cloud": 4.0})
    apart = "topology={kind: groups, structure: clusters, groups: 2, devices: 8}"
    assert "needs no noise" in refused(chain((8, 4), apart), {"other-device": 4.0})


def test_the_noise_allowed():
    needed = sf.plan(chain(), {"peer": 4.0}).noise
    assert "targets: peer=4: conflicts with noise=" in refused(chain(), {"peer": 4.0, "noise": needed / 2})
    assert sf.plan(chain(), {"peer": 4.0, "noise": needed * 1.01}).noise == needed


def test_a_named_party_has_a_source_of_its_own():
    plan = resolve_to_plan(chain((5, 5, 5), "trust.trusted_aggregators=[]"))
    problem = pose_problem(plan.spec, [EpsilonTarget("master:0", 4.0)])
    assert [source.owners for source in problem.sources] == [
        ("master:0/devices",),
        ("master:1/devices",),
        ("master:2/devices",),
    ]
    problem = pose_problem(plan.spec, [EpsilonTarget("peer", 4.0)])
    assert len(problem.sources) == 2


def test_workers_of_a_class_are_counted_whichever_of_them_is_named():
    """The unit of a class may be of another kind than the first: here its rate of records is the largest."""
    unequal = ["data={source: digits, partition: {kind: iid, size_sigma: 1.5}}", "privacy.unit=record"]
    unequal += ["training.batches=poisson", "trust.trusted_aggregators=[0, 1]"]
    spec = chain((2, 2), *unequal, shared=0, rounds=3, merge_every=3)
    with pytest.raises(SpecError, match=r"raw updates of device:\d and 3 more"):
        sf.plan(spec, targets={"own-edge": 2.0})

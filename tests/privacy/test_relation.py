"""Neighbouring relations, and denominators that depend on who is drawn: one relation for every observer."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tree_facts import make_ledger

from sfumato import account, load_spec
from sfumato.errors import SpecError
from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Release, total_mu_squared
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.shape import DeviceClasses

PUBLIC, CLOUD, EDGE = (Party("public"),), (Party("node", 0, 0),), (Party("node", 1, 0),)
DELTA = 1e-5


def clipped_hdp(*overrides):
    """Zones of 2 and 100 devices that all noise what they send, and divide by 2 at least."""
    return load_spec(
        {
            "name": "clipped",
            "protocol": "hdp",
            "topology": {"kind": "tree", "edges": 2, "devices_per_edge": [2, 100]},
            "data": {"source": "digits"},
            "model": {"kind": "softmax"},
            "training": {
                "rounds": 1,
                "local_steps": 1,
                "batch_size": 10,
                "learning_rate": 0.1,
                "denominator": {"kind": "clipped", "min_weight": 2},
            },
            "privacy": {
                "clip": {"kind": "update", "norm": 1.0},
                "noise": {"multiplier": 1.0, "placement": {"device": 1.0}},
            },
        },
        overrides,
    )


# --- a release -----------------------------------------------------------------------------------------


def test_a_release_knows_how_far_it_moves():
    fixed = Release("", "", 2.0, 3.0, 4.0, True)
    assert [fixed.sensitivity(n) for n in ("zero-out", "remove", "replace")] == [5.0, 5.0, 7.0]
    clipped = Release("", "", 2.0, 3.0, 4.0, True, divides_by_drawn=True)
    assert [clipped.sensitivity(n) for n in ("zero-out", "remove", "replace")] == [5.0, 7.0, 7.0]
    assert fixed.mu_squared("replace") == pytest.approx(49 / 4)


def test_a_release_without_noise_is_unprotected_if_anything_moves_it():
    raw, others, silent = (Release("", "", *s, 0.0, True) for s in ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0)))
    assert raw.is_unprotected
    assert others.is_unprotected
    assert not silent.is_unprotected
    assert total_mu_squared([raw, silent], "zero-out") == math.inf
    assert total_mu_squared([silent], "zero-out") == 0.0


# --- denominators that depend on who is drawn ------------------------------------------------------------


def test_a_small_zone_does_not_hide_behind_noise_that_a_large_one_divides_away():
    """The figure of 0.1 was .72: it divided the noise of all zones by the least denominator."""
    report = account(clipped_hdp())
    share, noise = 1 / (2 * 2), 2 / (2 * 2) ** 2 + 100 / (2 * 100) ** 2
    mu = share / math.sqrt(noise)
    assert report.epsilon(0, "public") == pytest.approx(2.91, abs=5e-3)
    rows = {g.observer: g for g in report.guarantees if g.unit == "device:0"}
    assert rows["public"].bounds["flow"].epsilon == pytest.approx(report.epsilon(0, "public"))
    declared = report.plan.releases
    assert total_mu_squared(declared.exposures(0, PUBLIC)[0].releases, "zero-out") == pytest.approx(mu**2)


def test_the_relation_means_the_same_for_every_observer():
    """A coalition with the edge, which knows the denominator, never learns less than the cloud alone."""
    report = account(clipped_hdp("training.participation={kind: poisson, rate: 0.5}"))
    assert {g.neighbours for g in report.guarantees} == {"zero-out"}
    assert report.epsilon(0, "cloud,edge:0") >= report.epsilon(0, "cloud")


def test_where_everybody_takes_part_the_denominator_is_a_constant():
    plan = account(clipped_hdp("privacy.noise.placement={edge: 1.0}")).plan
    assert not plan.releases.divides_by_drawn
    np.testing.assert_allclose(plan.participants.count, [2.0, 100.0])
    np.testing.assert_allclose(plan.releases.steps[0].node_std[1], [1 / 2, 1 / 100])
    np.testing.assert_allclose(plan.denominators_of(np.arange(102)), [2.0, 100.0])


def test_as_many_devices_of_one_weight_make_a_constant_too():
    plan = account(clipped_hdp("training.participation={kind: fixed, count: 2}")).plan
    assert not plan.releases.divides_by_drawn
    np.testing.assert_allclose(plan.participants.count, [2.0, 2.0])


@st.composite
def zones_with_a_cohort(draw):
    """Weights, noisy devices and floors of two zones, the size of the cohort, and the cloud's noise."""
    weights = [
        draw(st.lists(st.sampled_from([0.1, 0.3, 0.5, 1.0]), min_size=2, max_size=4)) for _ in range(2)
    ]
    count = draw(st.integers(1, min(map(len, weights))))
    floor = np.array([draw(st.floats(0.05, 2.0)) for _ in range(2)])
    stds = np.array([draw(st.sampled_from([0.0, 0.5, 2.0])) for _ in range(2)])
    node = np.array([draw(st.sampled_from([0.0, 0.1, 1.0])) for _ in range(2)])
    return weights, count, floor, stds, node, draw(st.sampled_from([PUBLIC, CLOUD, EDGE]))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(zones_with_a_cohort())
def test_no_cohort_tells_more_than_is_charged(case):
    """Every cohort with the unit in it, its denominators public, against the one figure that is charged."""
    weights, count, floor, stds, node, observer = case
    flat = np.concatenate(weights)
    sizes = np.array([len(w) for w in weights])
    sums = [[sum(c) for c in itertools.combinations(w, count)] for w in weights]
    least = np.maximum(floor, [min(s) for s in sums])
    most = np.maximum(floor, [max(s) for s in sums])
    facts = AggregationFacts("global", 0, np.ones(2), stds, (np.zeros(1), node), np.zeros(2, dtype=bool))
    declared = make_ledger(
        [[2], [*sizes.tolist()]],
        [facts],
        kind="fixed",
        rate=0.5,
        participants=[count, count],
        denominators=least,
        most_denominators=most,
        device_classes=DeviceClasses.of(sizes, flat, None),
    )
    flow = declared.exposures(0, observer)[0]
    charged = total_mu_squared(flow.releases, "zero-out")
    for mine in itertools.combinations(range(1, len(weights[0])), count - 1):
        for others in itertools.combinations(range(len(weights[1])), count):
            drawn = [weights[0][i] for i in (0, *mine)], [weights[1][i] for i in others]
            divisor = np.maximum(floor, [sum(d) for d in drawn])
            squares = np.array([sum(w**2 for w in d) for d in drawn])
            variances = squares * stds**2 / divisor**2
            shift = drawn[0][0] / divisor[0]
            if observer == EDGE:
                shift, noise = drawn[0][0], (drawn[0][0] * stds[0]) ** 2  # its message, by itself
            elif observer == CLOUD:
                noise = variances[0] + node[0] ** 2  # the zone's average, by itself
            else:
                noise = sum(variances) + (node**2).sum()
            true = math.inf if noise == 0 else shift**2 / noise
            assert true <= charged * (1 + 1e-9)


# --- amplification where denominators move -----------------------------------------------------------------


def poisson(*overrides):
    return clipped_hdp(
        "training.participation={kind: poisson, rate: 0.3}",
        "privacy.noise.placement={edge: 1.0}",
        "training.rounds=20",
        *overrides,
    )


def test_zeroing_out_is_no_sampled_gaussian_where_denominators_move():
    """A round without the unit divides by less than one in which it sends zeros."""
    declared = account(poisson()).plan.releases
    assert declared.divides_by_drawn
    flow = declared.exposures(0, PUBLIC)[0]
    assert flow.draw_hidden
    assert [charge.how.split()[0] for charge in ways_to_charge(flow, "zero-out")] == ["mixture"]
    fixed = account(poisson("training.denominator=fixed")).plan.releases.exposures(0, PUBLIC)[0]
    assert [charge.how.split()[0] for charge in ways_to_charge(fixed, "zero-out")] == ["amplified"]


def test_remove_is_amplified_at_twice_the_share():
    declared = account(poisson("privacy.neighbours=remove")).plan.releases
    flow = declared.exposures(0, PUBLIC)[0]
    (charge,) = ways_to_charge(flow, "remove")
    (release,) = flow.releases
    assert charge.how.startswith("amplified by Poisson sampling")
    assert 1 / charge.terms[0].multiplier == pytest.approx(
        2 * release.own_sensitivity / math.sqrt(release.variance)
    )


def test_remove_protects_from_nobody_who_sees_who_takes_part():
    report = account(poisson("privacy.neighbours=remove"))
    assert math.isfinite(report.epsilon(0, "public"))
    for observer in ("edge:0", "cloud", "public,cloud"):
        assert report.epsilon(0, observer) == math.inf
    (row,) = account(poisson("privacy.neighbours=remove"), unit="device:0", observer="cloud").guarantees
    assert row.neighbours == "remove"
    assert "tells whether the unit is there" in row.why


def test_remove_is_zero_out_where_denominators_are_fixed():
    options = ("training.denominator=fixed", "privacy.neighbours=remove")
    report, other = account(poisson(*options)), account(poisson(options[0]))
    assert report.epsilon(0, "public") == pytest.approx(other.epsilon(0, "public"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.participation=all"], "goes with training.participation: poisson"),
        (["training.participation={kind: fixed, count: 1}"], "goes with training.participation: poisson"),
        (["topology.supernodes=elected"], "elections tell who is there"),
    ],
)
def test_remove_is_refused_where_everybody_knows_who_is_there(overrides, message):
    with pytest.raises(SpecError, match=message):
        poisson("privacy.neighbours=remove", *overrides)


def test_remove_in_groups_needs_the_draw_to_be_hidden():
    spec = {
        "name": "groups",
        "protocol": "dp-ogl",
        "topology": {"kind": "groups", "structure": "global", "devices": 6},
        "data": {"source": "digits"},
        "model": {"kind": "softmax"},
        "training": {
            "rounds": 5,
            "local_steps": 1,
            "batch_size": 10,
            "learning_rate": 0.1,
            "participation": {"kind": "poisson", "rate": 0.5},
        },
        "privacy": {
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 3.0},
            "neighbours": "remove",
        },
    }
    hidden = account(load_spec(spec))
    assert math.isfinite(hidden.epsilon(0, "device:1"))
    assert hidden.epsilon(0, "master:0") == math.inf
    seen = account(load_spec(spec, ["transport={devices_to_master: secure-aggregation}"]))
    assert seen.epsilon(0, "device:1") == math.inf


def test_a_cohort_of_unequal_weights_may_stand_for_another_at_twice_the_heavier():
    """Fixed size: sums of cohorts that differ in one member, of weights w and w', over max(floor, weight)."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        others = rng.choice([0.1, 0.5, 1.0], rng.integers(0, 5))
        mine, theirs = rng.choice([0.1, 0.5, 1.0], 2)
        floor = rng.uniform(0.05, 3.0)
        signs = rng.choice([-1.0, 1.0], len(others) + 2)
        rest = float(others @ signs[2:])
        one = (rest + signs[0] * mine) / max(floor, others.sum() + mine)
        two = (rest + signs[1] * theirs) / max(floor, others.sum() + theirs)
        assert abs(one - two) <= 2 * max(mine, theirs) / floor + 1e-12


def test_a_fixed_cohort_over_moving_denominators_is_exchanged_at_twice_the_heavier():
    weights = np.array([0.25, 0.5, 1.0, 1.0])
    facts = AggregationFacts("global", 0, np.ones(1), np.zeros(1), (np.ones(1),), np.zeros(1, dtype=bool))
    declared = make_ledger(
        [[4]],
        [facts],
        kind="fixed",
        rate=0.5,
        participants=[2],
        denominators=np.array([0.75]),
        most_denominators=np.array([2.0]),
        device_classes=DeviceClasses.of(np.array([4]), weights, None),
    )
    for unit, weight in enumerate(weights):
        flow = declared.exposures(unit, PUBLIC)[0]
        for relation in ("zero-out", "replace"):
            (term,) = ways_to_charge(flow, relation)[1].terms
            assert np.array(term.sampling.apart) / term.multiplier == pytest.approx(
                2 * max(weight, 1.0) / 0.75
            )
        assert bound_epsilon(flow, delta=DELTA, neighbours="zero-out").epsilon > 0

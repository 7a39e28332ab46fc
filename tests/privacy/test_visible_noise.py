"""Noise of others who are drawn, as a visible mixture: against every draw written out.

The oracle shares no code with the accountant: it lists who is drawn, adds up noise device by device, and
composes rounds by adding up μ² over all courses of the training.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from equal_exposures import assert_equal
from grid_deltas import worst_delta
from message_graph.trees import TreeAsMessages
from random_tree_facts import make_ledger
from scipy import stats

from sfumato import account, load_spec
from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.losses import gaussian
from sfumato.privacy.losses.one_release import losses_of_public_scales
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.observers import Party
from sfumato.privacy.public_draws import noise_outcomes
from sfumato.privacy.release import DrawnNoise, DrawnReleases, Release, without_noise
from sfumato.privacy.sampling import GaussianTerm, Sampling
from sfumato.privacy.tree.facts import AggregationFacts
from sfumato.privacy.tree.shape import DeviceClasses

PUBLIC, CLOUD = Party("public"), Party("node", 0, 0)
DELTA, RATE = 1e-3, 0.4


def device(number):
    return Party("device", 0, number)


def edge(number):
    return Party("node", 1, number)


def gaussian_delta(epsilon, square):
    if square == 0 or math.isinf(square):
        return float(square > 0)
    mu = math.sqrt(square)
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def zones(sizes, device_std, edge_std, *, cloud_std=0.0, weights=None, **more):
    """Zones under secure aggregation, drawn by chance; weights are those of messages and of noise."""
    leaves = len(sizes)
    stds = (np.array([cloud_std]), np.array(edge_std, dtype=float))
    noise = np.array(device_std, dtype=float)
    facts = AggregationFacts("global", 0, np.ones(leaves), noise, stds, np.zeros(leaves, dtype=bool))
    classes = None if weights is None else DeviceClasses.of(np.array(sizes), np.array(weights), None)
    settings = {
        "kind": "poisson",
        "rate": RATE,
        "participants": np.array(sizes) * RATE,
        "hops": ("plain", "secure-aggregation"),
        "rounds": 2,
        "device_classes": classes,
    }
    return make_ledger([[leaves], sizes], [facts], **{**settings, **more})


def squares_of_draws(declared, observer, members, weights=None):
    """Probability and μ² of a round for every set of others that may be drawn beside device 0."""
    sizes, rate = declared.devices.tolist(), declared.draw_rate
    step = declared.steps[0]
    zone_of = np.repeat(np.arange(len(sizes)), sizes)
    weights = np.ones(len(zone_of)) if weights is None else np.array(weights)
    denominators = np.array(sizes) * rate
    found = []
    for drawn in itertools.product((0, 1), repeat=len(zone_of) - 1):
        chance = math.prod(rate if yes else 1 - rate for yes in drawn)
        there = [0, *(j for j, yes in enumerate(drawn, 1) if yes)]
        in_zone = step.node_std[1] ** 2
        for j in there:
            if j not in members:
                in_zone = in_zone.copy()
                in_zone[zone_of[j]] += (
                    weights[j] * step.device_std[zone_of[j]] / denominators[zone_of[j]]
                ) ** 2
        own = weights[0] / denominators[0]
        if observer == "edge":
            noise = in_zone[0] - step.node_std[1][0] ** 2
        elif observer == "cloud":
            noise = in_zone[0]
        else:
            known = [z for z in range(len(sizes)) if observer == ("edge", z)]
            own, noise = own / len(sizes), sum(v for z, v in enumerate(in_zone) if z not in known)
            noise = noise / len(sizes) ** 2 + step.node_std[0][0] ** 2
        found.append((chance, own**2 / noise if noise else math.inf))
    return found


def delta_of_courses(rounds, epsilon, count, rate=RATE):
    """All courses of ``count`` rounds, in each of which the unit is drawn, and seen to be, at ``rate``."""
    outcomes = [(1 - rate, 0.0), *((rate * chance, square) for chance, square in rounds)]
    return sum(
        math.prod(p for p, _ in course) * gaussian_delta(epsilon, sum(s for _, s in course))
        for course in itertools.product(outcomes, repeat=count)
    )


CASES = {
    "public": ("public", [PUBLIC], []),
    "cloud": ("cloud", [CLOUD], []),
    "own edge": ("edge", [edge(0)], []),
    "a peer": ("public", [device(1)], [1]),
    "devices": ("public", [device(1), device(3)], [1, 3]),
    "another edge": (("edge", 1), [edge(1)], []),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weights", [None, [0.5, 1.0, 0.25, 1.0, 0.75, 0.5]])
def test_no_draw_tells_more_than_its_outcome(case, weights):
    """Zones of three: what is charged is above every draw's own figure, and next to equal to it."""
    observer, coalition, members = CASES[case]
    declared = zones([3, 3], [1.0, 0.7], [0.0, 0.2], weights=weights)
    (drawn,) = declared.exposures(0, coalition)[0].draws
    charged = noise_outcomes(drawn, "zero-out")
    true = squares_of_draws(declared, observer, members, weights)
    assert math.fsum(chance for chance, _ in charged) == pytest.approx(1.0)
    for level in np.unique([round(square, 9) for _, square in true]):
        above = math.fsum(chance for chance, square in true if square > level)
        assert above <= math.fsum(chance for chance, square in charged if square > level * (1 - 1e-8)) + 1e-9
    means = [math.fsum(chance * square for chance, square in found) for found in (true, charged)]
    assert means[0] <= means[1] <= means[0] * (1.001 if weights is None else 1.03)


@pytest.mark.parametrize("case", CASES)
def test_two_rounds_are_every_course_of_two_rounds(case):
    observer, coalition, members = CASES[case]
    declared = zones([3, 3], [1.0, 0.7], [0.0, 0.2])
    flow = declared.exposures(0, coalition)[0]
    found = bound_epsilon(flow, delta=DELTA, neighbours="zero-out")
    fewer = {}
    for chance, square in squares_of_draws(declared, observer, members):
        fewer[round(square, 12)] = fewer.get(round(square, 12), 0.0) + chance
    rounds = [(chance, square) for square, chance in fewer.items()]
    assert delta_of_courses(rounds, found.epsilon, 2) <= DELTA * (1 + 1e-6)
    assert delta_of_courses(rounds, found.epsilon * 0.99 - 0.01, 2) > DELTA
    assert "noise of the others who are drawn" in found.how


def test_a_hidden_draw_amplifies_beside_noise_that_others_zones_draw():
    """No device of the unit's zone adds noise: one round, integrated draw by draw, in both directions."""
    declared = zones([2, 3], [0.0, 0.7], [0.6, 0.0], rounds=1)
    flow = declared.exposures(0, [PUBLIC])[0]
    (charge,) = ways_to_charge(flow, "zero-out")
    assert charge.terms[0].sampling.hidden
    curve = compose(charge.terms, neighbours="zero-out")
    places = np.linspace(-12, 12, 24_001)
    rounds = squares_of_draws(declared, "public", [])
    for level in (0.05, 0.5, 1.5):
        forward = backward = 0.0
        for chance, square in rounds:
            absent = stats.norm.pdf(places)
            mixed = (1 - RATE) * absent + RATE * stats.norm.pdf(places, math.sqrt(square))
            forward += chance * np.trapezoid(np.maximum(mixed - math.exp(level) * absent, 0), places)
            backward += chance * np.trapezoid(np.maximum(absent - math.exp(level) * mixed, 0), places)
        (loss, *_) = curve._bounds
        assert loss._directions[0].delta(level) == pytest.approx(forward, abs=1e-6)
        assert loss._directions[1].delta(level) == pytest.approx(backward, abs=1e-6)


def test_a_round_without_any_noise_costs_its_probability():
    """Ten others of another zone are the only ones who add noise: sometimes nobody is drawn."""
    declared = zones([2, 10], [0.0, 0.7], [0.0, 0.0], rounds=1, rate=0.7, participants=[1.4, 7.0])
    (charge,) = ways_to_charge(declared.exposures(0, [PUBLIC])[0], "zero-out")
    assert charge.failure_probability == pytest.approx(0.7 * 0.3**10, rel=1e-6)
    found = bound_epsilon(declared.exposures(0, [PUBLIC])[0], delta=DELTA, neighbours="zero-out")
    assert math.isfinite(found.epsilon)
    tiny = bound_epsilon(declared.exposures(0, [PUBLIC])[0], delta=1e-6, neighbours="zero-out")
    assert tiny.epsilon == math.inf


def test_members_in_a_session_with_their_edge_leave_the_unit_alone():
    """In a small session they take the masks off, so that only the unit's own noise is left."""
    declared = zones([3, 3], [1.0, 0.7], [0.0, 0.0], unmask_thresholds=(np.array([2]), np.array([3, 3])))
    (together,) = declared.exposures(0, [edge(0), device(1)])[0].draws
    (alone,) = declared.exposures(0, [edge(0)])[0].draws
    assert alone.drawn_noise[0].count == 2
    assert alone.drawn_noise[0].variances == pytest.approx((1 / 1.2**2,))
    assert not together.drawn_noise
    for coalition in ([edge(0), device(1)], [edge(0)]):
        assert_equal(declared.exposures(0, coalition)[0], TreeAsMessages(declared).flow(0, coalition))


@pytest.mark.parametrize(
    "change",
    [
        {"guaranteed_contributors": np.zeros(2, dtype=np.int64)},
        {"all_nodes_always_send": False},
        {"rounds_after_noise": True},
        {"hops": ("plain", "air")},
        {"draw_kind": "all"},
    ],
)
def test_where_noise_may_be_missing_or_be_a_sign_nobody_elses_counts(change):
    declared = zones([3, 3], [1.0, 0.7], [0.0, 0.0])
    assert declared.exposures(0, [PUBLIC])[0].draws[0].drawn_noise
    other = replace(declared, **change)
    tells = replace(declared, steps=(replace(declared.steps[0], reveals_draw=True),))
    for one in (other, tells):
        assert not one.exposures(0, [PUBLIC])[0].draws[0].drawn_noise
        assert not TreeAsMessages(one).flow(0, [PUBLIC]).draws[0].drawn_noise


def test_rounds_with_elections_and_laws_that_are_not_composed_count_sure_noise_only():
    declared = zones([3, 3], [1.0, 0.7], [0.0, 0.0], elections=1.0)
    members = (device(1), device(4))
    exposure = declared.exposures(0, members)[0]
    assert exposure.election_events
    assert not exposure.draws[0].drawn_noise
    flow = zones([3, 3], [1.0, 0.7], [0.0, 0.0]).exposures(0, [PUBLIC])[0]
    assert not without_noise(flow).draws[0].drawn_noise
    assert not flow.without_draws().draws[0].drawn_noise
    assert bound_epsilon(without_noise(flow), delta=DELTA, neighbours="zero-out").epsilon == math.inf


def test_several_releases_of_a_round_share_who_is_drawn():
    """μ² adds up over releases for each draw, not for each release by itself."""
    releases = tuple(Release("", "", 1.0, 0.0, v, False) for v in (1.0, 4.0))
    noise = (DrawnNoise(2, (1.0, 1.0)), DrawnNoise(1, (0.0, 3.0)))
    drawn = DrawnReleases(Sampling.revealed(0.5), releases, 3, drawn_noise=noise)
    expected = {}
    for one, two in itertools.product(range(3), range(2)):
        square = 1 / (1 + one) + 1 / (4 + one + 3 * two)
        expected[square] = expected.get(square, 0) + math.comb(2, one) / 4 / 2
    found = [pair for pair in noise_outcomes(drawn, "zero-out") if pair[0] > 1e-12]
    assert sorted(s for _, s in found) == pytest.approx(sorted(expected), rel=1e-9)
    assert sorted(p for p, _ in found) == pytest.approx(sorted(expected.values()), rel=1e-9)


def test_many_outcomes_are_rounded_towards_less_noise():
    noise = tuple(DrawnNoise(40, (0.01 * k, 0.02 * k * k)) for k in range(1, 6))
    releases = tuple(Release("", "", 1.0, 0.0, v, False) for v in (0.1, 0.2))
    drawn = DrawnReleases(Sampling.revealed(0.3), releases, 3, drawn_noise=noise)
    found = noise_outcomes(drawn, "zero-out")
    assert len(found) <= 60
    rng = np.random.default_rng(1)
    counts = rng.binomial(40, 0.3, (20_000, 5))
    variances = np.array([0.1, 0.2]) + counts @ np.array([n.variances for n in noise])
    squares = (1 / variances).sum(axis=1)
    for level in np.quantile(squares, [0.1, 0.5, 0.9, 0.99]):
        assert np.mean(squares > level) <= math.fsum(p for p, s in found if s > level) + 0.01


def hdp(*overrides):
    spec = {
        "name": "zones",
        "protocol": "hdp",
        "topology": {"kind": "tree", "edges": 10, "devices_per_edge": 50},
        "data": {"source": "digits"},
        "model": {"kind": "softmax"},
        "training": {
            "rounds": 200,
            "local_steps": 1,
            "batch_size": 10,
            "learning_rate": 0.1,
            "participation": {"kind": "poisson", "rate": 0.2},
        },
        "privacy": {
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.0, "placement": {"device": 1.0}},
        },
        "transport": {"devices_to_edge": "secure-aggregation"},
    }
    return load_spec(spec, overrides)


def epsilon(spec, observer):
    (row,) = account(spec, unit="device:0", observer=observer).guarantees
    return row.epsilon


def test_figures_of_hdp_with_devices_that_add_noise():
    """Without the noise of others all of these were 51.99."""
    assert epsilon(hdp(), "public") == pytest.approx(2.71, abs=5e-3)
    assert epsilon(hdp(), "edge:0") == pytest.approx(10.70, abs=5e-3)


def test_an_office_elsewhere_shows_nothing_of_the_unit_s_draw():
    """Who may be elected in another zone was charged 10.69, more than one in office every round (4.36)."""
    spec = hdp("privacy.noise.placement={edge: 1.0}", "topology.supernodes=elected")
    found = epsilon(spec, "device:50")
    assert epsilon(spec, "edge:1") == pytest.approx(4.36, abs=5e-3)
    assert found == pytest.approx(4.086, abs=1e-3)


@pytest.mark.parametrize("scales", [((0.5, 1.2),), ((-0.1, 0.5),)])
def test_scales_that_are_no_shares_are_refused(scales):
    with pytest.raises(ValueError, match="scales"):
        Sampling.poisson(0.5, scales=scales)


def test_one_scale_is_the_plain_release():
    for sampling in (Sampling.poisson(0.3), Sampling.revealed(0.3)):
        plain = compose([GaussianTerm(2.0, 20, sampling)], neighbours="zero-out")
        scaled = compose(
            [GaussianTerm(2.0, 20, replace(sampling, scales=((1.0, 1.0),)))], neighbours="zero-out"
        )
        assert scaled.epsilon(DELTA) == pytest.approx(plain.epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize("hidden", [True, False])
def test_losses_of_thousands_of_nats_do_not_overflow(hidden):
    sampling = Sampling.poisson(0.6, hidden=hidden, scales=((0.5, 1.0), (0.5, 0.1)))
    one = losses_of_public_scales(2500.0, sampling, 0.5)
    for level in (5.0, 1000.0, 1300.0):
        inner = level - math.log(0.6) + math.log1p(-0.4 * math.exp(-level)) if hidden else level
        exact = 0.3 * (stats.norm.sf(inner / 50 - 25) + stats.norm.sf(inner / 5 - 2.5))
        assert worst_delta(one, 0.5, level) == pytest.approx(exact, rel=0.12)


def test_a_quotient_beyond_the_largest_number_warns_nobody():
    """Masses are as small as e^-709: a quotient of them would be read as a RuntimeWarning."""
    ways = tuple((float(stats.binom.pmf(others, 28, 0.5)), (1 + others) ** -0.5) for others in range(29))
    term = GaussianTerm(0.05 / 8**0.5, 4, Sampling.poisson(0.5, hidden=False, scales=ways))
    assert compose([term], neighbours="zero-out").epsilon(1e-5) > 300


def test_a_draw_that_all_but_never_happens_ends_no_search():
    """Its ε is the first guess; δ there is 0 in floating point."""
    draws = RevealedDraws(np.array([1e-2, 1e6]), np.array([1.0, 1e-320]), 0.0)
    assert draws.delta(gaussian.epsilon(delta=1e-5, mu=1e3)) == 0
    known = gaussian.epsilon(delta=1e-5, mu=0.1)
    assert known <= draws.epsilon(1e-5) <= known * (1 + 1e-5)

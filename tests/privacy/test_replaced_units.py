"""A unit that is replaced under a Poisson draw that nobody sees: against densities integrated one by one.

The oracle shares no code with the accountant: it integrates what a round without the unit and rounds with
either of two messages have, in one dimension and in two, and composes rounds with losses rounded down.
"""

import itertools
import math

import numpy as np
import pytest
from grid_deltas import worst_delta
from scipy import integrate, stats
from test_fixed_draws import PLACES, attained

from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import bound_epsilon, ways_to_charge
from sfumato.privacy.losses.one_release import losses_of_public_scales
from sfumato.privacy.noise_scale import noise_scale_for
from sfumato.privacy.release import DrawnNoise, DrawnReleases, Exposure, Release, RoundOutcomes
from sfumato.privacy.sampling import GaussianTerm, Sampling

DELTA = 1e-5
LEVELS = (0.02, 0.3, 1.0, 2.5)


def of(rate, std, count=1, *, variances=None, **more):
    """Messages of norm 1 under a hidden draw, as a protocol states them."""
    released = [Release("", "", 1.0, 0.0, v, True, **more) for v in variances or (std**2,)]
    return Exposure("flow", (DrawnReleases(Sampling.poisson(rate), tuple(released), count),))


def charged(exposure, neighbours="replace"):
    (way,) = ways_to_charge(exposure, neighbours)
    return compose(way.terms, neighbours=neighbours)


def density(x, mean, std):
    """Of a normal distribution at one place, for which `scipy.stats` takes a hundred times as long."""
    return math.exp(-(((x - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))


def divergence(level, rate, std, one, other):
    """∫ (P - e^ε Q)₊ of worlds in which the unit sends ``one`` and ``other``, by quadrature."""

    def excess(x):
        absent = (1 - rate) * density(x, 0.0, std)
        p, q = (absent + rate * density(x, message, std) for message in (one, other))
        return max(p - math.exp(level) * q, 0.0)

    ends = np.linspace(-12 * std - 1, 12 * std + 1, 25)
    return sum(integrate.quad(excess, a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize(("rate", "std"), [(0.7, 2.0), (0.05, 0.6), (0.3, 0.3), (0.99, 1.0)])
def test_opposite_messages_tell_exactly_what_is_charged(rate, std):
    (term,) = ways_to_charge(of(rate, std), "replace")[0].terms
    losses = losses_of_public_scales(
        term.multiplier**-2, Sampling.poisson(rate, apart=0.5, scales=((1.0, 1.0),)), 1e-3
    )
    assert term.sampling == Sampling.poisson(rate, apart=0.5)
    for level in LEVELS:
        exact = divergence(level, rate, std, 1.0, -1.0)
        found = worst_delta(losses, 1e-3, level)
        assert exact - 1e-9 <= found <= exact * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize(("rate", "std"), [(0.7, 1.0), (0.1, 0.5)])
def test_no_two_messages_in_a_plane_tell_more(rate, std):
    """At any angle, of any length, also in one direction: integrated over the plane."""
    (term,) = ways_to_charge(of(rate, std), "replace")[0].terms
    curve = compose([term], neighbours="replace")
    x, y = np.meshgrid(*2 * [np.linspace(-9 * std, 9 * std, 241)], indexing="ij")
    cell = (18 * std / 240) ** 2

    def density(message):
        return np.exp(-((x - message[0]) ** 2 + (y - message[1]) ** 2) / (2 * std**2)) / (
            2 * math.pi * std**2
        )

    rng = np.random.default_rng(3)
    angles, lengths = rng.uniform(0, 2 * math.pi, 30), np.append(np.ones(20), rng.uniform(0, 1, 10))
    other = np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths[:, None]
    absent, first = (1 - rate) * density((0.0, 0.0)), density((1.0, 0.0))
    for level in LEVELS:
        allowed = curve.delta(level)
        found = 0.0
        for message in other:
            p, q = absent + rate * first, absent + rate * density(message)
            for one, two in ((p, q), (q, p)):
                found = max(found, float(np.maximum(one - math.exp(level) * two, 0.0).sum() * cell))
        assert found <= allowed * (1 + 1e-3) + 1e-9
        assert found >= 0.9 * allowed  # some are nearly opposite


def test_six_messages_at_a_rate_of_seven_tenths():
    """Issue 28, item 7: 11.74 with the draw seen, 7.88 with the pair that shares the rounds without it."""
    exposure = of(0.7, 2.0, 6)
    bound = bound_epsilon(exposure, delta=DELTA, neighbours="replace")
    assert (bound.epsilon, bound.method) == (pytest.approx(7.885, abs=2e-3), "pld")
    assert "both worlds share the draws without it" in bound.how
    seen = compose([GaussianTerm(1.0, 6, Sampling.revealed(0.7))], neighbours="replace")
    assert seen.epsilon(DELTA) == pytest.approx(11.736, abs=2e-3)


@pytest.mark.parametrize("rate", [0.7, 0.1])
def test_rounds_attain_what_is_charged_and_more_than_zeros_would(rate):
    """Of 6 rounds of opposite messages. As one zeroed out, a replaced unit would be charged too little."""
    std, rounds = 1.2, 6
    p, q = (
        (1 - rate) * stats.norm.pdf(PLACES, 0, std) + rate * stats.norm.pdf(PLACES, end, std)
        for end in (1.0, -1.0)
    )
    exposure = of(rate, std, rounds)
    curve, zeroed = charged(exposure), charged(exposure, "zero-out")
    for level, found in zip(LEVELS, attained(p, q, rounds, LEVELS), strict=True):
        assert found <= curve.delta(level) * (1 + 1e-6)
        assert found >= 0.9 * curve.delta(level)
        assert found > 1.2 * zeroed.delta(level)


def test_several_releases_on_one_draw_are_one_of_their_total():
    """Half of μ² in each of two releases, or all of it in one; two rounds with it are more."""
    several = charged(of(0.4, 1.0, 5, variances=(2.0, 2.0)))
    assert several.epsilon(DELTA) == pytest.approx(charged(of(0.4, 1.0, 5)).epsilon(DELTA), rel=1e-9)
    apart = charged(of(0.4, math.sqrt(2), 10))
    assert several.epsilon(DELTA) > 1.01 * apart.epsilon(DELTA)


def test_a_draw_that_is_seen_or_noise_that_comes_with_it_amplifies_nothing():
    (drawn,) = of(0.4, 1.0).draws
    shown = DrawnReleases(drawn.sampling.shown(), drawn.releases, 1)
    (release,) = drawn.releases
    for changed in ({"noise_is_draw_independent": False}, {"linking": 1, "propagated_sensitivity": 2.0}):
        moved = DrawnReleases(drawn.sampling, (Release(**{**vars(release), **changed}),), 1)
        assert not moved.poisson_amplifies("replace")
    for draw in (shown, moved):
        (way,) = ways_to_charge(Exposure("flow", (draw,)), "replace")
        assert not way.terms[0].sampling.hidden
        assert "not amplified" in way.how


def test_denominators_that_depend_on_who_is_drawn_move_the_round_without_the_unit():
    """It is then a whole sensitivity from either world, not half of one (docs/hdp.md)."""
    (term,) = ways_to_charge(of(0.4, 1.0, divides_by_drawn=True), "replace")[0].terms
    assert term.sampling == Sampling.poisson(0.4, apart=1.0)


def test_noise_of_others_who_are_drawn_is_a_mixture_of_such_pairs():
    """One round, whose noise is 1/2, or 1/2 and 1 or two of another who may be drawn."""
    rate, sure, more = 0.3, 0.25, 1.0
    release = Release("", "", 1.0, 0.0, sure, True)
    draw = DrawnReleases(Sampling.poisson(rate), (release,), 1, drawn_noise=(DrawnNoise(2, (more,)),))
    curve = charged(Exposure("flow", (draw,)))
    for level in LEVELS:
        exact = sum(
            math.comb(2, k)
            * rate**k
            * (1 - rate) ** (2 - k)
            * divergence(level, rate, math.sqrt(sure + k * more), 1.0, -1.0)
            for k in range(3)
        )
        assert exact - 1e-9 <= curve.delta(level) <= exact * (1 + 1e-3)


def test_outcomes_of_a_round_are_amplified_where_they_hide_the_draw():
    """Elections: one round, in which the draw is hidden in one outcome and seen in the other."""
    rate, chance = 0.3, 0.25
    hidden, seen = of(rate, 0.8).draws[0], of(rate, 0.5).draws[0]
    draws = (hidden, DrawnReleases(seen.sampling.shown(), seen.releases, 1))
    outcomes = Exposure("flow", draws, outcomes=RoundOutcomes((1 - chance, chance), "an office"))
    curve = charged(outcomes)
    for level in LEVELS:
        mu = 2 / 0.5
        told = stats.norm.cdf(mu / 2 - level / mu) - math.exp(level) * stats.norm.cdf(-mu / 2 - level / mu)
        exact = (1 - chance) * divergence(level, rate, 0.8, 1.0, -1.0) + chance * rate * told
        assert exact - 1e-9 <= curve.delta(level) <= exact * (1 + 1e-3)


@pytest.mark.parametrize("rate", [0.02, 0.7])
def test_noise_for_a_target_meets_it_with_less(rate):
    exposure = of(rate, 1.0, 30)
    factor = noise_scale_for([exposure], epsilon=2.0, delta=DELTA, neighbours="replace")
    found = bound_epsilon(of(rate, factor, 30), delta=DELTA, neighbours="replace").epsilon
    assert 2.0 * (1 - 5e-4) <= found <= 2.0
    seen = compose([GaussianTerm(factor / 2, 30, Sampling.revealed(rate))], neighbours="replace")
    assert seen.epsilon(DELTA) > 2.2


def test_a_share_that_tells_nothing_is_no_release():
    sampling = Sampling.poisson(0.5, apart=0.5, scales=((0.5, 1.0), (0.5, 0.0)))
    curve = compose([GaussianTerm(1.0, 1, sampling)], neighbours="replace")
    whole = compose([GaussianTerm(1.0, 1, Sampling.poisson(0.5, apart=0.5))], neighbours="replace")
    assert curve.delta(0.7) == pytest.approx(whole.delta(0.7) / 2, rel=1e-6)


def test_a_replaced_unit_that_is_not_said_how_far_away_is_refused():
    with pytest.raises(ValueError, match=r"with neighbours 'replace'; must say with `apart`"):
        compose([GaussianTerm(1.0, 1, Sampling.poisson(0.5))], neighbours="replace")

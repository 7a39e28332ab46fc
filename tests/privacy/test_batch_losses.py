"""Releases whose sender draws its own batches: against dp_accounting, an independent integral, and limits."""

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from grid_deltas import delta_of, worst_delta
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.privacy.accountant import compose
from sfumato.privacy.losses.composition import LossComposition
from sfumato.privacy.losses.one_release import losses_of_batches
from sfumato.privacy.sampling import GaussianTerm, Sampling

DELTA = 1e-5


def first_draws(rate, steps):
    return tuple((rate * (1 - rate) ** j, *2 * [(steps - j) / steps]) for j in range(steps))


def plain(rate, *, both=False):
    return Sampling.of_batches([(rate, 1.0, 1.0)], shares_a_part=both)


def epsilon(*terms, neighbours="zero-out"):
    return compose(terms, neighbours=neighbours).epsilon(DELTA)


@pytest.mark.parametrize(("rate", "multiplier", "count"), [(0.04, 2.77, 600), (0.3, 1.1, 20), (0.9, 5.0, 40)])
def test_one_move_is_the_sampled_gaussian(rate, multiplier, count):
    ours = epsilon(GaussianTerm(multiplier, count, plain(rate)))
    assert ours == pytest.approx(
        epsilon(GaussianTerm(multiplier, count, Sampling.poisson(rate))), rel=1e-5, abs=1e-5
    )


@pytest.mark.parametrize(("rate", "steps", "multiplier", "count"), [(0.01, 5, 2.77, 600), (0.4, 3, 0.8, 4)])
def test_mixtures_equal_the_library_s(rate, steps, multiplier, count):
    moves, interval = first_draws(rate, steps), 4e-3
    chances, shares, _ = zip(*moves, strict=True)
    library = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        multiplier,
        [0.0, *shares],
        [1 - math.fsum(chances), *chances],
        value_discretization_interval=interval,
    )
    ours = losses_of_batches(multiplier**-2, Sampling.of_batches(moves, shares_a_part=False), interval)
    found = max(LossComposition([(one, count)], interval).epsilon(DELTA) for one in ours)
    assert found == pytest.approx(library.self_compose(count).get_epsilon_for_delta(DELTA), rel=1e-4)


def hockey_stick(p, q, alpha):
    places = np.linspace(-12, 12, 400_001)
    return np.trapezoid(np.maximum(p(places) - alpha * q(places), 0.0), places)


@pytest.mark.parametrize("rate", [0.05, 0.5])
@pytest.mark.parametrize("level", [-1.0, -0.2, 0.0, 0.1, 0.7, 2.0])
def test_both_worlds_that_leave_the_shared_part_are_covered(rate, level):
    """Three messages, pairwise within the sensitivity; then a device that may not be drawn at all."""
    norm, alpha = stats.norm.pdf, math.exp(level)
    allowed = worst_delta(losses_of_batches(1.0, plain(rate, both=True), 1e-3), 1e-3, level)

    def mixed(where):
        return lambda x: (1 - rate) * norm(x) + rate * norm(x - where)

    for one, other in ((1.0, 0.0), (0.0, 1.0), (0.5, -0.5), (1.0, 0.4)):
        assert hockey_stick(mixed(one), mixed(other), alpha) <= allowed + 1e-8
    near = Sampling.of_batches(
        [(rate, 1.0, 0.5)], shares_a_part=True
    )  # a gradient exchanged for its opposite
    opposite = worst_delta(losses_of_batches(1.0, near, 1e-3), 1e-3, level)
    assert hockey_stick(mixed(0.5), mixed(-0.5), alpha) <= opposite + 1e-8
    assert opposite <= allowed + 1e-9
    shared_by_both = rate * 0.3
    for direction in (1, -1):
        with_it = [(1 - rate, 0.0), (rate - shared_by_both, 0.5), (shared_by_both, -0.5)]
        without = [(1 - rate, 0.0), (rate, 0.5)]
        p, q = (
            lambda x, parts=parts: sum(c * norm(x - m) for c, m in parts)
            for parts in (with_it, without)[::direction]
        )
        smaller = worst_delta(losses_of_batches(1.0, plain(shared_by_both, both=True), 1e-3), 1e-3, level)
        assert hockey_stick(p, q, alpha) <= smaller + 1e-8


def test_a_blind_participation_draw_is_no_smaller_rate_of_a_sampled_gaussian():
    """Why the two draws are not just multiplied: the world without the record loses more than that allows."""
    norm, device, rate, level = stats.norm.pdf, 0.1, 0.5, 0.12

    def world(parts):
        return lambda x: sum(chance * norm(4 * (x - mean)) * 4 for chance, mean in parts)

    without = world([(1 - device, 0.0), (device, 1.0)])
    with_it = world([(1 - device, 0.0), (device * (1 - rate), 1.0), (device * rate, -1.0)])
    lost = hockey_stick(without, with_it, math.exp(level))
    _, as_if = losses_of_batches(64.0, plain(device * rate), 1e-3)
    assert lost > delta_of(as_if, 1e-3, level) + 1e-3
    assert lost <= worst_delta(losses_of_batches(64.0, plain(device * rate, both=True), 1e-3), 1e-3, level)


@given(
    rate=st.floats(0.001, 1.0),
    steps=st.integers(1, 6),
    multiplier=st.floats(0.5, 20),
    count=st.integers(1, 100),
    both=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_never_above_everything_drawn_and_less_with_more_noise(rate, steps, multiplier, count, both):
    mixture = Sampling.of_batches(first_draws(rate, steps), shares_a_part=both)
    whole = plain(mixture.rate, both=both)
    found = epsilon(GaussianTerm(multiplier, count, mixture))
    tolerance = 1 + 1e-3
    assert found <= epsilon(GaussianTerm(multiplier, count, whole)) * tolerance + 1e-3
    assert found <= epsilon(GaussianTerm(multiplier, count)) + 1e-9
    assert epsilon(GaussianTerm(multiplier * 1.2, count, mixture)) <= found * tolerance + 1e-3


def test_two_worlds_apart_cost_more_than_one():
    one, two = (epsilon(GaussianTerm(2.0, 50, plain(0.1, both=both))) for both in (False, True))
    assert one < two <= epsilon(GaussianTerm(2.0, 50))


def test_the_relation_does_not_matter_for_terms_that_say_it_themselves():
    term = GaussianTerm(2.0, 50, plain(0.1, both=True))
    assert epsilon(term) == epsilon(term, neighbours="replace")


@pytest.mark.parametrize("moves", [[(0.1, 0.0, 0.5)], [(0.1, 1.2, 1.0)], [(0.1, 1.0, 0.0)]])
def test_shares_outside_the_sensitivity_are_refused(moves):
    with pytest.raises(ValueError, match="moves"):
        Sampling.of_batches(moves, shares_a_part=False)


def test_profile_matches_the_library_s_for_a_lone_gaussian():
    one = privacy_loss_distribution.from_gaussian_mechanism(
        2.0, value_discretization_interval=1e-3, neighboring_relation=NeighboringRelation.REPLACE_SPECIAL
    )
    ours = losses_of_batches(0.25, plain(1.0, both=True), 1e-3)
    for level in np.linspace(-1, 2, 7):
        assert worst_delta(ours, 1e-3, level) == pytest.approx(one.get_delta_for_epsilon(level), abs=1e-7)

"""What an (ε, δ) implies, against distributions that have no smaller one: bounds hold, and some are met."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.report.statement.gains import TWICE, between_contents, bound_of_several, chance_of_more

MEANS = (0.3, 0.7, 1.0, 2.0)  # of unit Gaussians, between two worlds
DELTAS = (1e-2, 1e-3, 1e-5)


def delta_of(mean: float, epsilon: float) -> float:
    """The smallest δ at ε of Gaussians with a distance of ``mean`` (Balle and Wang 2018, Theorem 5)."""
    return float(
        norm.cdf(mean / 2 - epsilon / mean) - math.exp(epsilon) * norm.cdf(-mean / 2 - epsilon / mean)
    )


def epsilon_of(mean: float, delta: float) -> float:
    """The smallest ε at δ of Gaussians with a distance of ``mean``."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(mean, middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("delta", DELTAS)
def test_odds_rise_by_more_than_twice_the_factor_with_at_most_twice_delta(mean, delta):
    """The privacy loss of Gaussians is N(±m²/2, m²) in the two worlds."""
    bound = epsilon_of(mean, delta) + TWICE
    for sign in (1, -1):
        assert norm.sf((bound - sign * mean**2 / 2) / mean) <= chance_of_more(delta)


def test_twice_delta_cannot_be_had_for_less():
    """Of one output with probability 2δ in the one world, and 2δ/(2e^ε) in the other, δ is just met."""
    epsilon, delta = 1.0, 1e-3
    p, q = 2 * delta, 2 * delta / (2 * math.exp(epsilon))
    assert p - math.exp(epsilon) * q == pytest.approx(delta)
    assert math.log(p / q) == pytest.approx(epsilon + TWICE)
    assert p == chance_of_more(delta)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("mean", MEANS)
def test_several_units_have_the_bound_together(mean, count):
    delta = 1e-5
    bound = bound_of_several(epsilon_of(mean, delta), delta, count)
    if math.isfinite(bound.epsilon):
        assert delta_of(count * mean, bound.epsilon) <= bound.delta * (1 + 1e-9)


@pytest.mark.parametrize("mean", MEANS)
def test_two_contents_differ_by_twice_as_much_as_one_from_nothing(mean):
    epsilon, delta = epsilon_of(mean, 1e-5), 1e-5
    bound = between_contents(epsilon, delta, "zero-out")
    assert bound == between_contents(epsilon, delta, "remove")
    assert bound == pytest.approx((2 * epsilon, delta * (1 + math.exp(epsilon))))
    assert delta_of(2 * mean, bound.epsilon) <= bound.delta  # at -m and m, from 0
    assert between_contents(epsilon, delta, "replace") == (epsilon, delta)


def test_the_chain_is_met_by_randomised_response():
    """Without δ, k steps of e^ε are e^(kε)."""
    assert bound_of_several(0.5, 0.0, 4) == (2.0, 0.0)


def test_a_delta_of_one_promises_nothing():
    for bound in (
        bound_of_several(12.0, 1e-5, 2),
        bound_of_several(math.inf, 1e-5, 2),
        bound_of_several(1e4, 1e-5, 3),
    ):
        assert bound == (math.inf, 1.0)
    assert np.isfinite(bound_of_several(11.0, 1e-5, 2).epsilon)

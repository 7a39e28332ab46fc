"""Bounds of draws that are told: rounded up where that is enough, and ε = 0 only where δ allows it."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

from sfumato.privacy import accountant
from sfumato.privacy.losses.composition import LossComposition
from sfumato.privacy.losses.grid_losses import GridLosses
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import GaussianTerm, Sampling

DELTA = 1e-5


def seen(multiplier: float, count: int, rate: float) -> GaussianTerm:
    """A term whose draws are seen."""
    return GaussianTerm(multiplier, count, Sampling.revealed(rate))


MIXTURES = [
    [seen(3.0, 199, 0.7)],
    [seen(3.0, 199, 0.7), seen(4.0, 199, 0.5), seen(5.0, 20, 0.9)],
    [seen(3.0 + i / 7, 190 + i, 0.3 + i / 20) for i in range(10)],
    [GaussianTerm(6.0, 10), seen(40.0, 5000, 0.01), seen(60.0, 900, 0.2)],
    [seen(2.0, 6, 0.5), seen(3.0, 4, 0.25)],
]


@pytest.mark.parametrize("terms", MIXTURES)
def test_rounding_up_gives_an_upper_bound_that_is_near(terms):
    exact, rough = RevealedDraws.of(terms), RevealedDraws.of(terms, roughly=True)
    assert len(rough.squares) <= 2 * 257
    assert rough.probabilities.sum() + rough.lost == pytest.approx(1.0, abs=1e-10)
    for epsilon in np.linspace(0.0, 1.5 * exact.epsilon(DELTA), 25):
        assert rough.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-12)
    assert exact.epsilon(DELTA) <= rough.epsilon(DELTA) <= 1.05 * exact.epsilon(DELTA)


def test_few_outcomes_are_not_rounded():
    terms = MIXTURES[-1]
    assert RevealedDraws.of(terms, roughly=True).squares.tolist() == RevealedDraws.of(terms).squares.tolist()


@pytest.mark.parametrize("terms", MIXTURES)
def test_epsilon_is_0_just_where_delta_at_0_allows_it(terms):
    mixture = RevealedDraws.of(terms)
    at_zero = mixture.delta(0.0)
    assert mixture.epsilon(min(at_zero * (1 + 1e-9), 1 - 1e-12)) == 0.0
    assert mixture.epsilon(at_zero) == 0.0
    below = mixture.epsilon(at_zero * 0.999)
    assert below > 0
    assert mixture.delta(below) <= at_zero * 0.999 * (1 + 1e-12)


def test_delta_at_0_is_not_evaluated_where_a_larger_epsilon_shows_that_it_is_above(monkeypatch):
    asked = []
    real = RevealedDraws.is_within
    monkeypatch.setattr(RevealedDraws, "is_within", lambda *given: asked.append(given) or real(*given))
    found = RevealedDraws.of(MIXTURES[1]).epsilon(DELTA)
    assert found > 0
    assert len(asked) <= 1


def test_one_term_that_is_surely_above_decides_without_the_others(monkeypatch):
    asked = []
    real = accountant.is_within_when_told

    def within(terms, epsilon, delta):
        asked.append(terms)
        return real(terms, epsilon, delta)

    monkeypatch.setattr(accountant, "is_within_when_told", within)
    large, small = seen(2.0, 150, 0.8), seen(9.0, 100, 0.5)
    alone = RevealedDraws.of([large]).epsilon(DELTA)
    assert accountant._is_surely_above((small, large), 0.9 * alone, DELTA, roughly=True)
    assert asked == [(large,)]


@pytest.mark.parametrize("share", [0.9, 0.999, 1.001, 1.1])
def test_whether_terms_are_surely_above_is_what_all_of_them_say(share):
    terms = (seen(2.0, 150, 0.8), seen(3.0, 100, 0.5), GaussianTerm(4.0, 3))
    epsilon = share * RevealedDraws.of(terms).epsilon(DELTA)
    assert accountant._is_surely_above(terms, epsilon, DELTA, roughly=True) == (share < 1)


def test_only_rough_compositions_round_up():
    terms = (*MIXTURES[2], GaussianTerm(30.0, 9, Sampling.poisson(0.4)))
    known = 0.5 * RevealedDraws.of(MIXTURES[2]).epsilon(DELTA)
    exact = RevealedDraws.of(accountant.merged_terms(terms)).epsilon(DELTA)
    rough, method = accountant.composed_epsilon(terms, "zero-out", DELTA, known, roughly=True)
    assert method == "gdp"
    assert exact < rough <= 1.05 * exact
    certain = (*terms, GaussianTerm(0.002, 1))
    most = RevealedDraws.of(accountant.merged_terms(certain)).epsilon(DELTA)
    found, method = accountant.composed_epsilon(certain, "zero-out", DELTA, known)
    assert method == "gdp"
    assert found == pytest.approx(most, rel=1e-9)


def test_a_composition_keeps_few_tilts_and_ends_with_its_last_reference():
    masses = np.full(200, 1 / 200)
    composed = LossComposition([(GridLosses(-50, masses, 0.0), 3)], 0.01)
    again = [composed.delta(epsilon) for epsilon in (0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 0.1)]
    assert again[0] == again[-1]
    assert len(composed._found) <= 4
    gone = weakref.ref(composed)
    gc.disable()
    try:
        del composed
        assert gone() is None
    finally:
        gc.enable()
    assert math.isfinite(sum(again))

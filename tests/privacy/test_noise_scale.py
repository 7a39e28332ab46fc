"""The factor on all noise: searched for on a coarse grid, and confirmed on the fine one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sfumato.privacy import noise_scale
from sfumato.privacy.accountant import compose
from sfumato.privacy.charges import Composition
from sfumato.privacy.noise_scale import _refine_factor, calibrate_scale, scale_for
from sfumato.privacy.sampling import GaussianTerm, Sampling

DELTA = 1e-5


def terms_at(factor: float) -> list[GaussianTerm]:
    return [GaussianTerm(1.5 * factor, 40, Sampling.poisson(0.3)), GaussianTerm(4.0 * factor, 5)]


def epsilon_at(factor: float) -> float:
    return compose(terms_at(factor), neighbours="zero-out").epsilon(DELTA)


@pytest.fixture
def grids(monkeypatch):
    """How much wider than the finest each grid was on which something was composed."""
    found: list[float] = []

    def counted(terms, *, neighbours, coarser=1.0):
        found.append(coarser)
        return compose(terms, neighbours=neighbours, coarser=coarser)

    monkeypatch.setattr(noise_scale, "compose", counted)
    noise_scale._sampled_scale.cache_clear()
    return found


@pytest.mark.parametrize("target", [0.7, 6.0])
def test_the_fine_grid_confirms_the_factor(target, grids):
    factor = calibrate_scale(terms_at(1.0), target_epsilon=target, delta=DELTA, neighbours="zero-out")
    assert grids.count(1.0) <= 5  # two of them only ask for a method
    assert epsilon_at(factor) <= target < epsilon_at(factor * (1 - 1e-4))


@pytest.mark.parametrize("wrong", [0.6, 1.001, 2.0])
@pytest.mark.parametrize("steeper", [0.7, 1.0, 1.5])
def test_a_rough_curve_that_is_wrong_leads_to_no_wrong_factor(wrong, steeper):
    def spent(factor: float) -> float:
        return 3.0 / factor + 1.0 / factor**2

    def roughly(factor: float) -> float:
        return wrong * spent(factor) ** steeper

    near = noise_scale._smallest_factor(roughly, 2.0, 1.0)
    found = _refine_factor(spent, roughly, 2.0, near)
    root = (3 + math.sqrt(17)) / 4
    assert root <= found <= root * (1 + 1.5e-4)


def test_a_rough_curve_without_a_slope_is_not_followed():
    found = _refine_factor(lambda factor: 1 / factor, lambda factor: 2.0, 2.0, 1.0)
    assert 0.5 <= found <= 0.5 * (1 + 1e-4)


def test_of_several_ways_the_least_factor_counts(monkeypatch):
    """Ways that need more are not solved for; the result is that of the best, in any order."""
    ways = [Composition(tuple(terms_at(share)), "zero-out", "") for share in (1.0, 0.5, 1.2, 1.2)]
    alone = [scale_for([way], epsilon=3.0, delta=DELTA) for way in ways]
    solved = []
    solve = noise_scale._scale
    monkeypatch.setattr(
        noise_scale, "_scale", lambda *arguments: solved.append(arguments) or solve(*arguments)
    )
    assert scale_for(ways, epsilon=3.0, delta=DELTA) == min(alone)
    assert len(solved) == 1  # one of the two that all others are surely at least
    assert scale_for(ways[::-1], epsilon=3.0, delta=DELTA) == min(alone)
    assert len(solved) == 2
    lost = replace(ways[0], failure_probability=2 * DELTA)
    assert scale_for([lost], epsilon=3.0, delta=DELTA) == math.inf

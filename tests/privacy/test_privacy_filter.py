"""The filter never lets a sum of squares pass its budget, whatever is asked of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.privacy.privacy_filter import GaussianFilter, squared_mu_of_exposure
from sfumato.privacy.release import DrawnReleases, Exposure, Release
from sfumato.privacy.sampling import Sampling


def exposure(*counted: tuple[Release, int]) -> Exposure:
    return Exposure("flow", tuple(DrawnReleases(Sampling(), (release,), n) for release, n in counted))


def test_squared_mu_is_the_sum_over_releases() -> None:
    a = Release("a", "v", 2.0, 0.0, 4.0, True)
    b = Release("b", "v", 1.0, 1.0, 2.0, True)
    assert squared_mu_of_exposure(exposure((a, 3), (b, 1)), "zero-out") == pytest.approx(3 * 1.0 + 4.0 / 2)
    assert squared_mu_of_exposure(exposure((a, 3), (b, 1)), "replace") == pytest.approx(3 * 4.0 + 9.0 / 2)


def test_no_noise_is_no_guarantee_and_no_contribution_costs_nothing() -> None:
    assert (
        squared_mu_of_exposure(exposure((Release("a", "v", 1.0, 0.0, 0.0, True), 1)), "zero-out") == math.inf
    )
    assert squared_mu_of_exposure(exposure((Release("a", "v", 0.0, 0.0, 0.0, True), 1)), "zero-out") == 0.0


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    units=st.integers(1, 4),
    observers=st.integers(1, 3),
    rounds=st.integers(1, 30),
)
def test_what_is_allowed_never_passes_the_budget(seed: int, units: int, observers: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    budget = rng.random((units, observers)) * 5
    state, total = GaussianFilter.fresh(budget), np.zeros((units, observers))
    for _ in range(rounds):
        chosen = np.flatnonzero(rng.random(units) < 0.7)
        charge = rng.random((len(chosen), observers)) * 2
        if not state.allows(charge, chosen):
            with pytest.raises(ValueError, match="more than the budget"):
                state.after(charge, chosen)
            continue
        state = state.after(charge, chosen)
        total[chosen] += charge
    assert np.allclose(state.spent, total)
    assert np.all(total <= budget * (1 + 1e-9))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), times=st.integers(1, 50))
def test_spread_noise_spends_the_tightest_budget_exactly(seed: int, times: int) -> None:
    rng = np.random.default_rng(seed)
    state = GaussianFilter.fresh(rng.random((3, 2)) + 0.1)
    everybody = np.arange(3)
    for left in range(times, 0, -1):
        charge = rng.random((3, 2)) + 0.01
        factor = state.noise_factor(charge, everybody, left)
        state = state.after(charge / factor**2, everybody)
    assert np.max(state.spent / state.budget) == pytest.approx(1.0, rel=1e-9)


def test_nothing_left_asks_for_infinite_noise_and_no_promise_for_none() -> None:
    full = GaussianFilter(np.ones((1, 1)), np.ones((1, 1)))
    assert full.noise_factor(np.ones((1, 1)), [0], 1) == math.inf
    unbounded = GaussianFilter.fresh(np.full((1, 1), np.inf))
    assert unbounded.noise_factor(np.ones((1, 1)), [0], 1) == 0.0
    assert unbounded.allows(np.full((1, 1), 1e9), [0])

"""Problem P: the grid's minimum is the minimum, and moves the way the paper says."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.adaptive_control.problem import Costs, Gap, RoundChoice, Weights, minimise

STRENGTH = math.log(1e5) / 120**2  # c2 = 1, epsilon = 1, batches of 10 of 1,200
POSITIVE = st.floats(1e-3, 1e3)


def nu(gap: Gap, tau: int, s_t: int, s_u: int) -> float:
    """Term (b) of (33), edge by edge."""
    edges = gap.trusted + gap.untrusted
    factor = 4 * tau * (gap.local_aggregations**3 + 1) * gap.parameters * gap.clip**2 / edges**2
    total = 0.0
    for edge in range(edges):
        p = 1 if edge < gap.trusted else 0
        s = s_t if p else s_u
        total += p * gap.strength / s**2 + (1 - p) * gap.strength / s
    return factor * total


def brute(remaining, steps, s_t, s_u, costs, gap, weights) -> float:
    k = gap.local_aggregations
    best = math.inf
    for tau, (i, a), (j, b) in itertools.product(steps, enumerate(s_t), enumerate(s_u)):
        rounds = remaining / tau
        value = weights.energy * rounds * (costs.energy_global[i, j] + k * costs.energy_local[i, j])
        value += weights.delay * rounds * (costs.delay_global[i, j] + k * costs.delay_local[i, j])
        value += weights.gap * nu(gap, int(tau), int(a), int(b)) / weights.scale
        best = min(best, value)
    return best


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 4)),
    alphas=st.tuples(POSITIVE, POSITIVE, POSITIVE, POSITIVE),
    trusted=st.integers(0, 5),
    untrusted=st.integers(1, 5),
    k=st.integers(0, 4),
)
def test_the_grid_minimum_equals_brute_force(seed, sizes, alphas, trusted, untrusted, k) -> None:
    rng = np.random.default_rng(seed)
    n, a, b = sizes
    steps, s_t, s_u = np.arange(1, n + 1), np.arange(1, a + 1), np.arange(1, b + 1)
    costs = Costs(*(rng.random((a, b)) for _ in range(4)))
    gap = Gap(7840, 1.3, 0.05, trusted, untrusted, k)
    weights = Weights(*alphas)
    remaining = int(rng.integers(n, 4000))
    found = minimise(
        remaining=remaining,
        steps=steps,
        s_trusted=s_t,
        s_untrusted=s_u,
        costs=costs,
        gap=gap,
        weights=weights,
    )
    expected = brute(remaining, steps, s_t, s_u, costs, gap, weights)
    assert found.objective == pytest.approx(expected, rel=1e-12)
    assert found.gap == pytest.approx(
        weights.gap * nu(gap, found.steps, found.trusted, found.untrusted) / weights.scale, rel=1e-12
    )


def linear(most: int) -> tuple[np.ndarray, Costs]:
    s = np.arange(1, most + 1)
    table = (s[:, None] + s[None, :]).astype(float)
    return s, Costs(10 + 5 * table, 5 * table, 1 + 0.1 * table, 0.1 * table)


def chosen(energy: float = 1e-4, delay: float = 1e-4, gap: float = 1.0) -> RoundChoice:
    s, costs = linear(15)
    return minimise(
        remaining=4000,
        steps=np.arange(4, 41),
        s_trusted=s,
        s_untrusted=s,
        costs=costs,
        gap=Gap(7840, 1.0, STRENGTH, 5, 5, 3),
        weights=Weights(energy, delay, gap, 1.0),
    )


@pytest.mark.parametrize("which", ["energy", "delay"])
def test_dearer_communication_means_longer_intervals_and_fewer_devices(which: str) -> None:
    few = [chosen(**{which: alpha}) for alpha in (1e-6, 1e-4, 1e-2, 1.0)]
    assert [c.steps for c in few] == sorted(c.steps for c in few)
    assert [c.untrusted for c in few] == sorted((c.untrusted for c in few), reverse=True)
    assert (few[0].steps, few[0].untrusted) != (few[-1].steps, few[-1].untrusted)


def test_a_dearer_gap_means_shorter_intervals_and_more_devices() -> None:
    few = [chosen(gap=alpha) for alpha in (1e-3, 1e-1, 1e1, 1e3)]
    assert [c.steps for c in few] == sorted((c.steps for c in few), reverse=True)
    assert [c.untrusted for c in few] == sorted(c.untrusted for c in few)
    assert (few[0].steps, few[0].untrusted) != (few[-1].steps, few[-1].untrusted)


def test_tables_must_fit_and_candidates_must_exist() -> None:
    s, costs = linear(3)
    gap, weights = Gap(10, 1, 0.1, 1, 1, 1), Weights(1, 1, 1, 1)
    with pytest.raises(ValueError, match="shape"):
        minimise(remaining=10, steps=s, s_trusted=s[:2], s_untrusted=s, costs=costs, gap=gap, weights=weights)
    with pytest.raises(ValueError, match="at least one"):
        minimise(remaining=10, steps=s[:0], s_trusted=s, s_untrusted=s, costs=costs, gap=gap, weights=weights)

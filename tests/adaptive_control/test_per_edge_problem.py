"""Problem P edge by edge: its minimum is the whole grid's, and never above that of one number a kind."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.adaptive_control.per_edge_problem import EdgeCosts, EdgeProblem
from sfumato.adaptive_control.problem import Costs, Gap, Weights, minimise

ALPHA = st.sampled_from([0.0, 1e-3, 1.0, 1e3])


def drawn(seed: int, sizes: list[int], alphas: tuple[float, float, float], k: int) -> EdgeProblem:
    """A problem with random costs; edges of ``sizes``."""
    rng, most = np.random.default_rng(seed), max(sizes)
    there = np.arange(1, most + 1) <= np.array(sizes)[:, None]
    energy, delay = (
        np.where(there, scale * rng.random(there.shape).cumsum(axis=1), np.inf)
        for scale in rng.uniform(0.1, 10, size=2)
    )
    trusted = rng.random(len(sizes)) < 0.5
    gap = Gap(100, 1.3, 0.05, int(trusted.sum()), int((~trusted).sum()), k)
    costs = EdgeCosts(energy, delay, float(rng.random()), float(rng.random()))
    return EdgeProblem(int(rng.integers(5, 200)), costs, trusted, gap, Weights(*alphas, 3.0))


def objective(problem: EdgeProblem, tau: int, participants: tuple[int, ...]) -> float:
    """(34) as the paper has it, edge by edge."""
    costs, gap, k = problem.costs, problem.gap, problem.gap.local_aggregations
    edges = len(participants)
    energies = [costs.energy[c, s - 1] for c, s in enumerate(participants)]
    delays = [costs.delay[c, s - 1] for c, s in enumerate(participants)]
    rounds = problem.remaining / tau
    energy = rounds * (costs.energy_above + sum(energies) + k * sum(energies))
    delay = rounds * (costs.delay_above + max(delays) + k * sum(delays))
    shares = sum(1 / s**2 if problem.trusted[c] else 1 / s for c, s in enumerate(participants))
    nu = 4 * tau * (k**3 + 1) * gap.parameters * gap.clip**2 * gap.strength / edges**2 * shares
    weights = problem.weights
    return weights.energy * energy + weights.delay * delay + weights.gap * nu / weights.scale


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    alphas=st.tuples(ALPHA, ALPHA, ALPHA),
    k=st.integers(0, 3),
    longest=st.integers(1, 3),
)
def test_the_minimum_is_that_of_the_whole_grid(seed, sizes, alphas, k, longest) -> None:
    problem = drawn(seed, sizes, alphas, k)
    found = problem.minimise(np.arange(1, longest + 1))
    grid = itertools.product(range(1, longest + 1), itertools.product(*(range(1, n + 1) for n in sizes)))
    least = min(objective(problem, tau, several) for tau, several in grid)
    assert found.objective == pytest.approx(objective(problem, found.steps, found.participants), rel=1e-12)
    assert found.objective == pytest.approx(least, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), edges=st.integers(1, 12), alphas=st.tuples(ALPHA, ALPHA, ALPHA))
def test_one_number_for_each_kind_is_never_better(seed, edges, alphas) -> None:
    problem, s, k = drawn(seed, [6] * edges, alphas, 2), np.arange(1, 7), 2
    kind = np.where(problem.trusted, 0, 1)
    tables: list[list[list[float]]] = [[], [], [], []]
    for pair in itertools.product(s, s):
        chosen = np.array(pair)[kind] - 1
        energy, delay = (
            table[np.arange(edges), chosen] for table in (problem.costs.energy, problem.costs.delay)
        )
        rows = (energy.sum() + problem.costs.energy_above, energy.sum(), delay.max(), delay.sum())
        for table, value in zip(tables, rows, strict=True):
            table.append(value)
    energy_global, energy_local, delay_global, delay_local = (np.reshape(t, (6, 6)) for t in tables)
    delay_global = delay_global + problem.costs.delay_above
    reduced = minimise(
        remaining=problem.remaining,
        steps=np.arange(k + 1, 8),
        s_trusted=s,
        s_untrusted=s,
        costs=Costs(energy_global, energy_local, delay_global, delay_local),
        gap=problem.gap,
        weights=problem.weights,
    )
    found = problem.minimise(np.arange(k + 1, 8)).objective
    assert found <= reduced.objective * (1 + 1e-12)
    if edges == 1:
        assert found == pytest.approx(reduced.objective)


def test_nobody_makes_the_others_wait_for_nothing() -> None:
    """A slow edge sets the wait; a fast one may then send more at no cost, and only then."""
    delay = np.array([[5.0, 50.0], [1.0, 5.0]])
    costs = EdgeCosts(np.zeros((2, 2)), delay, 0.0, 0.0)
    gap = Gap(1, 1.0, 1.0, 0, 2, 0)
    problem = EdgeProblem(10, costs, np.zeros(2, dtype=bool), gap, Weights(0.0, 1.0, 1.0, 1.0))
    assert problem.minimise(np.array([1])).participants == (1, 2)


def test_there_must_be_an_interval() -> None:
    problem = drawn(0, [1], (1.0, 1.0, 1.0), 0)
    with pytest.raises(ValueError, match="at least one"):
        problem.minimise(np.arange(0))
    assert math.isfinite(problem.minimise(np.array([3])).objective)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), alphas=st.tuples(ALPHA, ALPHA, ALPHA))
def test_more_local_aggregations_never_lower_the_minimum(seed, alphas) -> None:
    """Why K_l is given and not chosen: as a variable of P it would be 0, whatever the weights."""
    found = [drawn(seed, [3, 2, 3], alphas, k).minimise(np.arange(k + 1, 12)).objective for k in range(5)]
    assert all(fewer <= more * (1 + 1e-12) for fewer, more in itertools.pairwise(found))
    if all(alphas):
        assert found[0] < found[-1]

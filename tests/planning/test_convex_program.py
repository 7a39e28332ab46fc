"""The convex programme against closed forms and finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.planning.convex_program import Constraint, minimise_variance

pytestmark = pytest.mark.needs("plan")

SIZES = st.floats(0.2, 5.0)


def separate(counts, sensitivities, most):
    """One constraint, every release behind a source of its own."""
    squares = np.asarray(counts) * np.asarray(sensitivities) ** 2
    return Constraint(squares, np.eye(len(squares)), np.zeros(len(squares)), most)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 600), SIZES, SIZES), min_size=1, max_size=5), st.floats(0.1, 10.0))
def test_one_target_is_the_closed_form(kinds, mu):
    n, delta, w = (np.array(column, dtype=float) for column in zip(*kinds, strict=True))
    found = minimise_variance(n * w, [separate(n, delta, mu**2)])
    total = (n * delta * np.sqrt(w)).sum()
    np.testing.assert_allclose(found.intensities, delta / np.sqrt(w) * total / mu**2, rtol=1e-3)
    assert found.value == pytest.approx(total**2 / mu**2, rel=1e-6)
    assert found.elasticities == pytest.approx([1.0], rel=1e-4)


def test_fixed_noise_is_counted():
    constraint = Constraint(np.array([1.0]), np.array([[1.0]]), np.array([3.0]), 0.2)
    assert minimise_variance(np.ones(1), [constraint]).intensities == pytest.approx([2.0], rel=1e-6)


def test_a_shared_source_costs_least_where_it_serves_two():
    # x alone, y alone, z in both: z serves both at the price of one
    slopes = [np.array([[1.0, 0, 1]]), np.array([[0, 1.0, 1]])]
    constraints = [Constraint(np.ones(1), slope, np.zeros(1), 0.5) for slope in slopes]
    found = minimise_variance(np.array([1.0, 1.0, 1.5]), constraints)
    np.testing.assert_allclose(found.intensities, [0, 0, 2], atol=1e-5)
    assert found.elasticities.sum() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_elasticities_are_what_a_larger_bound_saves(seed):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 2, 4)
    slopes = [rng.uniform(0, 1, (3, 4)) * (rng.random((3, 4)) < 0.7) + 0.01 for _ in range(3)]
    squares, most = rng.uniform(0.5, 2, (3, 3)), rng.uniform(0.5, 1.5, 3)

    def solved(most):
        return minimise_variance(
            weights, [Constraint(s, a, np.zeros(3), m) for s, a, m in zip(squares, slopes, most, strict=True)]
        )

    found, step = solved(most), 1e-3
    assert found.elasticities.sum() == pytest.approx(1.0, rel=1e-4)  # the value is homogeneous in all bounds
    for number in range(3):
        factor = np.ones(3)
        factor[number] = 1 + step
        slope = np.log(solved(most / factor).value / solved(most * factor).value) / (2 * np.log1p(step))
        assert found.elasticities[number] == pytest.approx(slope, abs=2e-3)

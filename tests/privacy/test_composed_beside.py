"""What a bound of one pair is charged beside another: coarser only where it cannot be the smallest."""

from __future__ import annotations

import math

import pytest

from sfumato.privacy.accountant import composed_epsilon
from sfumato.privacy.charges import Composition, smallest_epsilon
from sfumato.privacy.sampling import GaussianTerm, Sampling

CERTAIN = GaussianTerm(0.1, 3)
DRAWN = GaussianTerm(4.0, 10, Sampling.poisson(0.3))
FEW_DRAWN = GaussianTerm(40.0, 10, Sampling.poisson(0.3))


def test_a_bound_below_the_known_one_is_never_charged_coarsely():
    fine = composed_epsilon((CERTAIN, FEW_DRAWN), "zero-out", 1e-5)
    assert composed_epsilon((CERTAIN, FEW_DRAWN), "zero-out", 1e-5, math.inf) == fine
    certain = composed_epsilon((CERTAIN,), "zero-out", 1e-5)[0]
    assert composed_epsilon((CERTAIN, FEW_DRAWN), "zero-out", 1e-5, certain * 1.001) == fine


def test_a_bound_above_the_known_one_stays_above_it_and_is_still_a_bound():
    fine = composed_epsilon((CERTAIN, FEW_DRAWN), "zero-out", 1e-5)[0]
    known = composed_epsilon((CERTAIN,), "zero-out", 1e-5)[0] / 2
    coarse, method = composed_epsilon((CERTAIN, FEW_DRAWN), "zero-out", 1e-5, known)
    assert known < fine <= coarse <= fine * 1.001
    assert method == "gdp"


def test_draws_that_matter_are_charged_finely_beside_a_smaller_bound():
    fine = composed_epsilon((DRAWN,), "zero-out", 1e-5)
    assert composed_epsilon((DRAWN,), "zero-out", 1e-5, 0.0) == fine
    assert fine[1] == "pld"
    heavy = (GaussianTerm(2.0, 1), DRAWN)
    assert composed_epsilon(heavy, "zero-out", 1e-5, 0.0) == composed_epsilon(heavy, "zero-out", 1e-5)


@pytest.mark.parametrize(
    ("multipliers", "apart", "smaller"),
    [
        ((1.0, 1.0), (1.0, 1.0), "pld"),
        ((1.0, 0.95), (1.0, 1.0), "pld"),
        ((1.0, 1.0), (40.0, 40.0), "gdp"),
        ((2.0, 1.0), (40.0, 40.0), "gdp"),
    ],
)
def test_the_smallest_of_a_seen_and_a_hidden_draw_is_that_of_both(
    multipliers: tuple[float, float], apart: tuple[float, float], smaller: str
) -> None:
    """Whether the draw amplifies little or much, in either order; the ε of the larger is not needed.

    Where the hidden way has less noise, its bound with every draw told is larger than the seen way's.
    """
    seen = (GaussianTerm(multipliers[0], 5, Sampling.revealed(0.2)),)
    hidden = (GaussianTerm(multipliers[1], 5, Sampling.without_replacement(10, 2, apart)),)
    each = {terms: composed_epsilon(terms, "zero-out", 1e-5) for terms in (seen, hidden)}
    for order in ((seen, hidden), (hidden, seen)):
        ways = [Composition(terms, "zero-out", "") for terms in order]
        found = smallest_epsilon(ways, 5, delta=1e-5)
        assert (found.epsilon, found.method) == min(each.values())
        assert found.method == smaller


def test_a_way_that_fails_too_often_leaves_the_other_one() -> None:
    seen, hidden = (
        (GaussianTerm(1.0, 5, draw),)
        for draw in (Sampling.revealed(0.2), Sampling.without_replacement(10, 2, (1.0, 1.0)))
    )
    ways = [Composition(seen, "zero-out", ""), Composition(hidden, "zero-out", "", failure_probability=1e-5)]
    found = smallest_epsilon(ways, 5, delta=1e-5)
    assert (found.epsilon, found.method) == composed_epsilon(seen, "zero-out", 1e-5)

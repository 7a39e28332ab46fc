"""What a bound of one pair is charged beside another: coarser only where it cannot be the smallest."""

from __future__ import annotations

import math

from sfumato.privacy.composition_cache import composed_epsilon
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

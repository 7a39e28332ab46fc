"""Noise that arrives has the law of OpenDP's sampler of discrete Gaussians (`pip install opendp`)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from test_deployed_noise import COUNT, ERROR, IntArray, arrived


def drawn_by_opendp(std: float) -> IntArray:
    """As many draws of N_Z(0, std²) by OpenDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T="i64"), size=COUNT)
    return np.array(dp.m.make_gaussian(vectors, dp.l2_distance(T="f64"), scale=std)([0] * COUNT))


def p_value(one: IntArray, other: IntArray) -> float:
    """χ² of two samples in bins of about equal number."""
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.arange(1, 40) / 40).astype(np.int64))
    counts = [
        np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1) for sample in (one, other)
    ]
    some = np.sum(counts, axis=0) > 20
    return float(stats.chi2_contingency([count[some] for count in counts]).pvalue)


@pytest.mark.needs("opendp")
@pytest.mark.filterwarnings("ignore")  # of the package
@pytest.mark.parametrize("std", [0.8, 3.0, 3e3, 1e6])
def test_opendp_draws_from_the_same_law_and_from_no_other_scale(std: float) -> None:
    """Error below 1e-6 a test."""
    values = arrived(std)
    assert p_value(values, drawn_by_opendp(std)) > ERROR
    for wrong in (std * 2 / 3, std * 3 / 2):
        assert p_value(values, drawn_by_opendp(wrong)) < ERROR

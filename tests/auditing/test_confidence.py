import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.auditing.tradeoff import largest_probability, least_probability


@given(st.integers(1, 300), st.floats(0, 1), st.floats(1e-9, 0.4))
def test_bounds_are_the_exact_ones(trials: int, share: float, error: float) -> None:
    hits = round(share * trials)
    interval = stats.binomtest(hits, trials).proportion_ci(1 - 2 * error, method="exact")
    assert least_probability(hits, trials, error=error) == pytest.approx(interval.low, rel=1e-6, abs=1e-12)
    assert largest_probability(hits, trials, error=error) == pytest.approx(interval.high, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("rate", [0.001, 0.03, 0.5, 0.9])
def test_coverage_over_all_outcomes(rate: float) -> None:
    trials, error = 60, 0.01
    hits = np.arange(trials + 1)
    chances = stats.binom.pmf(hits, trials, rate)
    assert chances[least_probability(hits, trials, error=error) > rate].sum() <= error
    assert chances[largest_probability(hits, trials, error=error) < rate].sum() <= error


def test_no_hit_and_only_hits() -> None:
    assert least_probability(0, 10, error=0.01) == 0
    assert largest_probability(10, 10, error=0.01) == 1
    assert largest_probability(0, 10, error=0.01) == pytest.approx(1 - 0.01**0.1)


@pytest.mark.parametrize(("hits", "trials", "error"), [(-1, 5, 0.1), (6, 5, 0.1), (1, 0, 0.1), (1, 5, 0.0)])
def test_refuses_what_is_no_count(hits: int, trials: int, error: float) -> None:
    with pytest.raises(ValueError, match="got"):
        least_probability(hits, trials, error=error)

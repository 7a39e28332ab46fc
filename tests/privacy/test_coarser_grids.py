"""Grids of losses that are as coarse as costs nothing, and accounts that compose only what they need."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.privacy import accountant, noise_scale
from sfumato.privacy.accountant import composed_epsilon
from sfumato.privacy.charges import Composition
from sfumato.privacy.losses import hidden_draws
from sfumato.privacy.losses.hidden_draws import PrivacyLoss
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.noise_scale import scale_for
from sfumato.privacy.sampling import GaussianTerm, Sampling, merged_terms

SHARE = 1e-5  # by which a coarser grid may make ε larger


def draw_of(kind: str, rate: float) -> Sampling:
    match kind:
        case "poisson":
            return Sampling.poisson(rate)
        case "replaced":
            return Sampling.poisson(rate, apart=0.5)
        case "fixed":
            return Sampling.without_replacement(max(2, round(2 / rate)), 2, (2.0, 1.0))
    return Sampling.of_batches([(rate / 2, 1.0, 0.5), (rate / 2, 0.5, 0.5)], shares_a_part=False)


@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(["poisson", "replaced", "fixed", "batches"]),
    rate=st.floats(0.005, 0.95),
    multiplier=st.floats(0.2, 3.0),
    count=st.integers(1, 300),
    certain=st.sampled_from([0, 3]),
    delta=st.sampled_from([1e-3, 1e-5, 1e-8]),
)
@example(kind="poisson", rate=0.005, multiplier=1 / 5, count=200, certain=0, delta=1e-5)  # few, large losses
@example(kind="fixed", rate=0.5, multiplier=0.8, count=15, certain=0, delta=1e-5)
def test_a_coarser_grid_adds_a_hundred_thousandth_at_most(
    kind: str, rate: float, multiplier: float, count: int, certain: int, delta: float
) -> None:
    terms = [GaussianTerm(multiplier, count, draw_of(kind, rate))]
    terms += [GaussianTerm(2 * multiplier, certain)] if certain else []
    revealed = RevealedDraws.of(merged_terms(terms))
    coarser = hidden_draws.grid_interval(terms, revealed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hidden_draws, "_COARSER", 0.0)
        fine = hidden_draws.grid_interval(terms, revealed)
    assert fine <= coarser <= max(fine, 0.02)
    if fine < coarser:
        least = PrivacyLoss(terms, fine).epsilon(delta)
        assert least * (1 - 1e-9) <= PrivacyLoss(terms, coarser).epsilon(delta) <= least * (1 + SHARE)


HIDDEN = (GaussianTerm(0.9, 15, Sampling.without_replacement(12, 2, (2.0, 1.0))),)
MORE = (GaussianTerm(0.8, 15, Sampling.without_replacement(12, 2, (2.0, 1.0))),)
SEEN = (GaussianTerm(0.9, 15, Sampling.revealed(2 / 12)),)


def test_a_way_that_another_is_surely_at_most_is_not_solved_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    solve = noise_scale._scale

    def counted(terms: tuple[GaussianTerm, ...], *rest: object) -> float:
        asked.append(terms)
        return solve(terms, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(noise_scale, "_scale", counted)
    ways = [Composition(terms, "zero-out", "") for terms in (SEEN, HIDDEN, MORE)]
    found = scale_for(ways, epsilon=3.0, delta=1e-5)
    assert asked == [SEEN, HIDDEN]
    each = [scale_for([way], epsilon=3.0, delta=1e-5) for way in ways]
    assert found == min(each)
    assert each[1] < each[2]


@settings(max_examples=40, deadline=None)
@given(
    sure=st.integers(0, 3),
    multiplier=st.floats(0.3, 5.0),
    rate=st.floats(1e-4, 0.5),
    known=st.floats(0.0, 30.0),
)
def test_draws_are_told_only_beside_a_smaller_bound(
    sure: int, multiplier: float, rate: float, known: float
) -> None:
    """The rule as it is said: both bounds by roots, whether or not they are needed."""
    terms = (GaussianTerm(9.0, 2, Sampling.poisson(rate)),)
    terms += (GaussianTerm(multiplier, sure),) if sure else ()
    ordered = tuple(merged_terms(terms))
    sure_ones = accountant._not_drawn(ordered)
    least, most = (accountant._with_draws_seen(some, 1e-5) for some in (sure_ones, ordered))
    found = composed_epsilon(terms, "zero-out", 1e-5, known)
    if known < least * (1 - 1e-9) and most <= least * (1 + 1e-3):
        assert found == (most, "gdp")
    elif known > least * (1 + 1e-9) or math.isclose(least, 0.0):
        assert found == accountant._composed(ordered, "zero-out", 1e-5)

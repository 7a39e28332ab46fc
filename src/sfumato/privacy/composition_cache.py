"""ε of composed terms: every result is kept, and draws may be charged as seen where that is good enough."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache, lru_cache

from sfumato.privacy.accountant import compose, compose_roughly
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling, merged_terms

_AS_GOOD_AS_CERTAIN = 1e-3


@lru_cache(maxsize=1024)
def revealed_draws_of(terms: tuple[GaussianTerm, ...]) -> RevealedDraws:
    """The bound of ``terms`` for an observer who is told every draw."""
    return RevealedDraws.of(terms)


def composed_epsilon(
    terms: Iterable[GaussianTerm],
    neighbours: Neighbours,
    delta: float,
    known: float = math.inf,
    roughly: bool = False,
) -> tuple[float, str]:
    """The ε of the composition of ``terms`` at ``delta``, an upper bound; their order does not matter.

    Results are cached. Where ``known`` is sure to be smaller, a larger ε that is quick to compute may be
    returned: every draw is charged as if the observer saw it, without amplification. It is a bound too.

    Args:
        terms: what is composed.
        neighbours: the relation they refer to.
        delta: of the ε, in (0, 1).
        known: the ε of another bound of the same pair, or ∞ to compute in full. Draws are charged as seen if
            the terms without sampling alone have a larger ε than ``known``, and the draws add little to it.
        roughly: whether ε may be up to 2 % larger (`compose_roughly`). Then draws are charged as seen,
            whatever that adds, if the terms without sampling or with draws that are seen alone have a larger
            ε than ``known``.

    Returns:
        ε, ∞ where nothing protects, and the name of the method: ``gdp`` or ``pld``.
    """
    ordered = merged_in_order(tuple(terms))
    is_drawn = any(term.sampling is not None for term in ordered)  # else `_composed` is quick, and the same
    sure = _not_drawn(ordered, or_seen=roughly)
    if is_drawn and known < math.inf and sure and not revealed_draws_of(sure).is_within(known, delta):
        most = _with_draws_seen(ordered, delta)
        if roughly or most <= _with_draws_seen(_not_drawn(ordered), delta) * (1 + _AS_GOOD_AS_CERTAIN):
            return most, "gdp"
    return _composed(ordered, neighbours, delta, roughly)


@lru_cache(maxsize=4096)
def merged_in_order(terms: tuple[GaussianTerm, ...]) -> tuple[GaussianTerm, ...]:
    """``terms`` with equal ones merged, in an order that does not depend on how they came."""
    return tuple(merged_terms(terms))


def _not_drawn(terms: tuple[GaussianTerm, ...], *, or_seen: bool = False) -> tuple[GaussianTerm, ...]:
    """Those ``terms`` that the unit is in for certain; ``or_seen``: also those whose draws are all seen."""
    return tuple(term for term in terms if term.rate == 1 or (or_seen and is_seen(term.sampling)))


def is_seen(draw: Sampling | None) -> bool:
    """Whether ``draw`` is seen, and nothing else is drawn."""
    return draw is not None and not (draw.hidden or draw.scales or draw.seen_scales)


@cache
def _with_draws_seen(terms: tuple[GaussianTerm, ...], delta: float) -> float:
    """The ε of merged ``terms`` at ``delta`` for an observer who is told every draw; every result is kept."""
    return revealed_draws_of(terms).epsilon(delta)


@cache
def _composed(
    terms: tuple[GaussianTerm, ...], neighbours: Neighbours, delta: float, roughly: bool = False
) -> tuple[float, str]:
    """The ε of merged ``terms`` at ``delta`` and its method; every result is kept."""
    if roughly:
        return compose_roughly(terms, neighbours=neighbours, delta=delta).smallest(delta)
    return compose(terms, neighbours=neighbours).smallest(delta)

"""Which charge is at most another, told without composing either of them.

A charge is at most another if its releases can be had from the other's by adding noise, by leaving the unit
out more often, or by leaving releases out. Then every ε of it is at most that of the other, at every δ
(docs/accounting.md, "Rows that stand for unequal pairs", derives the rules).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter

import numpy as np

from sfumato.privacy.charges import Composition
from sfumato.privacy.sampling import GaussianTerm, Sampling, squared_mu_of_term

Ways = tuple[Composition, ...]
"""Every sound way to charge one pair; the smallest result counts."""

_HOW_OFTEN = ("rate", "population", "sample")
_but_for_rate = attrgetter(*(field.name for field in fields(Sampling) if field.name not in _HOW_OFTEN))


def are_ways_at_most(ways: Ways, other: Ways) -> bool:
    """Whether the smallest ε of ``ways`` is known to be at most that of ``other`` at every δ.

    ``False`` proves nothing. Both are the sound ways to charge one pair each, one or more.
    """
    return all(any(is_at_most(one, against) for one in ways) for against in other)


def undominated(ways: Ways) -> Ways:
    """``ways``, in their order, without those whose ε is surely at least that of another one at every δ.

    So the smallest ε of the result is that of ``ways``. Of two that are at most each other the first stays,
    so the result is empty only if ``ways`` is.
    """
    return tuple(
        way
        for number, way in enumerate(ways)
        if not any(
            is_at_most(other, way) and (place < number or not is_at_most(way, other))
            for place, other in enumerate(ways)
            if place != number
        )
    )


def is_at_most(charge: Composition, other: Composition) -> bool:
    """Whether ε of ``charge`` is known to be at most that of ``other`` at every δ.

    Releases that always use the unit amount to one Gaussian, so their μ² are added up; others are compared
    term by term, in the order they are in.

    Args:
        charge: one way of charging a pair.
        other: a way of charging the same or another pair.

    Returns:
        ``True`` only if it is proved; ``False`` proves nothing.
    """
    if charge.neighbours != other.neighbours or charge.failure_probability > other.failure_probability:
        return False
    certain, drawn = charge.certain_and_drawn
    certain_of_other, drawn_of_other = other.certain_and_drawn
    if certain > certain_of_other or len(drawn) != len(drawn_of_other):
        return False
    return all(map(_is_term_at_most, drawn, drawn_of_other))


def _is_term_at_most(term: GaussianTerm, other: GaussianTerm) -> bool:
    """Whether ``term`` has no less noise, no more releases and no likelier a draw than ``other``."""
    if term.multiplier < other.multiplier or term.count > other.count:
        return False
    if term.sampling == other.sampling:
        return True
    assert term.sampling is not None
    assert other.sampling is not None
    return _is_draw_at_most(term.sampling, other.sampling)


def _is_draw_at_most(draw: Sampling, other: Sampling) -> bool:
    """Whether ``draw`` is the same kind of draw as ``other`` and uses the unit at most as often."""
    if draw.rate > other.rate or draw.kind == "batches" or draw.kind != other.kind:
        return False
    return bool(_but_for_rate(draw) == _but_for_rate(other))


def approximate_size(ways: Ways) -> float:
    """A rough size of what the first of ``ways`` charges: the sum over its terms of count · rate · μ².

    ∞ if a term is without noise or the way fails for certain. A sort key: of charges with one way each, a
    charge that `is_at_most` another has no larger size.
    """
    way = ways[0]
    if way.failure_probability >= 1 or any(term.multiplier == 0 for term in way.terms):
        return math.inf
    return math.fsum(term.count * term.rate * squared_mu_of_term(term) for term in way.terms)


def monotone_figures(ways: Ways) -> tuple[float, ...]:
    """Ten figures of ``ways``, each no larger than that of any ways which they are known to be at most.

    They are quick to compare; `are_ways_at_most` is ``False`` of ways with a larger one. For a single way
    five figures are computed: failure probability, summed μ² of the terms without sampling, and of the
    sampled terms the largest μ, the largest rate and the largest count (0 without such terms).

    Returns:
        The smallest value of each of the five among the ways without a hidden draw, then the smallest among
        those with one: a way with a hidden draw is known to be at most only another such way. ∞ where there
        is none of the kind.
    """
    seen, hidden = list[tuple[float, ...]](), list[tuple[float, ...]]()
    for way in ways:
        certain, drawn = way.certain_and_drawn
        hides, mu, rate, count = False, 0.0, 0.0, 0
        for term in drawn:
            assert term.sampling is not None
            hides = hides or term.sampling.hidden
            mu = max(mu, 1 / term.multiplier if term.multiplier else math.inf)
            rate, count = max(rate, term.sampling.rate), max(count, term.count)
        (hidden if hides else seen).append((way.failure_probability, certain, mu, rate, count))
    none = (math.inf,) * 5
    return tuple(least for some in (seen, hidden) for least in map(min, zip(*(some or [none]), strict=True)))


def chains(
    sizes: Sequence[float], known: Sequence[Sequence[float]], is_under: Callable[[int, int], bool]
) -> list[list[int]]:
    """Sort charges into chains: each charge provably has at most the ε of the one before it in its chain.

    Args:
        sizes: `approximate_size` of every charge, ``[charges]``; charges are entered from the largest size
            on.
        known: `monotone_figures` of every charge, ``[charges][figures]``; they rule out quickly most chains
            whose last charge is not known to have at least the ε of a charge.
        is_under: whether the charge with the first number provably has at most the ε of that with the
            second.

    Returns:
        The chains, each a list of the numbers of its charges; every charge is in exactly one.
    """
    figures, found = np.array(known, dtype=np.float64), list[list[int]]()
    last_figures = np.empty_like(figures)  # of each chain's last charge
    for number in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        candidates = np.flatnonzero((figures[number] <= last_figures[: len(found)]).all(axis=1)).tolist()
        place = next((place for place in candidates if is_under(number, found[place][-1])), len(found))
        if place == len(found):
            found.append([])
        found[place].append(number)
        last_figures[place] = figures[number]
    return found

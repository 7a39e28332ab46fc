"""Which charge is at most another, told without composing either of them.

A charge is at most another if its releases can be had from the other's by adding noise, by leaving the unit
out more often, or by leaving releases out. Then every ε of it is at most that of the other, at every δ
(docs/accounting.md, "Rows that stand for unequal pairs", derives the rules).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sfumato.privacy.charges import Composition
from sfumato.privacy.sampling import GaussianTerm, Sampling, squared_mu_of_term

Ways = tuple[Composition, ...]
"""Every sound way to charge one pair; the smallest result counts."""


def are_ways_at_most(ways: Ways, other: Ways) -> bool:
    """Whether the smallest ε of ``ways`` is at most the smallest ε of ``other``, at every δ.

    ``False`` means that it is not known.
    """
    return all(any(is_at_most(one, against) for one in ways) for against in other)


def is_at_most(charge: Composition, other: Composition) -> bool:
    """Whether ε of ``charge`` is at most that of ``other`` at every δ; ``False`` means that it is not known.

    Releases that always use the unit amount to one Gaussian, so their μ² are added up; others are compared
    term by term, in the order they are in.
    """
    if charge.neighbours != other.neighbours or charge.failure_probability > other.failure_probability:
        return False
    (certain, drawn), (certain_of_other, drawn_of_other) = map(_split_certain_from_drawn, (charge, other))
    if certain > certain_of_other or len(drawn) != len(drawn_of_other):
        return False
    return all(map(_is_term_at_most, drawn, drawn_of_other))


def _split_certain_from_drawn(charge: Composition) -> tuple[float, list[GaussianTerm]]:
    """The summed μ² of the terms that always use the unit, and the list of all sampled terms."""
    certain = math.fsum(
        term.count * squared_mu_of_term(term) for term in charge.terms if term.sampling is None
    )
    return certain, [term for term in charge.terms if term.sampling is not None]


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
    return replace(draw, rate=other.rate, population=other.population, sample=other.sample) == other


def approximate_size(ways: Ways) -> float:
    """A rough size of what ``ways`` charge, a sum of μ² times rates; ∞ if anything is without noise.

    A sort key: of charges with one way each, a charge that `is_at_most` another has no larger size.
    """
    way = ways[0]
    if way.failure_probability >= 1 or any(term.multiplier == 0 for term in way.terms):
        return math.inf
    return math.fsum(term.count * term.rate * squared_mu_of_term(term) for term in way.terms)


def chains(sizes: Sequence[float], is_under: Callable[[int, int], bool]) -> list[list[int]]:
    """Put charges into chains, the worst first in each: every one is surely at most the one before.

    Args:
        sizes: of every charge, the larger the worse; the order in which charges are looked at.
        is_under: whether the charge with the first number is surely at most that with the second.

    Returns:
        The chains, each the numbers of its charges; every charge is in one.
    """
    found: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        chain = next((chain for chain in found if is_under(number, chain[-1])), None)
        if chain is None:
            found.append([number])
        else:
            chain.append(number)
    return found

"""Factors on noise that several pairs share: of many that need nearly the same, few are looked for.

Under hidden draws the factor that a pair needs is a root of privacy loss distributions, which takes as long
as a dozen of them. Edges of many sizes that draw a fixed number of devices have as many rates, and each a
factor of its own. Where there are more than `MOST_ROOTS` different charges, pairs share a factor.

*It is enough.* Let every way of charging pair B have a way of charging pair A that is at most as much
(docs/accounting.md, "Rows that stand for unequal pairs"). So it is when all noise is multiplied by f: all
multipliers are, and no rate changes. Then ε of A is at most that of B at every f, and the factor at which B
meets the target is enough for A.

*It is little more than enough.* Along a chain of pairs, each at most the one before, the factor that is
needed never grows. The last pair that takes a factor f was not shown to be within the target at f / (1 +
`MOST_EXCESS`). That is asked on a coarse grid, which overestimates δ: so the excess is about `MOST_EXCESS` at
most, and not proved to be. Whatever it is, there is more noise than needed, never less.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import takewhile

from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.dominance import Ways, approximate_size, are_ways_at_most, chains
from sfumato.privacy.noise_scale import is_surely_enough
from sfumato.schedule.noise.least_noise import TOLERANCE

MOST_ROOTS = 60
"""So many different charges have a factor of their own each."""
MOST_EXCESS = 0.02
"""By which share a factor may be above what a pair needs, where there are more charges."""


def factors_of(
    charges: Sequence[PairCharge], needed: Callable[[PairCharge], float], *, epsilon: float, delta: float
) -> list[float]:
    """The factor that each of ``charges`` needs on its noise, or one that is little larger.

    Args:
        charges: of pairs in a trial of noise.
        needed: the least factor of a pair; 1 in a trial that is just enough for it.
        epsilon: the target of all pairs.
        delta: of the target.
    """
    # every account with a target comes here: ways are made only where they may be needed
    ways = list(takewhile(bool, map(_ways_of, charges))) if len(charges) > MOST_ROOTS else []
    if len(ways) < len(charges) or len(set(map(_terms, ways))) <= MOST_ROOTS:
        return [needed(charge) for charge in charges]
    found = [0.0] * len(charges)
    for chain in chains(
        [*map(approximate_size, ways)], lambda one, other: are_ways_at_most(ways[one], ways[other])
    ):
        first = 0
        while first < len(chain):
            factor = needed(charges[chain[first]])
            least = factor / (1 + MOST_EXCESS)
            if factor == 1:  # as found in the trial before: what it was shared with then, it is shared with
                least *= 1 - TOLERANCE

            def needs_less(number: int, least: float = least) -> bool:
                return is_surely_enough(ways[number], least, epsilon=epsilon, delta=delta)

            stop = bisect_left(chain, True, first + 1, key=needs_less)
            for number in chain[first:stop]:
                found[number] = factor
            first = stop
    return found


def _ways_of(charge: PairCharge) -> Ways:
    """List every way of charging a device under hidden draws; empty for records, or where no draw is
    hidden.
    """
    if charge.record is not None:
        return ()
    ways = tuple(way for exposure in charge.exposures for way in charge.ways(exposure))
    drawn = (term.sampling for way in ways for term in way.terms)
    return ways if any(sampling is not None and sampling.hidden for sampling in drawn) else ()


def _terms(ways: Ways) -> object:
    """Make a hashable key that is equal for charges that need the same factor: terms and failure
    probabilities.
    """
    return tuple((way.terms, way.failure_probability) for way in ways)

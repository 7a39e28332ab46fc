"""Factors on noise that several pairs share: of many that need nearly the same, few are looked for.

Under hidden draws the factor that a pair needs is a root of privacy loss distributions, which takes as long
as a dozen of them. Edges of many sizes that draw a fixed number of devices have as many rates, and each a
factor of its own. Where there are more than `MOST_ROOTS` different charges, pairs share a factor.

*It is enough.* Let every way of charging pair B have a way of charging pair A that is at most as much
(docs/accounting.md, "Rows that stand for unequal pairs"). So it is when all noise is multiplied by f: all
multipliers are, and no rate changes. Then ε of A is at most that of B at every f, and the factor at which B
meets the target is enough for A.

*It is little more than enough.* Along a chain of pairs, each at most the one before, the factor that is
needed never grows. The first pair has a root of its own. Each next factor is the one before over 1 +
`MOST_EXCESS`, and is taken from the first pair on that is surely within the target there. So no pair was
shown to be within the target at its factor over 1 + `MOST_EXCESS`. That is asked on a coarse grid, which
overestimates δ: so the excess is about `MOST_EXCESS` at most, and not proved to be. Whatever it is, there is
more noise than needed, never less.

*A later trial* often charges every pair what the trial before charges with its noise times its factor, as
where every source serves one edge alone. These charges were shown to be within the target, or are dominated
by one that was. So 1 is enough for all of them, and nothing is asked again (`FactorsFound.are_met_by`).

*Rows meet the target.* Where rows are composed roughly (`TreeReleases.is_composed_roughly`), their grid is at
most as wide as the coarse one, whose points it has, so that ε on it is no larger. A factor that is a root is
raised until the pair is surely within the target at it. So the ε of the first row of a stretch of pairs with
one factor is within the target. Those of the others are dominated by it, so their exact ε is; on grids of
their own, the ε that is stated may be above it by what a rough grid adds, which is 2 % at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from sfumato.privacy.declared_releases import PairCharge
from sfumato.privacy.dominance import (
    Ways,
    approximate_size,
    are_ways_at_most,
    chains,
    monotone_figures,
    undominated,
)
from sfumato.privacy.noise_scale import is_surely_enough
from sfumato.schedule.noise.least_noise import TOLERANCE

_SAME = 1e-12  # multipliers within this share of each other are the same, up to rounding
MOST_ROOTS = 60
"""So many different charges have a factor of their own each."""
MOST_EXCESS = 0.02
"""By which share a factor may be above what a pair needs, where there are more charges."""
_LEAST = 1e-3  # of the factor of a chain's first pair: smaller ones are not looked for
_ROUNDING = 1e-9


@dataclass(frozen=True)
class FactorsFound:
    """What a trial found for every pair.

    Attributes:
        factors: one for each pair.
        ways: of charging each pair in that trial; empty where no factor was shared.
    """

    factors: list[float]
    ways: tuple[Ways, ...] = ()

    def are_met_by(self, ways: Sequence[Ways]) -> bool:
        """Whether every pair is charged in a later trial as in this trial with its noise times its factor.

        Then the later trial is enough for every pair, and no pair has more noise than it was to have.

        Args:
            ways: of charging each pair in the later trial.
        """
        return len(self.ways) == len(ways) and all(
            map(_are_scaled, self.ways, ways, self.factors),
        )


def _are_scaled(ways: Ways, later: Ways, factor: float) -> bool:
    """Whether ``later`` are ``ways`` with every multiplier times ``factor``, up to rounding.

    Never where ``factor`` is 0: what nothing protects is judged anew.
    """
    return (
        factor > 0
        and len(ways) == len(later)
        and all(
            one.neighbours == other.neighbours
            and one.failure_probability == other.failure_probability
            and len(one.terms) == len(other.terms)
            and all(
                term.count == after.count
                and term.sampling == after.sampling
                and math.isclose(term.multiplier * factor, after.multiplier, rel_tol=_SAME)
                for term, after in zip(one.terms, other.terms, strict=True)
            )
            for one, other in zip(ways, later, strict=True)
        )
    )


def factors_of(
    charges: Sequence[PairCharge],
    needed: Callable[[PairCharge], float],
    *,
    epsilon: float,
    delta: float,
    before: FactorsFound | None = None,
) -> FactorsFound:
    """For each of ``charges``, the factor on its noise stds at which it meets the target.

    Args:
        charges: of pairs in a trial of noise.
        needed: computes the least factor of a pair; 1 in a trial that is just enough for it.
        epsilon: the target of all pairs.
        delta: of the target.
        before: what the trial before found for the same pairs; ``None`` in the first.

    Returns:
        A factor for each of ``charges``, in their order: the least one, or, where very many pairs differ, one
        that is larger by at most about `MOST_EXCESS` (relative) and surely enough.
    """
    # every account with a target comes here: ways are made only where they may be needed
    ways = list(takewhile(bool, map(_ways_of, charges))) if len(charges) > MOST_ROOTS else []
    own = partial(_root, needed=needed, epsilon=epsilon, delta=delta)
    if len(ways) < len(charges) or len(set(map(_terms, ways))) <= MOST_ROOTS:
        return FactorsFound([*map(own, charges)])
    if before is not None and before.are_met_by(ways):
        return FactorsFound([1.0] * len(charges), tuple(ways))
    found = [0.0] * len(charges)

    def is_enough(number: int, factor: float) -> bool:
        return is_surely_enough(ways[number], factor, epsilon=epsilon, delta=delta)

    for chain in chains(
        [*map(approximate_size, ways)],
        [*map(monotone_figures, ways)],
        lambda one, other: are_ways_at_most(ways[one], ways[other]),
    ):
        shared = _shared_before(partial(is_enough, chain[0]))
        factor = own(charges[chain[0]]) if shared is None else shared
        least, start, length = factor * _LEAST, 0, 1
        kept = shared is not None or factor == 1  # what shared a factor in the trial before shares it still
        while start < len(chain):
            lower = factor / (1 + MOST_EXCESS) * (1 - TOLERANCE if kept else 1.0)
            stop = len(chain)
            if lower > least:
                likely = len(chain) - 1 if kept else start + length
                stop = _first_within(chain, start, likely, partial(is_enough, factor=lower))
            for number in chain[start:stop]:
                found[number] = factor
            length = stop - start
            start, factor, kept = stop, lower, False
    return FactorsFound(found, tuple(ways))


def _root(
    charge: PairCharge, needed: Callable[[PairCharge], float], *, epsilon: float, delta: float
) -> float:
    """The factor that ``charge`` needs by itself; a little more where its row is composed roughly.

    Args:
        charge: of a pair in a trial of noise.
        needed: the least factor of a pair.
        epsilon: the target.
        delta: of the target.
    """
    factor, more = needed(charge), _ROUNDING
    if not charge.is_composed_roughly:
        return factor
    ways = charge.own_ways
    while 0 < factor < math.inf and not is_surely_enough(ways, factor, epsilon=epsilon, delta=delta):
        factor, more = factor * (1 + more), more * 4
    return factor


def _first_within(chain: Sequence[int], start: int, likely: int, is_enough: Callable[[int], bool]) -> int:
    """Find the first place from ``start`` on whose charge is surely within the target.

    Of a chain all charges from some place on are; the length of ``chain`` is returned if none is. As every
    question is a composition, steps from the likely place double until two places are known to have the one
    that is looked for between them. Then their distance is halved.

    Args:
        chain: numbers of charges, the worst first.
        start: the first place that is looked at.
        likely: the place from which to look; one beyond the end is the last.
        is_enough: whether the charge with a number is within the target.
    """
    low, high = start, len(chain)
    place, step, known = min(likely, high - 1), 1 + (likely - start) // 8, set[bool]()
    while low < high:
        enough = is_enough(chain[place])
        low, high = (low, place) if enough else (place + 1, high)
        known.add(enough)
        place = place - step if enough else place + step
        if len(known) == 2 or not low <= place < high:
            place = (low + high) // 2
        step *= 2
    return low


def _shared_before(is_enough: Callable[[float], bool]) -> float | None:
    """1.0, or a rounding error more, if another pair's factor still serves this pair, as in the trial before.

    ``None`` where the trial is too little for the pair, or so much that another factor has to be found.

    Args:
        is_enough: whether the pair surely meets its target with its noise times a factor.
    """
    if is_enough((1 - TOLERANCE) / (1 + MOST_EXCESS)):
        return None
    return next((factor for factor in (1.0, 1.0 + _ROUNDING) if is_enough(factor)), None)


def _ways_of(charge: PairCharge) -> Ways:
    """The ways of charging a device under hidden draws; none for records, or where no draw is hidden."""
    if charge.record is not None:
        return ()
    ways = charge.own_ways
    drawn = (term.sampling for way in ways for term in way.terms)
    hidden = any(sampling is not None and sampling.hidden for sampling in drawn)
    return undominated(ways) if hidden else ()


def _terms(ways: Ways) -> object:
    """A hashable key of terms and failure probabilities: charges with the same key need the same factor."""
    return tuple((way.terms, way.failure_probability) for way in ways)

"""Observers in groups that see no more than another one: in large networks that one stands for them.

*Why it may.* Let worker B be in some of the groups of worker A only, and let masters add the noise, workers
be drawn by Poisson draws or not at all, and messages be sent plainly and all arrive. Then the coalition of A
and B receives what A receives: the models of the groups of A. Neither owns noise, neither makes a draw, and
nothing is charged more for one more worker in the coalition. So every bound towards A is one towards A and B
together, and what they learn at most, B learns at most (docs/leakage.md, "Rows that stand for several
observers"). This holds at every δ and after every round.

Elsewhere it does not: workers who add noise know their own, members of a fixed cohort know who of them was
drawn, and members of a masked sum take part in removing masks. Where groups change, the groups of all eras
would have to be compared. There all observers have rows of their own. So they have where some groups have
noise and others have none: a row that is ∞ would stand for workers that have a guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sfumato.privacy.groups.facts import GroupFacts
from sfumato.privacy.groups.vector_clocks import IntArray, WorkerKinds
from sfumato.privacy.observers import Relation

MOST_PAIRS = 2_000
"""Of kinds of pairs, in a network whose observers are all in rows of their own."""


def may_fold(facts: GroupFacts) -> bool:
    """Whether in groups of these ``facts`` an observer may stand for others that are in fewer of its groups.

    So it is where the argument of this module holds: plain messages that all arrive, noise by masters of all
    groups or of none, no draws of a fixed number, groups that never change, and no models without noise
    inside an interval.
    """
    return (
        facts.rows_may_fold
        and len(facts.eras) == 1
        and facts.transport == "plain"
        and facts.noised_by_masters
        and not (facts.raw_inside or facts.cohort or facts.least_survivors)
        and len({multiplier > 0 for multiplier in facts.noise_multiplier}) == 1
    )


def wider_kinds(kinds: WorkerKinds) -> list[list[int]]:
    """For every kind of workers, the kinds that are in all of its groups and in more, in the first era.

    Returns:
        By number of the kind, numbers of kinds, ascending; empty where there are none.
    """
    groups = [frozenset(rows[0]) for rows in kinds.groups]
    inside: list[set[int]] = [set() for _ in range(kinds.group_count)]
    for kind, members in enumerate(groups):
        for group in members:
            inside[group].add(kind)
    return [
        sorted(
            other
            for other in (set[int].intersection(*(inside[group] for group in mine)) if mine else ())
            if len(groups[other]) > len(mine)
        )
        for mine in groups
    ]


def stand_ins(
    places: Collection[int],
    place_of_kind: IntArray,
    wider: list[list[int]],
    kinds: WorkerKinds,
    relation: Callable[[int], Relation],
) -> dict[int, int]:
    """For every place of observers, the place whose observers stand for them in the rows of an account.

    It is the place itself, unless observers of the same relation to the unit surely see more from another.

    Args:
        places: of observers, quick to look up; a place has the number of one of its kinds of workers.
        place_of_kind: the place of every kind of workers, equal for kinds that a symmetry exchanges which
            leaves the unit where it is, ``[kinds]``.
        wider: for every kind, the kinds in all of its groups and in more, from `wider_kinds`.
        kinds: of workers.
        relation: of the observers at a place towards the unit; only those of one relation share a row.

    Returns:
        By place, the place that stands for it; one that stands for others stands for itself.
    """
    found: dict[int, int] = {}
    for place in places:
        candidates = [
            kind
            for kind in wider[place]
            if int(place_of_kind[kind]) in places and relation(int(place_of_kind[kind])) == relation(place)
        ]
        # what contains the widest candidate would be a wider candidate, so the widest stands for itself
        widest = max(candidates, key=lambda kind: (len(kinds.groups[kind][0]), -kind), default=place)
        found[place] = int(place_of_kind[widest])
    return found

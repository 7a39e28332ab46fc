"""Elected supernodes: devices that hold office in their zone for a round, and what that tells a coalition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from sfumato.privacy.observers import Party
from sfumato.privacy.release import ElectionEvent, Exposure
from sfumato.privacy.tree.election_outcomes import (
    MOST_OUTCOMES,
    Bound,
    Parties,
    chances_of_office,
    elected_outcomes,
)
from sfumato.privacy.tree.facts import TreeFacts


class TreeBounds(Protocol):
    """The bounds of a tree whose aggregators are given: computed fast, or from a graph of messages."""

    @property
    def facts(self) -> TreeFacts:
        """Of the tree."""

    def flow(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The flow bound."""

    def cut(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The cut bound."""


def with_elections(
    exposures: TreeBounds, unit: int, members: Parties, alike: Sequence[int], *, most: int = MOST_OUTCOMES
) -> tuple[Exposure, ...]:
    """The flow and the cut exposure of ``unit`` towards ``members``, who may be elected.

    A round in office is charged by the same bound as a round out of it: where some of a round's aggregations
    are hidden, the two bounds differ, and what one adds in office says nothing of the other.

    Zones elect independently of each other. Several other zones count as one: once any of them elects
    a member, all of them are charged as if they had. Every way of charging the unit's zone and the others
    together that comes under ``alternatives`` is sound (docs/hdp.md).

    Who is elected in its own zone sees the draw of its participants, and that round is charged as if the draw
    were seen, as are all others. Offices of other zones show nothing of it, so charging them in every round
    leaves the draw of the unit's zone hidden.
    """
    if exposures.facts.elections == 0:
        return exposures.flow(unit, members), exposures.cut(unit, members)
    members = _with_whoever_is_elected(exposures.facts, unit, members)
    charged = []
    for bound in (exposures.flow, exposures.cut):
        ways = []
        for always, chances in _terms_of_office(exposures.facts, bound, unit, members):
            exposure = bound(unit, members + always)
            ways.append(
                replace(exposure.with_draws_shown(), election_events=chances) if chances else exposure
            )
        exact = elected_outcomes(exposures.facts, bound, unit, members, alike, most)
        charged.append(replace(ways[0], alternatives=(*ways[1:], *exact)))
        if len(exposures.facts.steps) == 1:  # all that a round holds is received: the two bounds are one
            return charged[0], _called("cut", charged[0])
    return tuple(charged)


def _called(bound_name: Literal["flow", "cut"], exposure: Exposure) -> Exposure:
    """``exposure`` under another name, with its alternatives."""
    alternatives = tuple(_called(bound_name, other) for other in exposure.alternatives)
    return replace(exposure, bound_name=bound_name, alternatives=alternatives)


def _with_whoever_is_elected(facts: TreeFacts, unit: int, members: Parties) -> Parties:
    """An elected supernode is a device too, and knows its own noise: the loudest that may be it."""
    leaf = facts.leaf_of(unit)
    if Party("node", facts.depth - 1, leaf) not in members:
        return members
    taken = Counter(facts.class_of(p.index) for p in members if p.kind == "device")
    loudness = np.sum(facts.class_variance, axis=0)
    for c in sorted(facts.classes.of_leaf(leaf), key=lambda c: -float(loudness[c])):
        found = facts.classes.members(c, taken[c] + 2).tolist()
        other = (Party("device", 0, d) for d in found if d != unit)
        elected = next((party for party in other if party not in members), None)
        if elected is not None:
            return (*members, elected)
    return members


def _terms_of_office(
    facts: TreeFacts, bound: Bound, unit: int, members: Parties
) -> list[tuple[Parties, tuple[ElectionEvent, ...]]]:
    """Supernodes that members are charged as in every round, and what more they meet when elected."""
    here, last, share = facts.leaf_of(unit), facts.depth - 1, chances_of_office(facts, members)
    own = (Party("node", last, here),) if here in share else ()
    others = tuple(Party("node", last, leaf) for leaf in sorted(share) if leaf != here)
    p_own = share.get(here, 0.0)
    p_others = 1.0 - math.prod(1.0 - p for leaf, p in share.items() if leaf != here)
    met = {more: bound(unit, members + more).releases for more in {(), own, others, own + others}}

    def chance(probability: float, more: Parties, beside: tuple[Parties, ...]) -> ElectionEvent:
        zone = facts.party_name(Party("node", last, here))
        where = f"of {zone}" if more == own else "elsewhere"
        pairs = tuple((met[more + b if more == own else b + more], met[b]) for b in beside)
        return ElectionEvent(probability, facts.rounds, pairs, f"a member is the elected supernode {where}")

    if not others:
        return [((), (chance(p_own, own, ((),)),) if own else ())]
    if not own:
        return [((), (chance(p_others, others, ((),)),)), (others, ())]
    return [
        ((), (chance(p_own, own, ((), others)), chance(p_others, others, ((), own)))),
        (others, (chance(p_own, own, (others,)),)),
        (own, (chance(p_others, others, (own,)),)),
    ]

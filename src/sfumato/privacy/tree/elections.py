"""Elected supernodes: devices that hold office in their zone for a round; what that tells a coalition.

*The exact law* (`elected_outcomes`): which offices members hold is a public draw (docs/hdp.md). Given the
offices, the round is charged as that of a coalition with these supernodes in it. Where supernodes fail,
`TreeFacts.elections` bounds the probability of office from above: who is told more offices than it holds can
only learn more. Zones are put together where no symmetry tells them apart: siblings that are alike, with as
many members of each class. Of those only how many elect a member counts.

*Terms of office* (`_terms_of_office`) bound the same with fewer cases: what a round in office adds.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, Protocol

import numpy as np

from sfumato.privacy.observers import Party
from sfumato.privacy.release import ElectionEvent, Exposure, RoundOutcomes
from sfumato.privacy.tree.facts import TreeFacts

MOST_OUTCOMES = 1 << 10  # ten zones that all differ
Parties = tuple[Party, ...]
Bound = Callable[[int, Sequence[Party]], Exposure]


@dataclass(frozen=True)
class AlikeZones:
    """Zones that no symmetry of the tree tells apart, each of which may elect a member.

    Attributes:
        leaves: the zones.
        chance: with which each of them elects a member, in each round.
    """

    leaves: tuple[int, ...]
    chance: float

    def elected(self) -> Iterator[tuple[float, tuple[int, ...]]]:
        """Yield, for each possible number of these zones that elect a member, its probability and zones.

        Only probabilities above 0; the zones are the first so many, as all are alike.
        """
        for count in range(len(self.leaves) + 1):
            left = len(self.leaves) - count
            ways = math.comb(len(self.leaves), count)
            chance = ways * self.chance**count * (1.0 - self.chance) ** left
            if chance > 0:
                yield chance, self.leaves[:count]


def chances_of_office(facts: TreeFacts, members: Parties) -> dict[int, float]:
    """By leaf number, an upper bound on the probability that its zone elects one of ``members`` in a round.

    ``facts``: of the tree. Zones whose aggregator is a member already are left out.
    """
    devices = Counter(facts.leaf_of(p.index) for p in members if p.kind == "device")
    return {
        leaf: min(1.0, facts.elections * count / float(facts.devices[leaf]))
        for leaf, count in devices.items()
        if Party("node", facts.depth - 1, leaf) not in members
    }


def elected_outcomes(
    facts: TreeFacts, bound: Bound, unit: int, members: Parties, alike: Sequence[int], most: int
) -> tuple[Exposure, ...]:
    """The exposure in which every round has one of the possible outcomes of its elections.

    Args:
        facts: of the tree.
        bound: a function of a unit and a coalition: its flow exposure, or its cut exposure.
        unit: number of the device.
        members: the coalition.
        alike: a class number for every leaf; equal ones are exchanged by a symmetry.
        most: the largest number of outcomes.

    Returns:
        That exposure alone. () where there are more than ``most`` outcomes, nobody can be elected, or
        everybody takes part and only one zone may elect a member: then the mixture over the number of rounds
        in office is exact already (docs/hdp.md).
    """
    zones = _zones_by_kind(facts, unit, members, alike)
    several = sum(len(zone.leaves) for zone in zones) > 1
    count = math.prod(len(zone.leaves) + 1 for zone in zones)
    if not zones or count > most or not (several or facts.draw_kind != "all"):
        return ()
    last, draws, chances = facts.depth - 1, [], []
    for outcome in itertools.product(*(zone.elected() for zone in zones)):
        offices = tuple(Party("node", last, leaf) for _, leaves in outcome for leaf in leaves)
        exposure = bound(unit, members + offices)
        (drawn,) = exposure.draws
        draws.append(drawn)
        chances.append(math.prod(chance for chance, _ in outcome))
    outcomes = RoundOutcomes(tuple(chances), _in_words(facts, unit, zones, len(chances)))
    return (Exposure(exposure.bound_name, tuple(draws), outcomes=outcomes),)


def _zones_by_kind(
    facts: TreeFacts, unit: int, members: Parties, alike: Sequence[int]
) -> tuple[AlikeZones, ...]:
    """The zones that may elect a member, those that no symmetry tells apart together.

    In order of the first zone of each kind; the unit's own zone is always alone. ``alike``: a class number
    for every leaf.
    """
    here, last = facts.leaf_of(unit), facts.depth - 1
    classes: defaultdict[int, Counter[object]] = defaultdict(Counter)
    for party in members:
        if party.kind == "device":
            kind = facts.classes.kind(facts.class_of(party.index))
            classes[facts.leaf_of(party.index)][kind] += 1
    found: defaultdict[object, list[int]] = defaultdict(list)
    chances = chances_of_office(facts, members)
    for leaf in sorted(chances):
        parent = int(facts.parents[last][leaf])
        found[leaf == here, parent, int(alike[leaf]), frozenset(classes[leaf].items())].append(leaf)
    return tuple(AlikeZones(tuple(leaves), chances[leaves[0]]) for leaves in found.values())


def _in_words(facts: TreeFacts, unit: int, zones: Sequence[AlikeZones], count: int) -> str:
    """A phrase for people: how often members hold office in the unit's zone, and elsewhere.

    Args:
        facts: of the tree.
        unit: the device.
        zones: those with members, and the chance that one of them is elected in a round.
        count: number of outcomes that the mixture tells apart.
    """
    here, sentences = facts.leaf_of(unit), []
    for is_own_zone in (True, False):
        chances = [zone.chance for zone in zones for leaf in zone.leaves if (leaf == here) == is_own_zone]
        if not chances:
            continue
        name = facts.party_name(Party("node", facts.depth - 1, here))
        where = f"of {name}" if is_own_zone else "elsewhere"
        any_of_them = 1.0 - math.prod(1.0 - chance for chance in chances)
        once = -math.expm1(facts.rounds * math.log1p(-any_of_them)) if any_of_them < 1 else 1.0
        sentences.append(
            f"a member is the elected supernode {where} at least once with probability {once:.4g}, in "
            f"{facts.rounds * any_of_them:.4g} rounds on average"
        )
    outcomes = "outcome" if count == 1 else f"{count} outcomes"
    return f"mixture over the {outcomes} of a round's elections; {'; '.join(sentences)}"


class TreeBounds(Protocol):
    """The bounds of a tree whose aggregators are given: computed fast, or from a graph of messages."""

    @property
    def facts(self) -> TreeFacts:
        """The facts of the tree that the accountant uses."""

    def flow(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The flow bound of ``unit`` towards ``coalition``: all that its view is computed from is charged."""

    def cut(self, unit: int, coalition: Sequence[Party]) -> Exposure:
        """The releases that ``coalition`` itself receives and that a message of device ``unit`` changes.

        Charging them bounds ε (the cut bound, docs/glossary.md).
        """


def flow_and_cut_with_elections(
    exposures: TreeBounds, unit: int, members: Parties, alike: Sequence[int], *, most: int = MOST_OUTCOMES
) -> tuple[Exposure, ...]:
    """The flow and the cut exposure of ``unit`` towards ``members``, who may be elected supernodes.

    Flow charges everything that the coalition's view is computed from, cut only what it sees. A round with a
    member in office is charged by the same bound as one without: where some of a round's aggregations are
    hidden, the two bounds differ, and what an office adds under one says nothing of the other.

    Zones elect independently of each other. All zones other than the unit's count as one: once any of them
    elects a member, they are charged as if all of them had. Every way of charging the unit's zone and the
    others together that comes under ``alternatives`` is sound (docs/hdp.md).

    A member elected in the unit's own zone sees who is drawn there, so all rounds are then charged as if
    their draws were seen. Offices of other zones show nothing of that draw; where they are charged in every
    round, the draw stays hidden.

    Args:
        exposures: both bounds for given aggregators.
        unit: number of the device.
        members: the coalition.
        alike: a class number for every leaf; equal ones are exchanged by a symmetry of the tree.
        most: the largest number of outcomes of a round's elections that are told apart; 0: none are.

    Returns:
        Two exposures, flow and cut; other ways to charge each are among its ``alternatives``.
    """
    if exposures.facts.elections == 0:
        return exposures.flow(unit, members), exposures.cut(unit, members)
    members = _with_possible_supernode(exposures.facts, unit, members)
    charged = []
    for bound in (cache(exposures.flow), cache(exposures.cut)):  # several terms ask for one coalition
        ways = []
        for always, chances in _terms_of_office(exposures.facts, bound, unit, members):
            exposure = bound(unit, members + always)
            ways.append(
                replace(exposure.with_draws_shown(), election_events=chances) if chances else exposure
            )
        exact = elected_outcomes(exposures.facts, bound, unit, members, alike, most)
        charged.append(replace(ways[0], alternatives=(*ways[1:], *exact)))
        if len(exposures.facts.steps) == 1:  # all that a round holds is received: the two bounds are one
            return charged[0], _with_bound_name("cut", charged[0])
    return tuple(charged)


def _with_bound_name(bound_name: Literal["flow", "cut"], exposure: Exposure) -> Exposure:
    """``exposure`` and its alternatives, with another name of the bound."""
    alternatives = tuple(_with_bound_name(bound_name, other) for other in exposure.alternatives)
    return replace(exposure, bound_name=bound_name, alternatives=alternatives)


def _with_possible_supernode(facts: TreeFacts, unit: int, members: Parties) -> Parties:
    """``members``, with the noisiest other device of the unit's zone if they hold the office of that zone.

    An elected supernode is a device too, and knows its own noise. Returned unchanged where no member is the
    aggregator of that zone, or where they know every other device of it already.
    """
    leaf = facts.leaf_of(unit)
    if Party("node", facts.depth - 1, leaf) not in members:
        return members
    taken = Counter(facts.class_of(p.index) for p in members if p.kind == "device")
    total_variance = np.sum(facts.class_variance, axis=0)
    for c in sorted(facts.classes.of_leaf(leaf), key=lambda c: -float(total_variance[c])):
        found = facts.classes.members(c, taken[c] + 2).tolist()  # all members, the unit and one more
        other = (Party("device", 0, d) for d in found if d != unit)
        elected = next((party for party in other if party not in members), None)
        if elected is not None:
            return (*members, elected)
    return members


def _terms_of_office(
    facts: TreeFacts, bound: Bound, unit: int, members: Parties
) -> list[tuple[Parties, tuple[ElectionEvent, ...]]]:
    """Sound ways to charge elections, each by what is charged in every round and what in some.

    Args:
        facts: of the tree.
        bound: a function of a unit and a coalition: its flow exposure, or its cut exposure.
        unit: the device.
        members: the coalition.

    Returns:
        One pair or more: the supernodes, as parties, that members are charged as in every round, and the
        events in which they are elected as well. Where nobody can be elected: one pair, of nothing and
        nothing.
    """
    here, last, share = facts.leaf_of(unit), facts.depth - 1, chances_of_office(facts, members)
    own = (Party("node", last, here),) if here in share else ()
    others = tuple(Party("node", last, leaf) for leaf in sorted(share) if leaf != here)
    p_own = share.get(here, 0.0)
    p_others = 1.0 - math.prod(1.0 - p for leaf, p in share.items() if leaf != here)
    releases = {
        elected: bound(unit, members + elected).releases for elected in {(), own, others, own + others}
    }

    def chance(probability: float, elected: Parties, in_office: tuple[Parties, ...]) -> ElectionEvent:
        zone = facts.party_name(Party("node", last, here))
        where = f"of {zone}" if elected == own else "elsewhere"
        pairs = tuple(
            (releases[elected + b if elected == own else b + elected], releases[b]) for b in in_office
        )
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

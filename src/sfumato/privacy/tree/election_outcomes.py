"""The exact law of what a round's elections show to a coalition: which offices its members hold.

Every zone elects by itself, anew in each round and whatever the data are. So the offices that members hold
are a public draw: the coalition sees it, and it has nothing to do with the unit. Given the offices, the
round is charged as that of a coalition with these supernodes in it: who holds the office of the unit's own
zone sees the draw of its participants, and offices elsewhere leave that draw hidden.

Where supernodes fail, `TreeFacts.elections` bounds the probability of office from above. That is sound: who
is told more offices than it holds can only learn more, so what bounds the round with more offices bounds it.

Zones are put together where no symmetry tells them apart: siblings that are alike, with as many members of
each class. Of those only how many elect a member counts.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure, RoundOutcomes
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
        """The probability that so many of them elect a member, and zones that stand for those."""
        for count in range(len(self.leaves) + 1):
            left = len(self.leaves) - count
            ways = math.comb(len(self.leaves), count)
            chance = ways * self.chance**count * (1.0 - self.chance) ** left
            if chance > 0:
                yield chance, self.leaves[:count]


def chances_of_office(facts: TreeFacts, members: Parties) -> dict[int, float]:
    """The probability that a zone elects one of ``members`` in a round, for zones with any of them."""
    devices = Counter(facts.leaf_of(p.index) for p in members if p.kind == "device")
    return {
        leaf: min(1.0, facts.elections * count / float(facts.devices[leaf]))
        for leaf, count in devices.items()
        if Party("node", facts.depth - 1, leaf) not in members
    }


def elected_outcomes(
    facts: TreeFacts, bound: Bound, unit: int, members: Parties, alike: Sequence[int], most: int
) -> tuple[Exposure, ...]:
    """The exposure of rounds that have one of the outcomes each; none where there are more than ``most``.

    Nor is there one where everybody takes part and one zone alone may elect a member: then the mixture over
    the number of terms of office is exact already (docs/hdp.md).
    """
    zones = _alike_zones(facts, unit, members, alike)
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


def _alike_zones(
    facts: TreeFacts, unit: int, members: Parties, alike: Sequence[int]
) -> tuple[AlikeZones, ...]:
    """The zones that may elect a member, in order of the first of each kind."""
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
    """How often members hold which offices."""
    here, told = facts.leaf_of(unit), []
    for mine in (True, False):
        chances = [zone.chance for zone in zones for leaf in zone.leaves if (leaf == here) == mine]
        if not chances:
            continue
        name = facts.party_name(Party("node", facts.depth - 1, here))
        where = f"of {name}" if mine else "elsewhere"
        any_of_them = 1.0 - math.prod(1.0 - chance for chance in chances)
        once = -math.expm1(facts.rounds * math.log1p(-any_of_them)) if any_of_them < 1 else 1.0
        told.append(
            f"a member is the elected supernode {where} at least once with probability {once:.4g}, in "
            f"{facts.rounds * any_of_them:.4g} rounds on average"
        )
    outcomes = "outcome" if count == 1 else f"{count} outcomes"
    return f"mixture over the {outcomes} of a round's elections; {'; '.join(told)}"

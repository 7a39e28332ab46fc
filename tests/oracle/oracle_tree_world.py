"""What a tree's spec says: who is under whom, who adds how much noise, who may be missing.

Lengths are in units of the clip: a message of a device of weight 1 is at most as long as its bound, which is
1 where whole messages are clipped, and the number of its (clipped) steps where steps are; a round's learning
rate multiplies messages and noise alike and cancels. Where gradients of single examples are clipped, the unit
is what one of them moves a step by, and the bound that of a device of one record.

`oracle_tree_reader` makes worlds of specs. Where devices move there is a world for every tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from oracle_record_laws import Records

Node = tuple[int, int]
"""An aggregator: its tier (0 is the cloud) and its number there."""


@dataclass(frozen=True)
class Aggregation:
    """What happens after some local steps.

    Attributes:
        tier: of the nodes that average and broadcast.
        bounds: of a message of each zone, in clips; 0 where the zone does not take part.
        pieces: local steps behind a message of each zone.
        again: where a zone's devices repeat their round: bound of that message and of its last piece.
        own: zones that also broadcast their own average, which nobody trains from.
    """

    tier: int
    bounds: tuple[float, ...]
    pieces: tuple[int, ...]
    again: tuple[float, float] | None = None
    own: tuple[bool, ...] = ()


@dataclass(frozen=True)
class TreeWorld:
    """A tree as the oracle plays it.

    Attributes:
        names: of the tiers, the cloud's first.
        parents: for every tier, each node's parent in the tier above.
        zones: the devices of every node of the last tier.
        weights: of every device.
        hops: how messages reach every tier's nodes: ``plain`` or ``secure-aggregation``.
        aggregations: of a round, in order.
        repeats: zones that send the whole round again at its end.
        device_std: of each device's own noise in its message, an aggregation each.
        node_std: of a node's noise, ``[aggregation][tier][node]``.
        records: how devices draw and clip what they train on.
        draw: ``("all" | "poisson" | "fixed", rate or count of each zone)``.
        least_weight: of the clipped denominator, ``None`` where it is fixed.
        cloud_draws: whether the cloud picks who takes part.
        sends, lasts: probabilities that a device sends its message, and having sent stays to the end.
        faulty: whether dropouts are declared at all.
        least: share of a session that must survive.
        elected: whether clients are elected supernodes.
        fails: probability that a supernode fails.
        on_failure: ``repeat`` or ``skip``.
    """

    names: tuple[str, ...]
    parents: tuple[tuple[int, ...], ...]
    zones: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]
    hops: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    repeats: tuple[bool, ...]
    device_std: tuple[tuple[float, ...], ...]
    node_std: tuple[tuple[tuple[float, ...], ...], ...]
    rounds: int
    delta: float
    replace: bool
    records: Records
    draw: tuple[str, tuple[float, ...]] = ("all", ())
    least_weight: float | None = None
    cloud_draws: bool = True
    sends: float = 1.0
    lasts: float = 1.0
    faulty: bool = False
    least: float | None = None
    elected: bool = False
    fails: float = 0.0
    on_failure: str = "repeat"

    @property
    def leaf_tier(self) -> int:
        """The tier whose nodes have devices."""
        return len(self.names) - 1

    @cached_property
    def zone_of(self) -> dict[int, int]:
        """Each device's zone."""
        return {device: zone for zone, devices in enumerate(self.zones) for device in devices}

    def ancestor(self, zone: int, tier: int) -> int:
        """The node of ``tier`` that ``zone`` is under."""
        node = zone
        for level in range(self.leaf_tier, tier, -1):
            node = self.parents[level][node]
        return node

    def children(self, node: Node) -> list[Node]:
        """The nodes directly below."""
        tier, index = node
        if tier == self.leaf_tier:
            return []
        return [(tier + 1, child) for child, parent in enumerate(self.parents[tier + 1]) if parent == index]

    def share_drawn(self, zone: int) -> float:
        """The share of a zone's devices that is expected to take part."""
        kind, numbers = self.draw
        if kind == "all":
            return 1.0
        return numbers[zone] / (1 if kind == "poisson" else len(self.zones[zone]))

    def denominator(self, zone: int, weight_came: float) -> float:
        """What the zone's sum is divided by when devices of this weight take part."""
        drawn = self.share_drawn(zone)
        if self.least_weight is not None:
            return max(drawn * self.least_weight, weight_came)
        return drawn * sum(self.weights[device] for device in self.zones[zone])

    def threshold(self, parties: int) -> int:
        """Fewest of a session's parties whose sum may be learnt, and who together open single messages."""
        if self.least is not None:
            return math.ceil(self.least * parties - 1e-12)
        return 2 * parties // 3 + 1

    def parse(self, observer: str) -> tuple[frozenset[Node], frozenset[int]]:
        """Nodes and devices of a coalition."""
        nodes, devices = set(), set()
        for name in observer.split(","):
            kind, _, number = name.partition(":")
            if kind == "device":
                devices.add(int(number))
            elif kind != "public":
                nodes.add((self.names.index(kind), int(number or 0)))
        return frozenset(nodes), frozenset(devices)

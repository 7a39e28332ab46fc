"""Who receives what in a tree, stated on its own: deliberately not the ledger's view, which is under audit.

An aggregator receives the message of each child, or only their average where a secure sum or the radio
channel adds them up; it knows what it sends itself, and so its own noise. A device knows what it sends. A
broadcast of an aggregator reaches every party below it, and that of the cloud everybody, the public included.
Of messages that cannot hold the unit's only what a member of the coalition sends itself is kept: the rest
tells nothing that its sum does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.auditing.stage import THE_UNIT, Heard, Key
from sfumato.federation.topology import Tree
from sfumato.privacy.parties import Party

IntArray = npt.NDArray[np.int64]


class TreeEars:
    """Hears one play with the ears of a coalition.

    Args:
        tree: who is where.
        summed: for each tier, whether its nodes receive nothing but the sum of their children.
        unit: the device listened for.
        coalition: who listens together.
    """

    def __init__(self, tree: Tree, summed: Sequence[bool], unit: int, coalition: Sequence[Party]) -> None:
        self._heard: dict[Key, npt.NDArray[np.float64]] = {}
        self._unit, self._devices_at = unit, tree.depth
        path = [int(node) for node in tree.paths[tree.leaf_of(unit)]]
        line = [*path, unit]  # the unit's nodes from the cloud down, and itself
        self._own: list[set[int]] = [set() for _ in line]  # whose messages are known, by tier
        self._sums: list[int | None] = [None] * tree.depth  # where the sum that holds the unit's arrives
        self._roots: list[set[int]] = [set() for _ in path]  # whose broadcasts are received
        self._roots[0].add(0)
        for party in coalition:
            if party.kind == "public":
                continue
            tier = tree.depth if party.kind == "device" else party.tier
            self._own[tier].add(party.index)
            if party.kind == "node" and path[tier] == party.index:
                if summed[tier]:
                    self._sums[tier] = party.index
                else:
                    self._own[tier + 1].add(line[tier + 1])
            node, at = party.index, tier
            if party.kind == "device":
                node, at = tree.leaf_of(party.index), tree.depth - 1
            while at >= 0:
                self._roots[at].add(node)
                node, at = int(tree.tiers[at].parents[node]), at - 1

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Keep what the coalition's members send, and what they receive of the unit's line."""
        for row in np.flatnonzero(np.isin(senders, list(self._own[tier]))):
            self._keep(index, tier, "sent", int(senders[row]), vectors[int(row)])

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Keep the sum that holds the unit's message where a member receives it."""
        node = self._sums[tier]
        if node is not None:
            self._keep(index, tier, "received", node, values[node])

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Keep the models that members receive."""
        for node in sorted(self._roots[tier]):
            self._keep(index, tier, "broadcast", node, values[node])

    @property
    def heard(self) -> Heard:
        """All that was heard, by aggregation, tier, how and whose."""
        return dict(self._heard)

    def _keep(self, index: int, tier: int, how: str, who: int, vector: Tensor) -> None:
        own = tier == self._devices_at and who == self._unit
        self._heard[index, tier, how, THE_UNIT if own else who] = vector.detach().cpu().double().numpy()

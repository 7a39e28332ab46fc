"""Who receives what in a tree, stated on its own: deliberately not the ledger's view, which is under audit.

An aggregator receives the message of each child, or only their average where a secure sum or the radio
channel adds them up; it knows what it sends itself, and so its own noise. A device knows what it sends. A
broadcast of an aggregator reaches every party below it, and that of the cloud everybody, the public included.
Of messages that cannot hold the unit's only what a member of the coalition sends itself is kept: the rest
tells nothing that its sum does not. An aggregator on whose side enough of a session's parties are takes the
masks of a secure sum off. A supernode that failed has met the sum all the same, though its zone then sends
nothing on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.auditing.harness import TARGET, ObservationKey, Observations
from sfumato.network.tree import Tree
from sfumato.privacy.hops import Hop
from sfumato.privacy.observers import Party
from sfumato.schedule.dropouts import threshold_of
from sfumato.spec.faults import Faults

IntArray = npt.NDArray[np.int64]


def unmasking_nodes(
    tree: Tree, hops: Sequence[Hop], faults: Faults | None, chosen: IntArray, coalition: Sequence[Party]
) -> frozenset[tuple[int, int]]:
    """Nodes of the coalition, by tier and number, that take the masks of their children's messages off.

    Args:
        tree: who is where.
        hops: how messages reach the nodes of each tier.
        faults: as declared; they may set the threshold of shares.
        chosen: who takes part.
        coalition: who listens together.
    """
    found = set()
    for party in coalition:
        if party.kind != "node" or hops[party.tier] != "secure-aggregation":
            continue
        if party.tier == tree.depth - 1:
            parties = [int(d) for d in chosen[tree.leaves_of(chosen) == party.index]]
            members = {p.index for p in coalition if p.kind == "device"}
        else:
            parties = np.flatnonzero(tree.parents[party.tier + 1] == party.index).tolist()
            members = {p.index for p in coalition if p.kind == "node" and p.tier == party.tier + 1}
        if parties and len(members.intersection(parties)) >= threshold_of(faults, len(parties)):
            found.add((party.tier, party.index))
    return frozenset(found)


class TreeObserver:
    """Hears one play with the ears of a coalition.

    Args:
        tree: who is where.
        summed: for each tier, whether its nodes receive nothing but the sum of their children.
        unit: the device listened for.
        coalition: who listens together.
        open_nodes: those of its nodes, by tier and number, that receive single messages all the same.
        discarded_sums: for each aggregation, whose sum reached a leaf that then had nothing to send on.
    """

    def __init__(
        self,
        tree: Tree,
        summed: Sequence[bool],
        unit: int,
        coalition: Sequence[Party],
        *,
        open_nodes: Collection[tuple[int, int]] = (),
        discarded_sums: Sequence[Mapping[int, IntArray]] = (),
    ) -> None:
        self._observations: dict[ObservationKey, npt.NDArray[np.float64]] = {}
        self._unit, self._devices_at, self._discarded_sums = unit, tree.depth, discarded_sums
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
                if summed[tier] and (tier, party.index) not in open_nodes:
                    self._sums[tier] = party.index
                else:
                    self._own[tier + 1].add(line[tier + 1])
            node, at = party.index, tier
            if party.kind == "device":
                node, at = tree.leaf_of(party.index), tree.depth - 1
            while at >= 0:
                self._roots[at].add(node)
                node, at = int(tree.parents[at][node]), at - 1

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Keep what the coalition's members send, and what they receive of the unit's line."""
        for row in np.flatnonzero(np.isin(senders, list(self._own[tier]))):
            self._keep(index, tier, "sent", int(senders[row]), vectors[int(row)])
        leaf = self._sums[-1]
        if (
            tier == self._devices_at
            and leaf is not None
            and self._discarded_sums
            and leaf in self._discarded_sums[index]
        ):
            rows = np.flatnonzero(np.isin(senders, self._discarded_sums[index][leaf]))
            self._add(index, tier - 1, "met", leaf, vectors[torch.from_numpy(rows)].sum(dim=0))

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
    def observations(self) -> Observations:
        """All that was heard, by aggregation, tier, how and whose."""
        return dict(self._observations)

    def _add(self, index: int, tier: int, how: str, who: int, vector: Tensor) -> None:
        """Keep ``vector`` together with what was kept there before: messages come in chunks."""
        before = self._observations.get((index, tier, how, who), 0.0)
        self._keep(index, tier, how, who, vector)
        self._observations[index, tier, how, who] = self._observations[index, tier, how, who] + before

    def _keep(self, index: int, tier: int, how: str, who: int, vector: Tensor) -> None:
        own = tier == self._devices_at and who == self._unit
        self._observations[index, tier, how, TARGET if own else who] = vector.detach().cpu().double().numpy()

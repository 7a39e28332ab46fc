"""The vectors that a coalition receives in a tree.

The rules are stated here independently of the declared views, because the declaration is what an audit
checks. An aggregator receives the message of each child; if a secure sum or the radio channel adds them up,
only their average. It knows what it sends itself, and so its own noise. A device knows what it sends. A
broadcast of an aggregator reaches every party below it, and that of the cloud reaches everybody, the public
included. Of messages that do not contain the unit's, only those that members send themselves are recorded:
the others add no information to their sum. An aggregator with enough colluding parties of a session removes
the masks of a secure sum. A supernode that fails has received the sum nevertheless, although its zone then
sends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.auditing.harness import TARGET, ObservationKey, Observations
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party
from sfumato.privacy.received import Hop
from sfumato.schedule.participation import threshold_of
from sfumato.spec.faults import Faults

IntArray = npt.NDArray[np.int64]


def unmasking_nodes(
    tree: Tree, hops: Sequence[Hop], faults: Faults | None, chosen: IntArray, coalition: Sequence[Party]
) -> frozenset[tuple[int, int]]:
    """Pairs (tier, index) of the coalition's nodes that can remove the masks of their children's messages.

    Args:
        tree: the network.
        hops: the transport of messages to the nodes of each tier.
        faults: the section of the spec; it may set the threshold of shares.
        chosen: indices of the participants, ``[P]``.
        coalition: the colluding observers.
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
    """Records what a coalition receives in one simulation.

    Args:
        tree: the network.
        summed: for each tier, whether its nodes receive only the sum of their children's messages.
        unit: the target device.
        coalition: the colluding observers.
        open_nodes: nodes of the coalition, by tier and number, that receive single messages nevertheless.
        discarded_sums: for each aggregation, the devices whose sum reached a leaf that then sent nothing.
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
        """Work out, tier by tier, whose messages, sums and broadcasts the coalition receives."""
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
        """Record messages that members send, and those on the unit's path that members receive.

        A hook of the simulated run: called for every batch of messages; the arguments are those of
        `Listener.sent`.
        """
        for row in np.flatnonzero(np.isin(senders, list(self._own[tier]))):
            self._record(index, tier, "sent", int(senders[row]), vectors[int(row)])
        leaf = self._sums[-1]
        if (
            tier == self._devices_at
            and leaf is not None
            and self._discarded_sums
            and leaf in self._discarded_sums[index]
        ):
            rows = np.flatnonzero(np.isin(senders, self._discarded_sums[index][leaf]))
            self._add_to_record(index, tier - 1, "met", leaf, vectors[torch.from_numpy(rows)].sum(dim=0))

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Record the sum that contains the unit's message if a member receives it.

        A hook of the simulated run: called once sums are formed; the arguments are those of
        `Listener.received`.
        """
        node = self._sums[tier]
        if node is not None:
            self._record(index, tier, "received", node, values[node])

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Record the models that members receive.

        A hook of the simulated run: called when nodes send models down; the arguments are those of
        `Listener.broadcast`.
        """
        for node in sorted(self._roots[tier]):
            self._record(index, tier, "broadcast", node, values[node])

    @property
    def observations(self) -> Observations:
        """What the coalition sent and received so far, a copy: float64 ``[M]`` by `ObservationKey`."""
        return dict(self._observations)

    def _add_to_record(self, index: int, tier: int, how: str, who: int, vector: Tensor) -> None:
        """Add ``vector`` to what is recorded under the same key, as messages of a sum come in chunks.

        ``index``: of the aggregation; ``tier``: of the sender. ``how``, ``who``: the kind and number of an
        `ObservationKey`; ``vector``: ``[M]``.
        """
        before = self._observations.get((index, tier, how, who), 0.0)
        self._record(index, tier, how, who, vector)
        self._observations[index, tier, how, who] = self._observations[index, tier, how, who] + before

    def _record(self, index: int, tier: int, how: str, who: int, vector: Tensor) -> None:
        """Keep a vector ``[M]`` under its `ObservationKey`.

        ``index``: of the aggregation; ``tier``: of the sender. ``how``: its kind; ``who``: its number, or the
        unit's own, in whose place `TARGET` is kept.
        """
        own = tier == self._devices_at and who == self._unit
        self._observations[index, tier, how, TARGET if own else who] = vector.detach().cpu().double().numpy()

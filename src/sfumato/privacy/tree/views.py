"""What a coalition receives at an aggregation of a tree, and what its members send there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.privacy.observers import Party
from sfumato.privacy.received import CoalitionView
from sfumato.privacy.tree.facts import AggregationFacts, TreeFacts
from sfumato.privacy.tree.shape import BoolArray


def view_of_coalition(facts: TreeFacts, coalition: Sequence[Party], step: AggregationFacts) -> CoalitionView:
    """What ``coalition`` receives, and what its members send, at the aggregation ``step``.

    All messages go to the aggregating node, whose average everybody below it receives; that of the cloud
    goes to all, the public included. Nodes over leaves that take no part aggregate nothing. A leaf may also
    send its own average to its devices. Where messages arrive summed up (secure aggregation, over the air),
    a node receives the sum of its children before its own noise, and no single message, unless the coalition
    can unmask it.
    """
    tier, active = step.tier, _aggregating(facts, step)
    nodes = [
        p
        for p in coalition
        if p.kind == "node" and p.tier >= tier and active[facts.ancestor(p.tier, p.index, tier)]
    ]
    devices = [p.index for p in coalition if p.kind == "device"]
    roots, heard = {0}, set[int]()
    if tier or step.takes_part is not None or step.leaf_broadcasts is not None:
        leaves = {device: facts.leaf_of(device) for device in devices}
        devices = [device for device, leaf in leaves.items() if step.sends(leaf)]
        heard = {leaves[device] for device in devices if step.broadcasts(leaves[device])}
    if tier:
        roots = {int(facts.paths[leaves[device]][tier]) for device in devices}
        roots |= {facts.ancestor(node.tier, node.index, tier) for node in nodes}
    sums = facts.receiving_sums(nodes, coalition)
    return CoalitionView(
        single=frozenset((p.tier, p.index) for p in nodes if p not in sums),
        summed=frozenset((p.tier, p.index) for p in sums),
        averages=frozenset([(tier, root) for root in roots] + [(facts.depth - 1, leaf) for leaf in heard]),
        senders=frozenset(
            [(p.tier, p.index) for p in nodes if p.tier > tier] + [(facts.depth, d) for d in devices]
        ),
    )


def _aggregating(facts: TreeFacts, step: AggregationFacts) -> BoolArray:
    """Mask over the nodes of the step's tier: those over leaves that take part aggregate, ``[nodes]``."""
    found = np.zeros(len(facts.parents[step.tier]), dtype=np.bool_)
    leaves = slice(None) if step.takes_part is None else step.takes_part
    found[facts.paths[leaves, step.tier]] = True
    return found

"""Pairs of a device and an observer in a tree, by what a symmetry of the tree can tell apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.verify import read
from sfumato.verify.parties import Party
from sfumato.verify.read import Json
from sfumato.verify.tree_exposures import CheckedTree


class CheckedTreePairs:
    """Pairs of a device and an observer in a tree, by what a symmetry of the tree can tell apart.

    A node is alike another if what is below it is, and all above them. A pair is known by its device, its
    observer, and the deepest aggregator that is above both.
    """

    def __init__(self, facts: CheckedTree) -> None:
        self.facts = facts
        self.kinds = list(zip(facts.class_weight.tolist(), facts.class_noisy.tolist(), strict=True))
        self.members: list[Counter[Any]] = [Counter() for _ in facts.devices]
        for leaf, kind, size in zip(facts.class_leaf, self.kinds, facts.class_size, strict=True):
            self.members[int(leaf)][kind] += int(size)
        self.alike = self._numbers_of_alike_nodes()

    def _numbers_of_alike_nodes(self) -> list[npt.NDArray[np.int64]]:
        """For each tier, a number for each node, ``[nodes]``; equal ones for nodes that a symmetry swaps."""
        facts, known = self.facts, dict[Any, int]()
        below: list[list[Any]] = [[] for _ in facts.devices]
        numbered: list[list[int]] = []
        for tier in range(facts.depth - 1, -1, -1):
            found = []
            for node in range(len(facts.parents[tier])):
                own = [self._noise_of_node(step, tier, node) for step in facts.steps]
                leaf = self._facts_of_leaf(node) if tier == facts.depth - 1 else ()
                key = tier, leaf, tuple(sorted(below[node])), tuple(own)
                found.append(known.setdefault(key, len(known)))
            numbered.insert(0, found)
            if tier:
                below = [[] for _ in facts.parents[tier - 1]]
                for node, parent in enumerate(facts.parents[tier]):
                    below[int(parent)].append(found[node])
        alike: list[npt.NDArray[np.int64]] = []
        for tier, found in enumerate(numbered):
            above = alike[-1][facts.parents[tier]] if tier else [-1] * len(found)
            keys = [("path", int(a), n) for a, n in zip(above, found, strict=True)]
            alike.append(np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64))
        return alike

    @staticmethod
    def _noise_of_node(step: Json, tier: int, node: int) -> tuple[float, float]:
        """Noise stds of a node and of its channel (0: none) at one aggregation.

        ``step``: the aggregation in ``ledger.json``. ``tier`` and ``node``: of the node.
        """
        channel = step["channel_noise_std"]
        own = read.figure(step["node_noise_std"][tier][node])
        return own, read.figure(channel[tier][node]) if channel else 0.0

    def _facts_of_leaf(self, leaf: int) -> Any:
        """A hashable key of all facts of a leaf: divisors, devices, and bounds and noise by aggregation."""
        facts = self.facts
        steps = tuple(
            (s["message_bound_per_leaf"][leaf], s["device_noise_std_per_leaf"][leaf],
             s["repeats_hidden_steps_per_leaf"][leaf], facts.sends(place, leaf),
             facts.broadcasts(place, leaf))
            for place, s in enumerate(facts.steps)
        )  # fmt: skip
        sums = facts.drawn[leaf], facts.least_divisor[leaf], facts.most_divisor[leaf], int(facts.sure[leaf])
        return (*sums, tuple(sorted(self.members[leaf].items())), steps)

    def key_of(self, unit: int, observer: Party) -> Any:
        """A hashable key of a unit and an observer, equal for pairs that a symmetry of the tree exchanges."""
        facts = self.facts
        leaf, kind = facts.leaf_of(unit), self.kinds[facts.class_of(unit)]
        mine = int(self.alike[-1][leaf]), kind
        who, _, index = observer
        if who == "public":
            return mine, "public"
        (tier, node), common = facts.node_of(observer), facts.lowest_common_tier(unit, observer)
        theirs = (self.kinds[facts.class_of(index)],) if who == "device" else ()
        return mine, who, common, tier, int(self.alike[tier][node]), *theirs

    def unit_classes(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Yield the classes of devices that a symmetry of the tree exchanges, with the pairs of one of each.

        Yields:
            The numbers of the devices of a class; and for one of them the number of observers, other than
            itself, by the key of the pair (`key_of`).
        """
        facts, alike = self.facts, dict[Any, list[int]]()
        numbers = self.alike[-1][facts.class_leaf[facts.class_per_device]].tolist()
        for device, (number, own) in enumerate(zip(numbers, facts.class_per_device.tolist(), strict=True)):
            alike.setdefault((number, self.kinds[own]), []).append(device)
        _, firsts = np.unique(self.alike[-1], return_index=True)
        for leaf in firsts.tolist():
            others = self._observers_of(leaf)
            for kind in self.members[leaf]:
                mine = int(self.alike[-1][leaf]), kind
                found = Counter[Any]({(mine, "public"): 1})
                for key, count in others.items():
                    itself = key[:2] == ("device", self.facts.depth - 1) and key[4] == kind
                    if count > itself:
                        found[(mine, *key)] += count - itself
                yield alike.get(mine, []), found

    def _observers_of(self, leaf: int) -> Counter[Any]:
        """Number of observers of each kind towards a device of ``leaf``; the public is not among them.

        A kind, as a tuple: node or device, the lowest tier shared, its tier, its class, and of a device its
        own class. The device itself is counted too.
        """
        facts, found = self.facts, Counter[Any]()
        for tier in range(facts.depth):
            above = np.arange(len(facts.parents[tier]))
            common = np.full(len(above), -1)
            for t in range(tier, -1, -1):
                common += above == facts.paths[leaf, t]
                above = facts.parents[t][above]
            for node, (shared, alike) in enumerate(zip(common, self.alike[tier], strict=True)):
                found["node", int(shared), tier, int(alike)] += 1
                for kind, size in self.members[node].items() if tier == facts.depth - 1 else ():
                    found["device", int(shared), tier, int(alike), kind] += size
        return found

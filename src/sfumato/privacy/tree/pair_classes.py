"""Which ordered pairs of a unit and an observer in a tree are alike, so that one stands for all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from sfumato.privacy.observers import (
    CLOUD,
    PEER,
    PUBLIC,
    PairClass,
    Party,
    Relation,
    UnitClass,
    covering,
    unit_classes,
)
from sfumato.privacy.tree.facts import TreeFacts
from sfumato.privacy.tree.shape import BoolArray, IntArray


@dataclass(frozen=True)
class TreePairs:
    """The pairs of a unit and an observer in a tree, sorted into classes that are charged alike.

    Attributes:
        facts: of the tree.
        apart: whether no two nodes are taken as alike, because the facts of some rounds differ from these.
    """

    facts: TreeFacts
    apart: bool = False

    @cached_property
    def orbits(self) -> tuple[IntArray, ...]:
        """For each tier, a number for every node, equal only where an automorphism exchanges the nodes.

        Int64 arrays ``[nodes]``, the cloud's tier first. Nodes of one number have the same facts, subtrees of
        the same kinds, and ancestors of one number; with `apart`, every node has its own.
        """
        facts = self.facts
        if self.apart:
            return tuple(np.arange(len(parents)) for parents in facts.parents)
        below: list[list[Any]] = []
        leaves = [
            (
                int(n),
                float(p),
                float(facts.leaf_weight[i]),
                float(facts.largest_denominators[i]),
                int(facts.min_contributors[i]),
                *(
                    (*facts.classes.kind(number), int(facts.classes.count[number]))
                    for number in facts.classes.of_leaf(i)
                ),
                *(
                    (
                        float(s.message_norm[i]),
                        float(s.device_std[i]),
                        bool(s.resends[i]),
                        s.sends(i),
                        s.broadcasts(i),
                    )
                    for s in facts.steps
                ),
            )
            for i, (n, p) in enumerate(zip(facts.devices, facts.drawn, strict=True))
        ]
        keys: dict[Any, int] = {}

        def number(key: Any) -> int:
            return keys.setdefault(key, len(keys))

        current = [number((leaf, self._node_facts(facts.depth - 1, i))) for i, leaf in enumerate(leaves)]
        below.append(current)
        for tier in range(facts.depth - 2, -1, -1):
            groups: list[list[int]] = [[] for _ in facts.parents[tier]]
            for child, parent in enumerate(facts.parents[tier + 1]):
                groups[int(parent)].append(current[child])
            current = [
                number((tier, tuple(sorted(group)), self._node_facts(tier, i)))
                for i, group in enumerate(groups)
            ]
            below.append(current)
        subtree = below[::-1]
        paths: dict[Any, int] = {}
        orbits: list[IntArray] = []
        for tier, numbers in enumerate(subtree):
            above = orbits[-1][facts.parents[tier]] if tier else np.zeros(1, dtype=np.int64)
            rows = [
                paths.setdefault((tier, int(a), n), len(paths)) for a, n in zip(above, numbers, strict=True)
            ]
            orbits.append(np.array(rows, dtype=np.int64))
        return tuple(orbits)

    def _node_facts(self, tier: int, index: int) -> tuple[tuple[float, float], ...]:
        """The noise stds of a node and of its channel at every aggregation of a round; 0 for none.

        ``tier`` and ``index``: of the node.
        """
        return tuple(
            (
                float(s.node_std[tier][index]),
                float(s.channel_std[tier][index]) if s.channel_std else 0.0,
            )
            for s in self.facts.steps
        )

    def of(self, unit: int | None = None, *, apart: bool = False) -> Iterator[PairClass]:
        """Yield one pair of every class of equivalent ordered pairs; their ``pair_count`` adds up to all.

        Observers are every aggregator, the public and every other device.

        Args:
            unit: only pairs of this device; ``None``: of all.
            apart: whether sites whose records are drawn unequally often are classes of their own.

        Raises:
            RuntimeError: an internal error: the classes do not add up to all pairs.
        """
        return covering(self.listed(unit, apart=apart), self.pair_count(unit))

    def listed(self, unit: int | None = None, *, apart: bool = False) -> Iterator[PairClass]:
        """Yield one pair of every class of equivalent ordered pairs; as `of`, but counts are not checked.

        Args:
            unit: only pairs of this device; ``None``: of all.
            apart: whether sites whose records are drawn unequally often are classes of their own.
        """
        if unit is not None:
            yield from self._pairs_of(UnitClass(unit, 1))
            return
        for units in self.units(apart=apart):
            yield from self._pairs_of(units)

    def pair_count(self, unit: int | None = None) -> int:
        """Number of all ordered pairs of a unit and an observer, or of those of ``unit``."""
        facts = self.facts
        observers = sum(map(len, facts.parents)) + 1 + facts.device_count - 1
        return observers * (facts.device_count if unit is None else 1)

    def units(self, *, apart: bool = False) -> Iterator[UnitClass]:
        """Yield the classes of devices that have the same facts at the same kind of place in the tree.

        ``apart``: whether sites whose records are drawn unequally often are classes of their own.
        """
        facts, leaf_classes = self.facts, self.orbits[-1]
        _, firsts = np.unique(leaf_classes, return_index=True)
        for leaf in np.sort(firsts):
            alike = int((leaf_classes == leaf_classes[leaf]).sum())
            for number in facts.classes.of_leaf(int(leaf)):
                first = int(facts.classes.members(number, 1)[0])
                yield from unit_classes(
                    first,
                    int(facts.classes.count[number]) * alike,
                    partial(self._alike, first),
                    rates=facts.batches.rates,
                    sites=facts.sites,
                    apart=apart,
                )

    def _alike(self, unit: int) -> IntArray:
        """All devices with the facts of ``unit`` at the same kind of place in the tree, ascending."""
        classes, leaf_classes = self.facts.classes, self.orbits[-1]
        mine = classes.kind(self.facts.class_of(unit))
        alike = np.flatnonzero(leaf_classes == leaf_classes[self.facts.leaf_of(unit)])
        numbers = (number for leaf in alike for number in classes.of_leaf(int(leaf)))
        devices = [classes.members(n, int(classes.count[n])) for n in numbers if classes.kind(n) == mine]
        return np.sort(np.concatenate(devices))

    def _pairs_of(self, found: UnitClass) -> Iterator[PairClass]:
        """The pairs of the units in ``found`` with every class of observers."""
        pairs = self._observers_of(found.unit, found.count)
        if found.least is None and not found.sites:
            yield from pairs
            return
        for pair in pairs:
            yield replace(pair, least=found.least, sites=found.sites)

    def _observers_of(self, unit: int, units: int) -> Iterator[PairClass]:
        """Yield one pair for every class of observers of ``unit``, which stands for ``units`` units.

        Their ``pair_count`` is the number of observers in the class times ``units``.
        """
        facts, leaf = self.facts, self.facts.leaf_of(unit)
        path = facts.paths[leaf]
        yield PairClass(unit, Party("public"), PUBLIC, units)
        for tier in range(facts.depth):
            relation = CLOUD if tier == 0 else Relation.edge(facts.names[tier])
            yield PairClass(unit, Party("node", tier, int(path[tier])), relation, units)
        yield from self._peers(unit, units)
        for common in range(facts.depth - 1):
            yield from self._elsewhere(unit, path, common, units)

    def _peers(self, unit: int, units: int) -> Iterator[PairClass]:
        """One pair for every class of other devices of the unit's leaf."""
        facts = self.facts
        for number in facts.classes.of_leaf(facts.leaf_of(unit)):
            peers = int(facts.classes.count[number]) - (number == facts.class_of(unit))
            if peers:
                yield self._peer_of(unit, number, units * peers)

    def _peer_of(self, unit: int, number: int, pairs: int) -> PairClass:
        """The class of the ``pairs`` pairs of ``unit`` with another device of class ``number`` as a peer."""
        peer = next(int(d) for d in self.facts.classes.members(number, 2) if d != unit)
        return PairClass(unit, Party("device", 0, peer), PEER, pairs)

    def _elsewhere(self, unit: int, path: IntArray, common: int, units: int) -> Iterator[PairClass]:
        """Yield one pair for every class of observers whose lowest node above both is ``path[common]``.

        Args:
            unit: the device.
            path: indices of the nodes above it, from the root to its leaf.
            common: tier of the lowest node that is above both.
            units: how many units ``unit`` stands for.
        """
        facts, names, place = self.facts, self.facts.names, self._place_elsewhere(common)
        for tier in range(common + 1, facts.depth):
            nodes = np.flatnonzero(self._nodes_elsewhere(tier, path, common))
            orbits = self.orbits[tier][nodes]
            for orbit in np.flatnonzero(np.bincount(orbits)):
                alike = nodes[orbits == orbit]
                node, edge = Party("node", tier, int(alike[0])), Relation.edge(names[tier], place)
                yield PairClass(unit, node, edge, units * len(alike))
                if tier == facts.depth - 1:
                    for number in facts.classes.of_leaf(int(alike[0])):
                        first = int(facts.classes.members(number, 1)[0])
                        count = int(facts.classes.count[number]) * len(alike)
                        device = Party("device", 0, first)
                        yield PairClass(unit, device, Relation.device(place), units * count)

    def _place_elsewhere(self, common: int) -> str:
        """Words for where an observer is whose lowest common ancestor with the unit is in tier ``common``."""
        names = self.facts.names
        return " elsewhere" if common == 0 else f" in another {names[common + 1]} of its {names[common]}"

    def _nodes_elsewhere(self, tier: int, path: IntArray, common: int) -> BoolArray:
        """Mask ``[nodes]`` of those of ``tier`` that share just ``path[common]`` and above with the unit."""
        ancestors = self._ancestors(tier, common + 1)
        siblings = self.facts.parents[common + 1][ancestors] == path[common]
        there: BoolArray = siblings & (ancestors != path[common + 1])
        return there

    def _ancestors(self, tier: int, above: int) -> IntArray:
        """The index, in tier ``above``, of the node over each node of ``tier``: ``[nodes]``."""
        found = np.arange(len(self.facts.parents[tier]))
        for t in range(tier, above, -1):
            found = self.facts.parents[t][found]
        return found

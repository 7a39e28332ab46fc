"""Names of units and observers in a tree, which may move: by trust, sizes, noise and common ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from sfumato.network.tree import MOST_SITES, IntArray, Tree
from sfumato.report.formatting import how_many, join_names, pluralise, whole
from sfumato.report.results.network import Network
from sfumato.report.results.observer_labels import (
    MOST_NAMES,
    Column,
    ObserverLabels,
    Row,
    column_of_observer_kind,
    index_of,
)
from sfumato.user_text import decimal

Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class TreeLabels(ObserverLabels):
    """Labels for a tree: units by trust, size and noise on their path, observers by common ancestors."""

    network: Network
    tree: Tree

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The row of devices with the trust, sizes and noise on their path that ``unit`` has."""
        device = self._device(unit)
        if device is None:
            return Row((1 << 60, unit), unit, "")
        leaf = self.tree.leaf_of(device)
        leaves = self._classes[self._signature(leaf)]
        if sites and self.tree.depth > 1:
            labels = self.tree.tiers[-1].labels
            leaves = [place for place in leaves if labels and labels[place] in sites] or leaves
        size = int(self.tree.devices[leaves].sum())
        devices = how_many(size, "device")
        details = [self._trust(leaf) if self.network.noise else "", self._noise(leaf)]
        if self.tree.depth == 1:
            names = sites or self.tree.device_names
            if 0 < len(names) <= MOST_NAMES:
                devices = join_names(names)
            elif sites:
                devices = how_many(len(sites), "device")
            order, above = device if sites else 0, "the cloud"
        else:
            order, above = leaves[0], self._leaves(leaves)
        return Row((order, ""), f"{devices} under {above}", ", ".join(filter(None, details)))

    def _party(self, unit: str, observer: str) -> Column:
        """The column for an aggregator or a device, by where its path meets that of ``unit``."""
        device = self._device(unit)
        if device is None:
            return column_of_observer_kind(observer)
        deepest = self.tree.depth - 1
        path = self.tree.paths[self.tree.leaf_of(device)]
        other = self._device(observer)
        if other is not None:
            common = _common(path, self.tree.paths[self.tree.leaf_of(other)])
            near = 10 * (deepest - common)
            if deepest == 0:
                return Column((near, ""), "other devices", "peer")
            if common == deepest:
                return Column((near, ""), f"peers (same {self.tree.tiers[-1].name})", "peer")
            return Column((near, ""), f"devices {self._elsewhere(common)}", "other-device")
        kind, _, number = observer.partition(":")
        for depth, tier in enumerate(self.tree.tiers):
            index = decimal(number)
            if depth and tier.name == kind and index is not None and index < tier.size:
                above = self._ancestors(depth, index)
                common = _common(path, above)
                if common == depth:
                    order = 10 * (deepest - depth) + 1
                    return Column((order, ""), f"own {kind}", "own-edge", f"their own {kind}")
                order = 10 * (deepest - common) + 2 + deepest - depth
                return Column((order, ""), f"{pluralise(kind)} {self._elsewhere(common)}", "other-edge")
        return column_of_observer_kind(observer)

    def _members(self, coalition: str) -> str:
        """The members of a coalition by their names."""
        return super()._members(self.tree.titled(coalition))

    def _leaves(self, leaves: Sequence[int]) -> str:
        """Names of the sites, where they have any and are few; else numbers."""
        labels, name = self.tree.tiers[-1].labels, self.tree.tiers[-1].name
        if labels and len(leaves) <= MOST_SITES:
            return join_names([labels[leaf] for leaf in leaves])
        return f"{name if len(leaves) == 1 else pluralise(name)} {_ranges(leaves)}"

    def _elsewhere(self, common: int) -> str:
        """The phrase ``elsewhere``, with the common ancestor's tier where that is below the cloud."""
        return "elsewhere" if common == 0 else f"elsewhere in the {self.tree.tiers[common].name}"

    def _device(self, name: str) -> int | None:
        """The number in ``device:N``; ``None`` where there is no such device."""
        index = index_of(name)
        known = name.startswith("device:") and index is not None and index < self.tree.device_count
        return index if known else None

    def _ancestors(self, depth: int, index: int) -> list[int]:
        """The path from the cloud to the node at ``index`` of tier ``depth``."""
        path = [index]
        for parents in self.tree.parents[depth:0:-1]:
            path.append(int(parents[path[-1]]))
        return path[::-1]

    @cached_property
    def _classes(self) -> dict[Key, list[int]]:
        """The leaves of every row, by their signature."""
        classes: dict[Key, list[int]] = {}
        for leaf in range(self.tree.leaf_count):
            classes.setdefault(self._signature(leaf), []).append(leaf)
        return classes

    def _signature(self, leaf: int) -> Key:
        """A key that is equal for leaves with the same trust, size and noise on their path."""
        noise = self.network.noise
        if not noise:
            return ()  # without noise, trust and size make no difference
        steps: list[object] = []
        for depth in range(1, self.tree.depth):
            index = int(self.tree.paths[leaf, depth])
            name, size = self.tree.node_name(depth, index), int(self.tree.children[depth][index])
            noises = noise.get(name), noise.get(f"{name}/devices")
            steps += [bool(self.tree.tiers[depth].trusted[index]), size, *noises]
        return tuple(steps)

    def _trust(self, leaf: int) -> str:
        """Which aggregators on the path of ``leaf`` are trusted, as text."""
        path = self.tree.paths[leaf]
        tiers = reversed(list(enumerate(self.tree.tiers))[1:])
        marks = [(tier.name, bool(tier.trusted[path[depth]])) for depth, tier in tiers]
        if not marks:
            return "cloud trusted" if self.tree.tiers[0].trusted[0] else ""
        if len({trusted for _, trusted in marks}) == 1:
            who = marks[0][0] if len(marks) == 1 else "all above"
            return f"{who} {'trusted' if marks[0][1] else 'untrusted'}"
        return ", ".join(f"{name} {'trusted' if trusted else 'untrusted'}" for name, trusted in marks)

    def _noise(self, leaf: int) -> str:
        """Who on the path of ``leaf`` adds noise, as text."""
        path, tiers = self.tree.paths[leaf], reversed(list(enumerate(self.tree.tiers)))
        above = [(self.tree.node_name(depth, int(path[depth])), tier.name) for depth, tier in tiers]
        places = ["device"] if self.network.adds_noise(f"{above[0][0]}/devices") else []
        places += [name for node, name in above if self.network.adds_noise(node)]
        if self.network.over_air:
            places.append("receiver")
        return f"noise at {join_names(places)}" if places else "no noise"


@dataclass(frozen=True)
class MovingLabels(TreeLabels):
    """Labels where devices move: a unit by the edges that it is under, in turn."""

    @cached_property
    def _places(self) -> IntArray:
        """The edge of every device, ``[eras, devices]``."""
        return edges_over_time(self.network)

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The row of devices that are under the same edges in the same rounds."""
        device = self._device(unit)
        if device is None:
            return Row((1 << 60, unit), unit, "")
        alike = np.flatnonzero((self._places == self._places[:, [device]]).all(axis=0)).tolist()
        name = self.tree.tiers[-1].name
        visited = ", ".join(str(edge) for edge in _in_turn(self._places[:, device])[:12])
        more = " …" if len(_in_turn(self._places[:, device])) > 12 else ""
        title = f"device {device}" if len(alike) == 1 else f"device {device} and {len(alike) - 1} like it"
        return Row((alike[0], ""), title, f"{name} {visited}{more}")

    def _party(self, unit: str, observer: str) -> Column:
        """The column for an aggregator or a device, by whether it ever is above or beside ``unit``."""
        device, other = self._device(unit), self._device(observer)
        kind, _, number = observer.partition(":")
        if device is None:
            return super()._party(unit, observer)
        mine, name = self._places[:, device], self.tree.tiers[-1].name
        if other is not None:
            if (mine == self._places[:, other]).any():
                return Column((0, ""), f"peers (ever under the same {name})", "peer")
            return Column((20, ""), "devices elsewhere", "other-device")
        if kind == name and number.isdecimal():
            if int(number) in mine.tolist():
                own = pluralise(name)
                if self._is_trusted_by(device, int(number)):
                    return Column((2, ""), f"trusted {own} it is ever under", "own-edge")
                return Column((1, ""), f"untrusted {own} it is ever under", "own-edge")
            return Column((22, ""), f"{pluralise(name)} elsewhere", "other-edge")
        return super()._party(unit, observer)

    def _is_trusted_by(self, device: int, edge: int) -> bool:
        """Whether the edge is trusted in some round in which the device is under it."""
        trees = zip(self.network.trees, self._places[:, device], strict=True)
        return any(place == edge and bool(tree.tiers[-1].trusted[edge]) for (_, tree), place in trees)


def tree_labels(network: Network, tree: Tree) -> TreeLabels:
    """The labels of a tree, which may move."""
    return MovingLabels(network, tree) if network.trees else TreeLabels(network, tree)


def _in_turn(places: IntArray) -> list[int]:
    """The edges that a device is under, one after the other, repetitions left out."""
    kept = np.flatnonzero(np.diff(places, prepend=-1))
    return [int(edge) for edge in places[kept]]


def edges_over_time(network: Network) -> IntArray:
    """The edge of every device where devices move, ``[eras, devices]``."""
    everybody = np.arange(network.trees[0][1].device_count)
    return np.stack([tree.leaves_of(everybody) for _, tree in network.trees])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """The depth of the nearest common ancestor of two paths from the cloud down."""
    alike = [a == b for a, b in zip(one, other, strict=False)]
    return (alike.index(False) if False in alike else len(alike)) - 1


def _ranges(indices: Sequence[int], most: int = 4) -> str:
    """``0–3, 7``; with more than ``most`` ranges, the number of the remaining indices."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    names = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}" for a, b in runs]
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {whole(sum(b - a + 1 for a, b in runs[most - 1 :]))} more"

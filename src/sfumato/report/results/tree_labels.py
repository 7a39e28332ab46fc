"""Names of units and observers in a tree, which may move: by trust, sizes, noise and common ancestors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from sfumato.network.tree import MOST_SITES, IntArray, Tree
from sfumato.report.formatting import how_many, join_names, pluralise, ranges_text
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
    """Labels for a tree: units by trust, size and noise on their path, observers by common ancestors.

    Attributes:
        network: of a run.
        tree: of it; of one that moves the tree of the first era.
    """

    network: Network
    tree: Tree

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The row of a table that ``unit`` is counted in, with all devices like it.

        Devices are alike if the aggregators above them have the same trust, sizes and noise at every level.
        The title gives how many there are and under which leaves, the detail trust and noise. A name that is
        no device of the tree gets a row of its own, after all others.

        Args:
            unit: such as ``device:3``.
            sites: names of the sites that the row is about; empty: all devices that are alike.
        """
        device = self._device_index(unit)
        if device is None:
            return Row((1 << 60, unit), unit, "")
        leaf = self.tree.leaf_of(device)
        leaves = self._classes[self._signature(leaf)]
        if sites and self.tree.depth > 1:
            labels = self.tree.tiers[-1].labels
            leaves = [place for place in leaves if labels and labels[place] in sites] or leaves
        size = int(self.tree.devices[leaves].sum())
        devices = how_many(size, "device")
        details = [self._trust_text(leaf) if self.network.has_noise else "", self._noise_text(leaf)]
        if self.tree.depth == 1:
            names = sites or self.tree.device_names
            if 0 < len(names) <= MOST_NAMES:
                devices = join_names(names)
            elif sites:
                devices = how_many(len(sites), self.network.device_word)
            order, above = device if sites else 0, ""
        else:
            order, above = leaves[0], self._leaves_text(leaves)
        title = devices if self.tree.depth == 1 else f"{devices} under {above}"
        return Row((order, ""), title, ", ".join(filter(None, details)))

    def _party_column(self, unit: str, observer: str) -> Column:
        """The column for an aggregator or a device, by where its path meets that of ``unit``.

        ``observer``: such as ``edge:0``; a name that is not of this tree gets the column of its kind.
        """
        device = self._device_index(unit)
        if device is None:
            return column_of_observer_kind(observer)
        deepest = self.tree.depth - 1
        path = self.tree.paths[self.tree.leaf_of(device)]
        other = self._device_index(observer)
        if other is not None:
            common = _common_depth(path, self.tree.paths[self.tree.leaf_of(other)])
            near = 10 * (deepest - common)
            if deepest == 0:
                named = bool(self.tree.device_names)
                return Column((near, ""), "other sites" if named else "other devices", "peer")
            if common == deepest:
                return Column((near, ""), f"peers (same {self.tree.tiers[-1].name})", "peer")
            return Column((near, ""), f"devices {self._elsewhere_text(common)}", "other-device")
        kind, _, number = observer.partition(":")
        for depth, tier in enumerate(self.tree.tiers):
            index = decimal(number)
            if depth and tier.name == kind and index is not None and index < tier.size:
                above = self._ancestors(depth, index)
                common = _common_depth(path, above)
                if common == depth:
                    order = 10 * (deepest - depth) + 1
                    return Column((order, ""), f"own {kind}", "own-edge", f"their own {kind}")
                order = 10 * (deepest - common) + 2 + deepest - depth
                return Column((order, ""), f"{pluralise(kind)} {self._elsewhere_text(common)}", "other-edge")
        return column_of_observer_kind(observer)

    def _coalition_text(self, coalition: str) -> str:
        """The members of a coalition by their titles, with " + "."""
        return super()._coalition_text(self.tree.titled(coalition))

    def _leaves_text(self, leaves: Sequence[int]) -> str:
        """The leaves as text: by names of sites if these are few, otherwise by ranges of indices."""
        labels, name = self.tree.tiers[-1].labels, self.tree.tiers[-1].name
        if labels and len(leaves) <= MOST_SITES:
            return join_names([labels[leaf] for leaf in leaves])
        return f"{name if len(leaves) == 1 else pluralise(name)} {ranges_text(leaves)}"

    def _elsewhere_text(self, common: int) -> str:
        """The text "elsewhere", or "elsewhere in the region" where the common ancestor is a region.

        ``common``: the tier of the common ancestor, 0 for the cloud.
        """
        return "elsewhere" if common == 0 else f"elsewhere in the {self.tree.tiers[common].name}"

    def _device_index(self, name: str) -> int | None:
        """The number N in ``device:N``; ``None`` for another name, or where the tree has no such device."""
        index = index_of(name)
        known = name.startswith("device:") and index is not None and index < self.tree.device_count
        return index if known else None

    def _ancestors(self, depth: int, index: int) -> list[int]:
        """Indices of the nodes on the path from the cloud to node ``index`` of tier ``depth``."""
        path = [index]
        for parents in self.tree.parents[depth:0:-1]:
            path.append(int(parents[path[-1]]))
        return path[::-1]

    @cached_property
    def _classes(self) -> dict[Key, list[int]]:
        """The leaves with each signature (`_signature`), ascending; devices under them share one row."""
        classes: dict[Key, list[int]] = {}
        for leaf in range(self.tree.leaf_count):
            classes.setdefault(self._signature(leaf), []).append(leaf)
        return classes

    def _signature(self, leaf: int) -> Key:
        """A key that is equal for leaves with the same trust, size and noise at every level.

        That is from the leaf up to below the cloud. Without noise anywhere it is () for all leaves.
        """
        noise = self.network.noise
        if not self.network.has_noise:
            return ()  # without noise, trust and size make no difference
        steps: list[object] = []
        for depth in range(1, self.tree.depth):
            index = int(self.tree.paths[leaf, depth])
            name, size = self.tree.node_name(depth, index), int(self.tree.children[depth][index])
            noises = noise.get(name), self.network.noise_of_devices(name)
            steps += [bool(self.tree.tiers[depth].trusted[index]), size, *noises]
        return tuple(steps)

    def _trust_text(self, leaf: int) -> str:
        """Which aggregators on the path of a leaf are trusted, as text; "" where nobody trusts any."""
        if not any(tier.trusted.any() for tier in self.tree.tiers):
            return ""
        path = self.tree.paths[leaf]
        tiers = reversed(list(enumerate(self.tree.tiers))[1:])
        marks = [(tier.name, bool(tier.trusted[path[depth]])) for depth, tier in tiers]
        if not marks:
            return "cloud trusted" if self.tree.tiers[0].trusted[0] else ""
        if len({trusted for _, trusted in marks}) == 1:
            who = marks[0][0] if len(marks) == 1 else "all above"
            return f"{who} {'trusted' if marks[0][1] else 'untrusted'}"
        return ", ".join(f"{name} {'trusted' if trusted else 'untrusted'}" for name, trusted in marks)

    def _noise_text(self, leaf: int) -> str:
        """The text "noise added by …" with who on the path of a leaf does so; "no noise" if nobody does."""
        path, tiers = self.tree.paths[leaf], reversed(list(enumerate(self.tree.tiers)))
        above = [(self.tree.node_name(depth, int(path[depth])), tier.name) for depth, tier in tiers]
        devices = self.network.noise_of_devices(above[0][0])
        device = self.network.device_word
        places = [device if devices.of_all else f"some {pluralise(device)}"] if devices.of_some else []
        places = [f"{device} at every local step"] if devices.at_steps else places
        places += [name for node, name in above if self.network.adds_noise(node)]
        said = [f"noise added by {join_names(places)}"] if places else []
        said += ["noise of the receiver"] if self.network.over_air else []
        return ", ".join(said) or "no noise"


@dataclass(frozen=True)
class MovingLabels(TreeLabels):
    """Labels where devices move: a unit by the number of rounds that it spends at trusted edges."""

    @cached_property
    def _places(self) -> IntArray:
        """The edge of every device, ``[eras, devices]``."""
        return edges_over_time(self.network)

    @cached_property
    def _trusting_rounds(self) -> IntArray:
        """In how many rounds the edge of every device is trusted, ``[devices]``."""
        starts = [first for first, _ in self.network.trees]
        lengths = np.diff([*starts, self.network.rounds])
        trusted = [
            tree.tiers[-1].trusted[places]
            for (_, tree), places in zip(self.network.trees, self._places, strict=True)
        ]
        return np.asarray(lengths @ np.stack(trusted).astype(np.int64))

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The row of devices with as many rounds at trusted edges, on which their ε depends most."""
        device = self._device_index(unit)
        if device is None:
            return Row((1 << 60, unit), unit, "")
        rounds, total = int(self._trusting_rounds[device]), self.network.rounds
        edges, of_all = pluralise(self.tree.tiers[-1].name), how_many(total, "round")
        share = "no round" if not rounds else f"all {of_all}" if rounds == total else f"{rounds} of {of_all}"
        alike = np.flatnonzero(self._trusting_rounds == rounds)
        return Row((rounds, ""), f"{self._who(alike)} ({share} at trusted {edges})", "")

    def _who(self, devices: IntArray) -> str:
        """The devices of these numbers by name, or how many they are where they are many."""
        if len(devices) > MOST_NAMES:
            return how_many(len(devices), "device")
        names = self.tree.device_names
        return join_names([names[device] if names else f"device {device}" for device in devices.tolist()])

    def _party_column(self, unit: str, observer: str) -> Column:
        """The column for the aggregator or device ``observer``, by where it ever is.

        An aggregator is ever above ``unit`` or elsewhere, a device ever under the same edge or elsewhere.
        """
        device, other = self._device_index(unit), self._device_index(observer)
        kind, _, number = observer.partition(":")
        if device is None:
            return super()._party_column(unit, observer)
        mine, name = self._places[:, device], self.tree.tiers[-1].name
        if other is not None:
            if (mine == self._places[:, other]).any():
                return Column((0, ""), f"peers (ever under the same {name})", "peer")
            return Column((20, ""), "devices elsewhere", "other-device")
        if kind == name and number.isdecimal():
            if int(number) in mine.tolist():
                own = pluralise(name)
                if self._is_trusted_by(device, int(number)):
                    return _ever_above(2, f"trusted {own} they are ever under")
                return _ever_above(1, f"untrusted {own} they are ever under")
            return Column((22, ""), f"{pluralise(name)} elsewhere", "other-edge")
        return super()._party_column(unit, observer)

    def _is_trusted_by(self, device: int, edge: int) -> bool:
        """Whether the edge is trusted in some round in which the device is under it."""
        trees = zip(self.network.trees, self._places[:, device], strict=True)
        return any(place == edge and bool(tree.tiers[-1].trusted[edge]) for (_, tree), place in trees)


def _ever_above(place: int, title: str) -> Column:
    """The column of aggregators that a moving device is ever under; ``place`` in the order of columns."""
    return Column((place, ""), title, "own-edge", f"the {title}")


def tree_labels(network: Network, tree: Tree) -> TreeLabels:
    """The object that puts units and observers of a tree into rows and columns of the matrix of ε.

    Where devices move between edges it is one that goes by their edges over time.
    """
    return MovingLabels(network, tree) if network.trees else TreeLabels(network, tree)


def edge_titles(tree: Tree) -> list[str]:
    """The title of every edge: its name in the topology, or the name of its level with its number."""
    tier = tree.tiers[-1]
    return list(tier.labels) if tier.labels else [f"{tier.name} {edge}" for edge in range(tier.size)]


def edges_over_time(network: Network) -> IntArray:
    """Number of the edge of every device in every era, ``[eras, devices]``.

    ``network``: with eras (`Network.trees`).
    """
    everybody = np.arange(network.trees[0][1].device_count)
    return np.stack([tree.leaves_of(everybody) for _, tree in network.trees])


def _common_depth(one: Sequence[int], other: Sequence[int]) -> int:
    """The tier of the nearest common ancestor of two leaves, from 0 for the cloud.

    ``one``, ``other``: the indices of the nodes on the path to each, which begin at the cloud.
    """
    alike = [a == b for a, b in zip(one, other, strict=False)]
    return (alike.index(False) if False in alike else len(alike)) - 1

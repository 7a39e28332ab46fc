"""Names of classes of units, and of observers by their relation to a unit, from the ids of ``privacy.json``.

A run of a million devices has a few classes of devices (same trust, same size, same noise on the path to the
cloud). The relation of an observer to a unit is, for example, its own edge, a peer, a cabinet in the same
region, or the cloud.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from sfumato.network.groups import BoolArray, Groups
from sfumato.network.tree import MOST_SITES, Tree
from sfumato.report.formatting import join_names, pluralise, whole
from sfumato.report.results.network import GroupNetwork, Network
from sfumato.user_text import decimal

Key: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class Row:
    """A class of units: ``order`` is the sort key, ``title`` and ``detail`` describe the class."""

    order: tuple[int, str]
    title: str
    detail: str


@dataclass(frozen=True)
class Column:
    """The relation of an observer to a unit: ``order`` is the sort key, from near to far."""

    order: tuple[int, str]
    title: str
    own_aggregator: bool = False
    coalition: bool = False


class ObserverLabels(abc.ABC):
    """Names units and observers."""

    def row(self, unit: str, sites: Sequence[str] = ()) -> Row:
        """The class of ``unit``, a device or one record of it, at ``sites`` if they have names."""
        if not unit.startswith(_RECORD):
            return self._row(unit, sites)
        of_device = self._row(_device_of(unit), sites)
        order = (of_device.order[0], f"{of_device.order[1]} record")
        return Row(order, f"one record of {of_device.title}", of_device.detail)

    @abc.abstractmethod
    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The class of a device, at ``sites``."""

    def column(self, unit: str, observer: str) -> Column:
        """The relation of ``observer`` to ``unit``."""
        unit = _device_of(unit)
        if observer == "cloud":
            return Column((9_000, ""), "cloud")
        if observer == "public":
            return Column((9_001, ""), "public")
        if "," in observer:
            return Column((9_003, observer), f"coalition {self._members(observer)}", coalition=True)
        return self._party(unit, observer)

    def _members(self, coalition: str) -> str:
        return coalition.replace(",", " + ")

    @abc.abstractmethod
    def _party(self, unit: str, observer: str) -> Column:
        """The relation of a single party, neither cloud nor public, to ``unit``."""


def labels_for(network: Network) -> ObserverLabels:
    """The labels for the shape of ``network``."""
    if network.family is None:
        return PlainLabels()
    return network.family.labels(network)


@dataclass(frozen=True)
class PlainLabels(ObserverLabels):
    """Labels for a network whose shape is not known: units by id, observers by kind."""

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """The unit itself."""
        return Row((_index(unit) or 0, unit), unit, "")

    def _party(self, unit: str, observer: str) -> Column:
        return _by_kind(observer)


@dataclass(frozen=True)
class TreeLabels(ObserverLabels):
    """Labels for a tree: units by trust, size and noise on their path, observers by common ancestors."""

    network: Network
    tree: Tree

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """Devices with the same trust, sizes and noise on their path as ``unit``; of ``sites`` alone."""
        device = self._device(unit)
        if device is None:
            return Row((1 << 60, unit), unit, "")
        leaf = self.tree.leaf_of(device)
        leaves = self._classes[self._signature(leaf)]
        if sites and self.tree.depth > 1:
            labels = self.tree.tiers[-1].labels
            leaves = [place for place in leaves if labels and labels[place] in sites] or leaves
        size = int(self.tree.devices[leaves].sum())
        devices = f"{whole(size)} {pluralise('device', size)}"
        details = [self._trust(leaf) if self.network.noise else "", self._noise(leaf)]
        if self.tree.depth == 1:
            names = sites or self.tree.device_names
            if 0 < len(names) <= _MOST_NAMES:
                devices = join_names(names)
            elif sites:
                devices = f"{whole(len(sites))} {pluralise('device', len(sites))}"
            return Row(
                (device if sites else 0, ""), f"{devices} under the cloud", ", ".join(filter(None, details))
            )
        return Row(
            (leaves[0], ""), f"{devices} under {self._leaves(leaves)}", ", ".join(filter(None, details))
        )

    def _party(self, unit: str, observer: str) -> Column:
        device = self._device(unit)
        if device is None:
            return _by_kind(observer)
        deepest = self.tree.depth - 1
        path = self.tree.paths[self.tree.leaf_of(device)]
        other = self._device(observer)
        if other is not None:
            common = _common(path, self.tree.paths[self.tree.leaf_of(other)])
            near = 10 * (deepest - common)
            if deepest == 0:
                return Column((near, ""), "other devices")
            if common == deepest:
                return Column((near, ""), f"peers (same {self.tree.tiers[-1].name})")
            return Column((near, ""), f"devices {self._elsewhere(common)}")
        kind, _, number = observer.partition(":")
        for depth, tier in enumerate(self.tree.tiers):
            index = decimal(number)
            if depth and tier.name == kind and index is not None and index < tier.size:
                above = self._ancestors(depth, index)
                common = _common(path, above)
                if common == depth:
                    return Column((10 * (deepest - depth) + 1, ""), f"own {kind}", depth == deepest)
                order = 10 * (deepest - common) + 2 + deepest - depth
                return Column((order, ""), f"{pluralise(kind)} {self._elsewhere(common)}")
        return _by_kind(observer)

    def _members(self, coalition: str) -> str:
        return super()._members(self.tree.titled(coalition))

    def _leaves(self, leaves: Sequence[int]) -> str:
        """Names of the sites, where they have any and are few; else numbers."""
        labels, name = self.tree.tiers[-1].labels, self.tree.tiers[-1].name
        if labels and len(leaves) <= MOST_SITES:
            return join_names([labels[leaf] for leaf in leaves])
        return f"{name if len(leaves) == 1 else pluralise(name)} {_ranges(leaves)}"

    def _elsewhere(self, common: int) -> str:
        return "elsewhere" if common == 0 else f"elsewhere in the {self.tree.tiers[common].name}"

    def _device(self, name: str) -> int | None:
        index = _index(name)
        known = name.startswith("device:") and index is not None and index < self.tree.device_count
        return index if known else None

    def _ancestors(self, depth: int, index: int) -> list[int]:
        path = [index]
        for parents in self.tree.parents[depth:0:-1]:
            path.append(int(parents[path[-1]]))
        return path[::-1]

    @cached_property
    def _classes(self) -> dict[Key, list[int]]:
        classes: dict[Key, list[int]] = {}
        for leaf in range(self.tree.leaf_count):
            classes.setdefault(self._signature(leaf), []).append(leaf)
        return classes

    def _signature(self, leaf: int) -> Key:
        noise = self.network.noise
        if not noise:
            return ()  # without noise, trust and size make no difference
        steps: list[object] = []
        for depth in range(1, self.tree.depth):
            index = int(self.tree.paths[leaf, depth])
            name = self.tree.node_name(depth, index)
            size = int(self.tree.children[depth][index])
            steps += [
                bool(self.tree.tiers[depth].trusted[index]),
                size,
                noise.get(name),
                noise.get(f"{name}/devices"),
            ]
        return tuple(steps)

    def _trust(self, leaf: int) -> str:
        path = self.tree.paths[leaf]
        marks = [
            (tier.name, bool(tier.trusted[path[depth]]))
            for depth, tier in enumerate(self.tree.tiers)
            if depth
        ][::-1]
        if not marks:
            return "cloud trusted" if self.tree.tiers[0].trusted[0] else ""
        if len({trusted for _, trusted in marks}) == 1:
            who = marks[0][0] if len(marks) == 1 else "all above"
            return f"{who} {'trusted' if marks[0][1] else 'untrusted'}"
        return ", ".join(f"{name} {'trusted' if trusted else 'untrusted'}" for name, trusted in marks)

    def _noise(self, leaf: int) -> str:
        path, last = self.tree.paths[leaf], self.tree.depth - 1
        places = (
            ["device"]
            if self.network.adds_noise(f"{self.tree.node_name(last, int(path[last]))}/devices")
            else []
        )
        places += [
            tier.name
            for depth, tier in reversed(list(enumerate(self.tree.tiers)))
            if self.network.adds_noise(self.tree.node_name(depth, int(path[depth])))
        ]
        if self.network.over_air:
            places.append("receiver")
        return f"noise at {join_names(places)}" if places else "no noise"


def group_labels(network: Network, shape: GroupNetwork) -> ObserverLabels:
    """The labels for groups."""
    return GroupLabels(shape.groups, shape.trusted)


@dataclass(frozen=True)
class GroupLabels(ObserverLabels):
    """Labels for groups: workers by number and sizes of their groups, observers by distance in groups.

    Where some masters are trusted, workers also by how many of theirs are, and own masters by whether
    they are.
    """

    groups: Groups
    trusted: BoolArray

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """Workers in equally many groups of the same sizes; those of ``sites`` alone."""
        key = self._key(self._groups_of(unit))
        held, trust = key
        if not held:
            return Row((1 << 60, unit), unit, "")
        count = len(sites) or self._counts[key]
        title = f"{whole(count)} {pluralise('worker', count)} in {_groups(len(held))}"
        sizes = join_names([whole(size) for size in sorted(set(held))])
        detail = f"of {sizes} workers{trust}"
        if self.groups.worker_names and count <= _MOST_NAMES:
            names = list(sites) or self._named(key)
            title, detail = join_names(names), f"in {_groups(len(held))} {detail}"
        return Row((len(held), f"{held}{trust}{'|'.join(sites)}"), title, detail)

    def _named(self, key: tuple[tuple[int, ...], str]) -> list[str]:
        """The names of the workers of a class."""
        classes = self.groups.classes
        of = [number for number, groups in enumerate(classes.groups) if self._key(groups.tolist()) == key]
        return [self.groups.worker_names[worker] for worker in np.flatnonzero(np.isin(classes.class_of, of))]

    def _members(self, coalition: str) -> str:
        return super()._members(self.groups.titled(coalition))

    def _party(self, unit: str, observer: str) -> Column:
        mine, theirs = self._groups_of(unit), self._groups_of(observer)
        if not mine:
            return _by_kind(observer)
        if observer.startswith("master:"):
            master = _index(observer)
            if master not in mine:
                return Column((500, ""), "other masters")
            if self._all_alike:
                return Column((1, ""), "own master", True)
            if self.trusted[master]:
                return Column((2, ""), "own master, trusted with raw updates")
            return Column((1, ""), "own master, not trusted", True)
        if not theirs:
            return _by_kind(observer)
        nearest = float(self.groups.distances[np.ix_(mine, theirs)].min())
        if math.isinf(nearest):
            return Column((400, ""), "workers out of reach")
        if nearest == 0:
            return Column((0, ""), "workers of the same group")
        return Column((10 + int(nearest), ""), f"workers {_groups(int(nearest))} away")

    def _groups_of(self, name: str) -> list[int]:
        index = _index(name)
        known = name.startswith("device:") and index is not None and index < self.groups.workers
        return self.groups.groups_of(index).tolist() if known and index is not None else []

    @property
    def _all_alike(self) -> bool:
        """Whether all masters are trusted, or none."""
        return bool(self.trusted.all() or not self.trusted.any())

    def _key(self, groups: Sequence[int]) -> tuple[tuple[int, ...], str]:
        """Sizes of groups, and how many of their masters are trusted where that differs between groups."""
        trust = f", {int(self.trusted[groups].sum())} of {len(groups)} masters trusted"
        sizes = tuple(sorted(int(self.groups.sizes[group]) for group in groups))
        return sizes, "" if self._all_alike else trust

    @cached_property
    def _counts(self) -> dict[tuple[tuple[int, ...], str], int]:
        counts: dict[tuple[tuple[int, ...], str], int] = {}
        classes = self.groups.classes
        for groups, size in zip(classes.groups, classes.counts, strict=True):
            key = self._key(groups.tolist())
            counts[key] = counts.get(key, 0) + int(size)
        return counts


_RECORD = "record:"
_MOST_NAMES = 4  # of devices, in the label of a class


def _device_of(unit: str) -> str:
    """The device whose record ``unit`` is; else ``unit`` itself."""
    return f"device:{unit.removeprefix(_RECORD)}" if unit.startswith(_RECORD) else unit


def _by_kind(observer: str) -> Column:
    kind = observer.partition(":")[0]
    title = "other devices" if kind == "device" else pluralise(kind) if ":" in observer else observer
    return Column((9_002, title), title)


def _index(name: str) -> int | None:
    return decimal(name.partition(":")[2])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Depth of the nearest common ancestor of two paths from the cloud down."""
    depth = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        depth += 1
    return depth - 1


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


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"

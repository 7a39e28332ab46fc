"""Who is under whom in a tree of aggregators, as arrays a tier: never an object a device.

Tier 0 is the root (the cloud); the last tier's nodes (the *leaves*) have devices under them. Nodes are
numbered within their tier, devices over the whole tree, leaf by leaf. The children of a node stand together;
only devices that have moved are under another leaf than their neighbours in number.

Devices of one leaf that are alike form a class (`DeviceClasses`): a million devices stay a few classes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TreeShape:
    """A tree of aggregators over devices.

    Attributes:
        parents: for each tier, the index of every node's parent in the tier above, ascending; ``[-1]`` for
            the root.
        devices: number of devices under each leaf.
        placed: the leaf of every device, where some have moved; ``None``: leaf by leaf.
    """

    parents: tuple[IntArray, ...]
    devices: IntArray
    placed: IntArray | None = field(default=None, kw_only=True)

    @property
    def depth(self) -> int:
        """Number of tiers, the root's included."""
        return len(self.parents)

    @property
    def leaf_count(self) -> int:
        """Number of nodes that have devices under them."""
        return len(self.devices)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return int(self.first_device[-1])

    @cached_property
    def first_device(self) -> IntArray:
        """Where each leaf's devices begin, counted leaf by leaf, and the number of all: ``[leaves + 1]``.

        These are numbers of devices where none has moved (``placed``).
        """
        return np.concatenate([[0], np.cumsum(self.devices)]).astype(np.int64)

    @cached_property
    def first_child(self) -> tuple[IntArray, ...]:
        """For every tier, where the children of each node begin and, one entry on, end: ``[nodes + 1]``.

        The children (nodes of the next tier, or devices) of node i are the numbers from entry i to before
        entry i + 1.

        Of leaves only differences count where devices have moved (``placed``): see `devices_under`.
        """
        nodes = (
            np.searchsorted(below, np.arange(len(above) + 1)).astype(np.int64)
            for above, below in zip(self.parents, self.parents[1:], strict=False)
        )
        return (*nodes, self.first_device)

    @cached_property
    def children(self) -> tuple[IntArray, ...]:
        """Numbers of children: for every tier, how many each node has, ``[nodes]``.

        Children are nodes of the next tier, or devices under leaves; `first_child` says which ones.
        """
        return tuple(np.diff(first) for first in self.first_child)

    @cached_property
    def paths(self) -> IntArray:
        """For every leaf, its ancestors' indices from the root down to itself: ``[leaves, depth]``."""
        columns = [np.arange(self.leaf_count)]
        for parents in reversed(self.parents[1:]):
            columns.append(parents[columns[-1]])
        return np.stack(columns[::-1], axis=1).astype(np.int64)

    def leaf_of(self, device: int) -> int:
        """The number of the leaf that ``device`` is under; that the device exists is not checked."""
        if self.placed is not None:
            return int(self.placed[device])
        return bisect_right(self._first_devices, device) - 1

    @cached_property
    def _first_devices(self) -> list[int]:
        """`first_device` as a list: many devices are looked up one by one."""
        return [int(first) for first in self.first_device]

    def leaves_of(self, devices: IntArray) -> IntArray:
        """The number of the leaf that each of ``devices``, ``[devices]``, is under."""
        if self.placed is not None:
            return self.placed[devices]
        return np.searchsorted(self.first_device, devices, side="right") - 1

    def devices_under(self, leaf: int) -> IntArray:
        """The numbers of the devices under ``leaf``, ascending, int64; empty where it has none."""
        if self.placed is not None:
            return np.flatnonzero(self.placed == leaf).astype(np.int64)
        return np.arange(self.first_device[leaf], self.first_device[leaf + 1], dtype=np.int64)

    def ancestor(self, tier: int, index: int, above: int) -> int:
        """The node of tier ``above`` over node ``index`` of ``tier``; ``index`` if the tiers are equal."""
        for t in range(tier, above, -1):
            index = int(self.parents[t][index])
        return index


@dataclass(frozen=True)
class DeviceClasses:
    """Classes of devices, those of one leaf together.

    Attributes:
        leaf: that the devices of each class are under, ascending, ``[C]``.
        count: of devices, ``[C]``.
        weight: of a device's message, at most 1: it multiplies bound and noise, ``[C]``.
        noisy: whether its devices add the noise of their leaf, ``[C]``.
        of_device: class of every device, ``[N]``; ``None`` where every leaf has one class.
    """

    leaf: IntArray
    count: IntArray
    weight: FloatArray
    noisy: BoolArray
    of_device: IntArray | None = None

    @classmethod
    def alike(cls, devices: IntArray) -> DeviceClasses:
        """One class for each leaf, of weight 1, whose devices all add noise.

        ``devices``: their number under each leaf, ``[leaves]``.
        """
        leaves = len(devices)
        return cls(
            np.arange(leaves, dtype=np.int64),
            devices,
            np.ones(leaves),
            np.ones(leaves, dtype=np.bool_),
        )

    @classmethod
    def placed(cls, devices: IntArray, leaf_of: IntArray) -> DeviceClasses:
        """One class for each leaf, as `alike`, of devices that have moved.

        ``devices``: their number under each leaf, ``[leaves]``; ``leaf_of``: the leaf of every device,
        ``[N]``.
        """
        return replace(cls.alike(devices), of_device=leaf_of)

    @classmethod
    def of(cls, devices: IntArray, weights: FloatArray | None, noisy: BoolArray | None) -> DeviceClasses:
        """The classes of devices of equal leaf and weight that all add noise, or all none.

        Args:
            devices: number of devices under each leaf; devices are numbered leaf by leaf.
            weights: of every device's message, ``[N]``; ``None``: 1.
            noisy: whether each device adds noise, ``[N]``; ``None``: all do.
        """
        if weights is None and noisy is None:
            return cls.alike(devices)
        total = int(devices.sum())
        leaf = np.repeat(np.arange(len(devices), dtype=np.int64), devices)
        w = np.ones(total) if weights is None else weights
        loud = np.ones(total, dtype=np.bool_) if noisy is None else noisy
        order = np.lexsort((w, loud, leaf))
        new = np.ones(total, dtype=np.bool_)
        new[1:] = (
            (np.diff(leaf[order]) != 0) | (loud[order][1:] != loud[order][:-1]) | (np.diff(w[order]) != 0)
        )
        starts = np.flatnonzero(new)
        of_device = np.empty(total, dtype=np.int64)
        of_device[order] = np.cumsum(new) - 1
        firsts = order[starts]
        count = np.diff(np.append(starts, total)).astype(np.int64)
        return cls(leaf[firsts], count, w[firsts], loud[firsts], of_device)

    @cached_property
    def first(self) -> IntArray:
        """The first class of each leaf, and at the end the number of classes, ``[leaves + 1]``."""
        leaves = int(self.leaf[-1]) + 1
        return np.searchsorted(self.leaf, np.arange(leaves + 1)).astype(np.int64)

    def of_leaf(self, leaf: int) -> range:
        """Numbers of the classes of devices under ``leaf``."""
        return range(int(self.first[leaf]), int(self.first[leaf + 1]))

    @cached_property
    def _by_class(self) -> tuple[IntArray, IntArray]:
        """Devices sorted by class ``[N]``, and where each class begins, ``[classes + 1]``, N last."""
        assert self.of_device is not None
        order = np.argsort(self.of_device, kind="stable")
        return order, np.concatenate([[0], np.cumsum(self.count)])

    def members(self, number: int, most: int) -> IntArray:
        """The numbers of the first ``most`` devices of class ``number``, ascending; fewer if it has fewer."""
        if self.of_device is None:
            first = int(self.count[:number].sum())
            return np.arange(first, first + min(most, int(self.count[number])), dtype=np.int64)
        order, starts = self._by_class
        start = int(starts[number])
        return order[start : min(start + most, int(starts[number + 1]))].astype(np.int64)

    @cached_property
    def total_weight(self) -> FloatArray:
        """For each leaf, the sum of the weights of all its devices, ``[leaves]``."""
        return np.bincount(self.leaf, weights=self.weight * self.count).astype(np.float64)

    def least_noise(self, std: FloatArray, sure: IntArray) -> FloatArray:
        """For each leaf, the noise variance of the sum of its ``sure[leaf]`` quietest devices, ``[leaves]``.

        Args:
            std: of a noisy device of weight 1, for each leaf.
            sure: how many devices are in the sum, for each leaf.
        """
        variance = self.variance(std)
        order = np.lexsort((variance, self.leaf))
        leaf, count = self.leaf[order], self.count[order]
        through = np.cumsum(count)
        within = through - count - (through[self.first[leaf]] - count[self.first[leaf]])
        taken = np.clip(sure[leaf] - within, 0, count)
        return np.bincount(leaf, weights=taken * variance[order]).astype(np.float64)

    def variance(self, std: FloatArray) -> FloatArray:
        """For each class, the noise variance, a coordinate, of one of its devices' messages, ``[classes]``.

        ``std``: of a noisy device of weight 1, for each leaf, ``[leaves]``.
        """
        scaled: FloatArray = (std[self.leaf] * self.weight * self.noisy) ** 2
        return scaled

    def kind(self, number: int) -> tuple[float, bool]:
        """Weight of the devices of class ``number``, at most 1, and whether they add noise."""
        return float(self.weight[number]), bool(self.noisy[number])

    def bounds(self, bound: FloatArray) -> FloatArray:
        """For each class of devices, the l2 bound of one device's message, ``[classes]``.

        ``bound``: of a message of weight 1, for each leaf, ``[leaves]``.
        """
        scaled: FloatArray = bound[self.leaf] * self.weight
        return scaled

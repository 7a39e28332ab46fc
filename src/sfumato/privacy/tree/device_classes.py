"""Devices of one leaf that are alike: a million devices stay a few classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


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
        """One class a leaf, of weight 1, all of them noisy."""
        leaves = len(devices)
        return cls(
            np.arange(leaves, dtype=np.int64),
            devices,
            np.ones(leaves),
            np.ones(leaves, dtype=np.bool_),
        )

    @classmethod
    def placed(cls, devices: IntArray, leaf_of: IntArray) -> DeviceClasses:
        """`alike`, where the leaf of every device is listed ``[N]``."""
        return replace(cls.alike(devices), of_device=leaf_of)

    @classmethod
    def of(cls, devices: IntArray, weights: FloatArray | None, noisy: BoolArray | None) -> DeviceClasses:
        """Classes of devices by ``weights`` ``[N]`` and by who is ``noisy`` ``[N]`` (all, where ``None``)."""
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
        """Each leaf's first class, and one past the last."""
        leaves = int(self.leaf[-1]) + 1
        return np.searchsorted(self.leaf, np.arange(leaves + 1)).astype(np.int64)

    def of_leaf(self, leaf: int) -> range:
        """The classes of ``leaf``."""
        return range(int(self.first[leaf]), int(self.first[leaf + 1]))

    @cached_property
    def _by_class(self) -> tuple[IntArray, IntArray]:
        """Devices sorted by class, and where each class begins."""
        assert self.of_device is not None
        order = np.argsort(self.of_device, kind="stable")
        return order, np.concatenate([[0], np.cumsum(self.count)])

    def members(self, number: int, most: int) -> IntArray:
        """The first ``most`` devices of class ``number``, ascending."""
        if self.of_device is None:
            first = int(self.count[:number].sum())
            return np.arange(first, first + min(most, int(self.count[number])), dtype=np.int64)
        order, starts = self._by_class
        start = int(starts[number])
        return order[start : min(start + most, int(starts[number + 1]))].astype(np.int64)

    @cached_property
    def total_weight(self) -> FloatArray:
        """Weight of all devices of each leaf."""
        return np.bincount(self.leaf, weights=self.weight * self.count).astype(np.float64)

    def least_noise(self, std: FloatArray, sure: IntArray) -> FloatArray:
        """Variance of the noise in the sum of ``sure[leaf]`` devices of each leaf, the quietest ones.

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
        """Variance of the noise that a device of each class adds to its message."""
        scaled: FloatArray = (std[self.leaf] * self.weight * self.noisy) ** 2
        return scaled

    def kind(self, number: int) -> tuple[float, bool]:
        """What tells class ``number`` from the others of its leaf."""
        return float(self.weight[number]), bool(self.noisy[number])

    def bounds(self, bound: FloatArray) -> FloatArray:
        """Bound of the message of a device of each class."""
        scaled: FloatArray = bound[self.leaf] * self.weight
        return scaled

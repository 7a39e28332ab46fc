"""Who is under whom in a tree of aggregators, as arrays a tier: never an object a device.

Tier 0 is the root (the cloud); the last tier's nodes (the *leaves*) have devices under them. Nodes are
numbered within their tier, devices over the whole tree, leaf by leaf. The children of a node stand together;
only devices that have moved are under another leaf than their neighbours in number.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


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
        """Index of each leaf's first device, and one past the last device: ``leaf_count + 1`` entries."""
        return np.concatenate([[0], np.cumsum(self.devices)]).astype(np.int64)

    @cached_property
    def first_child(self) -> tuple[IntArray, ...]:
        """For every tier, each node's first child (a node; a device under leaves) and one past the last."""
        nodes = (
            np.searchsorted(below, np.arange(len(above) + 1)).astype(np.int64)
            for above, below in zip(self.parents, self.parents[1:], strict=False)
        )
        return (*nodes, self.first_device)

    @cached_property
    def children(self) -> tuple[IntArray, ...]:
        """For every tier, how many children (nodes, or devices under leaves) each node has."""
        return tuple(np.diff(first) for first in self.first_child)

    @cached_property
    def paths(self) -> IntArray:
        """For every leaf, its ancestors' indices from the root down to itself: ``[leaves, depth]``."""
        columns = [np.arange(self.leaf_count)]
        for parents in reversed(self.parents[1:]):
            columns.append(parents[columns[-1]])
        return np.stack(columns[::-1], axis=1).astype(np.int64)

    def leaf_of(self, device: int) -> int:
        """The leaf that ``device`` is under."""
        if self.placed is not None:
            return int(self.placed[device])
        return bisect_right(self._first_devices, device) - 1

    @cached_property
    def _first_devices(self) -> list[int]:
        """`first_device` as a list: many devices are looked up one by one."""
        return [int(first) for first in self.first_device]

    def leaves_of(self, devices: IntArray) -> IntArray:
        """The leaf that each of ``devices`` is under, ``[devices]``."""
        if self.placed is not None:
            return self.placed[devices]
        return np.searchsorted(self.first_device, devices, side="right") - 1

    def devices_under(self, leaf: int) -> IntArray:
        """The devices under ``leaf``, ascending."""
        if self.placed is not None:
            return np.flatnonzero(self.placed == leaf).astype(np.int64)
        return np.arange(self.first_device[leaf], self.first_device[leaf + 1], dtype=np.int64)

    def ancestor(self, tier: int, index: int, above: int) -> int:
        """The node of tier ``above`` over node ``index`` of ``tier``, or that node itself."""
        for t in range(tier, above, -1):
            index = int(self.parents[t][index])
        return index

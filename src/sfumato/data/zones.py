"""Which devices are in a zone together: by a rule, or as listed.

Devices are numbered zone by zone, so a rule decides which share of the data each number holds: it is a
permutation of the shares that `partition` made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data.partition import Partition
from sfumato.errors import SpecError
from sfumato.random import Stream, generator
from sfumato.spec.topology import Zones

IntArray = npt.NDArray[np.int64]

_PLACE = "topology.zones"
_SHUFFLE, _POSITIONS, _SPEEDS = 0, 1, 2  # addresses within Stream.ZONES; part of the file format


def order_by_label(partition: Partition, labels: npt.NDArray[np.integer[Any]]) -> IntArray:
    """Shares of the data in the order in which zones by data take them, ``[devices]``: device d gets entry d.

    Shares are sorted by their most frequent label, those that hold most of it first.

    Args:
        partition: the shares, one a device.
        labels: of all training rows [N].
    """
    classes = int(labels.max(initial=0)) + 1
    owner = np.repeat(np.arange(partition.devices), partition.sizes)
    counts = np.bincount(owner * classes + labels[partition.rows], minlength=partition.devices * classes)
    histograms = counts.reshape(partition.devices, classes)
    share = histograms.max(axis=1) / np.maximum(1, partition.sizes)
    return np.lexsort((-share, histograms.argmax(axis=1))).astype(np.int64)


def order_without_labels(zones: Zones, devices: IntArray, *, seed: int) -> IntArray | None:
    """Which share of the data each device holds, ``[devices]``; ``None`` where that depends on the labels.

    ``random``: shuffled. ``distance``: positions are uniform over a disc, a zone is a sector of it.
    ``compute``: speeds are log-normal, the slowest are together. ``list``: as the spec lists them.

    Args:
        zones: the section ``topology.zones`` of a spec.
        devices: how many devices each zone has.
        seed: of the run.

    Raises:
        SpecError: listed members do not fit the zones.
    """
    count = int(devices.sum())
    match zones.kind:
        case "data":
            return None
        case "random":
            return generator(seed, Stream.ZONES, _SHUFFLE).permutation(count).astype(np.int64)
        case "distance":
            # the angle of a point that is uniform over a disc is uniform, whatever its distance
            return np.argsort(generator(seed, Stream.ZONES, _POSITIONS).random(count)).astype(np.int64)
        case "compute":
            return np.argsort(generator(seed, Stream.ZONES, _SPEEDS).standard_normal(count)).astype(np.int64)
        case "list":
            return _order_of_members(zones.members or (), devices)


def regrouped(
    partition: Partition, zones: Zones, devices: IntArray, labels: npt.NDArray[np.integer[Any]], *, seed: int
) -> Partition:
    """``partition`` with its shares handed to devices by the rule of ``zones``.

    The order is that of `order_without_labels`, or of `order_by_label` where it depends on labels.

    Args:
        partition: the training rows of each share, one share for each device.
        zones: the section ``topology.zones`` of the spec.
        devices: number of devices of each zone.
        labels: of the training rows ``[N]``.
        seed: of the spec.

    Raises:
        SpecError: listed members do not fit the zones.
    """
    order = order_without_labels(zones, devices, seed=seed)
    return partition.reordered(order_by_label(partition, labels) if order is None else order)


def _order_of_members(members: tuple[tuple[int, ...], ...], devices: IntArray) -> IntArray:
    """The order ``[N]`` of shares that lists them zone by zone, as ``members`` says.

    Raises:
        SpecError: zones of other sizes than ``devices`` ``[zones]``, or a share that is not named once.
    """
    sizes = [len(zone) for zone in members]
    if sizes != devices.tolist():
        listed = f"must list {len(devices)} zones of the sizes that topology gives: {_sizes_as_text(devices)}"
        raise SpecError(f"{_PLACE}.members", sizes, listed)
    order = np.array([share for zone in members for share in zone], dtype=np.int64)
    count = int(devices.sum())
    if not np.array_equal(np.sort(order), np.arange(count)):
        raise SpecError(f"{_PLACE}.members", None, f"must name each of 0 to {count - 1} once")
    return order


def _sizes_as_text(devices: IntArray) -> str:
    """The first few sizes of zones as text, for messages."""
    return ", ".join(map(str, devices[:8])) + (", ..." if len(devices) > 8 else "")

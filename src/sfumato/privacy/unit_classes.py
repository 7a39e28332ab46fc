"""Which devices observers meet alike, and which of them is the worst unit.

Observers meet the devices of a class alike, but for the probability q that a record is in a local step. ε
never falls with q (docs/accounting.md), so the worst unit of a class, as a record and as a device, is the
device whose records are drawn most often, and no row needs a figure that no device has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class UnitClass:
    """Devices that observers meet alike.

    Attributes:
        unit: the one whose records are drawn most often; the first of them, where several are.
        count: how many devices there are.
        least: the one whose records are drawn least often; ``None`` where all are drawn alike.
        sites: numbers of the sites that they are at, where a user named any.
    """

    unit: int
    count: int
    least: int | None = None
    sites: tuple[int, ...] = ()


def unit_classes(
    first: int,
    count: int,
    devices: Callable[[], IntArray],
    *,
    rates: FloatArray | None,
    sites: IntArray | None,
    apart: bool,
) -> Iterator[UnitClass]:
    """Yield the classes of ``devices``, all of which observers see alike: one, or one a kind of site.

    Args:
        first: number of the first of the devices.
        count: how many there are, at least 1.
        devices: gives the numbers of all of them, ascending; called only where rates or sites are known.
        rates: for every device of the run, the probability that a record is in a local step; ``None`` where
            that makes no difference.
        sites: for every device of the run, the number of its site; ``None`` where a user named none.
        apart: whether sites that differ in the largest or the smallest rate are classes of their own.

    Yields:
        One class; with ``apart``, rates and sites, one for each pair of a site's largest and smallest rate.
    """
    if rates is None and sites is None:
        yield UnitClass(first, count)
        return
    found = devices()
    if sites is None or not apart or rates is None:
        yield _class_of_units(found, rates, sites)
        return
    alike: dict[tuple[float, float], list[IntArray]] = {}
    for site in dict.fromkeys(sites[found].tolist()):
        there = found[sites[found] == site]
        alike.setdefault((rates[there].max(), rates[there].min()), []).append(there)
    for together in alike.values():
        yield _class_of_units(np.concatenate(together), rates, sites)


def _class_of_units(devices: IntArray, rates: FloatArray | None, sites: IntArray | None) -> UnitClass:
    """Put ``devices`` into one class, whose unit is the one with the largest of ``rates``.

    Args:
        devices: numbers of devices, one or more.
        rates: for every device of the run, the probability that a record is in a local step; ``None``: alike,
            and the unit is the first of ``devices``.
        sites: for every device of the run, the number of its site; ``None`` where a user named none.
    """
    named = () if sites is None else tuple(dict.fromkeys(sites[devices].tolist()))
    if rates is None:
        return UnitClass(int(devices[0]), len(devices), None, named)
    own = rates[devices]
    most, least = int(own.argmax()), int(own.argmin())
    return UnitClass(
        int(devices[most]),
        len(devices),
        int(devices[least]) if own[least] < own[most] else None,
        named,
    )

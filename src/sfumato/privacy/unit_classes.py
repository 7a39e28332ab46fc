"""Which units one row stands for, and which of them is the worst.

Observers meet the devices of a class alike: the same releases, at the same noise. What can still differ is
the probability q that a record is in a local step. ε never falls with q: a message is a mixture of what it is
without the record and of Gaussians that are moved by how early the record is first drawn, the earlier the
further (`sfumato.privacy.records`), and with a larger q the first draw is earlier. Between such a mixture and
its counterpart the most telling events are those beyond a threshold, and a shift that is further makes them
more telling, in both directions. So the worst unit of a class, as a record and as a device, is the device
whose records are drawn most often, and no row needs a figure that no device has.
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
    """The classes that rows are about, of devices that observers meet alike.

    Args:
        first: the first of the devices.
        count: how many there are.
        devices: gives all of them, ascending; asked for only where rates or sites are known.
        rates: of every device, how often its records are drawn; ``None`` where that makes no difference.
        sites: the site of every device; ``None`` where a user named none.
        apart: whether sites whose records are drawn unequally often are classes of their own.
    """
    if rates is None and sites is None:
        yield UnitClass(first, count)
        return
    found = devices()
    if sites is None or not apart or rates is None:
        yield _one(found, rates, sites)
        return
    alike: dict[tuple[float, float], list[IntArray]] = {}
    for site in dict.fromkeys(sites[found].tolist()):
        there = found[sites[found] == site]
        alike.setdefault((rates[there].max(), rates[there].min()), []).append(there)
    for together in alike.values():
        yield _one(np.concatenate(together), rates, sites)


def _one(devices: IntArray, rates: FloatArray | None, sites: IntArray | None) -> UnitClass:
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

"""Who observes whom: observers, how they are placed towards a unit, and units and pairs that are alike.

*The worst unit.* Observers meet the devices of a class alike, but for the probability q that a record is in a
local step. ε never falls with q (docs/accounting.md), so the worst unit of a class, as a record and as a
device, is the device whose records are drawn most often, and no row needs a figure that no device has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ObserverKind: TypeAlias = Literal[
    "cloud", "public", "own-edge", "other-edge", "peer", "other-device", "asked-for"
]
"""How an observer is placed towards a unit, for programs.

An edge is an aggregator of any level below the cloud, whatever its name; in groups, a master. It is the
unit's own if it is ever above the unit. A peer is a device that is ever under the same edge, or in a common
group. ``asked-for``: a caller named the observer, or several, and nothing is said of how they are placed.
"""


@dataclass(frozen=True)
class Party:
    """An observer: ``public``, an aggregator (``node``) or a device.

    Attributes:
        kind: which of the three.
        tier: of a node; 0 is the cloud.
        index: of a node within its tier, or of a device.
    """

    kind: Literal["public", "node", "device"]
    tier: int = 0
    index: int = 0


@dataclass(frozen=True)
class Relation:
    """How an observer is placed towards a unit.

    Attributes:
        kind: for programs.
        words: for people, e.g. ``own cabinet``.
    """

    kind: ObserverKind
    words: str

    @classmethod
    def edge(cls, name: str, elsewhere: str = "") -> Relation:
        """The relation to an aggregator called ``name``: the unit's own or, with ``elsewhere``, another one.

        Args:
            name: what an aggregator of that level is called, such as ``cabinet``.
            elsewhere: where another one is, with a leading space or comma, such as " elsewhere"; "": own.
        """
        return cls("other-edge", f"{name}{elsewhere}") if elsewhere else cls("own-edge", f"own {name}")

    @classmethod
    def device(cls, elsewhere: str) -> Relation:
        """The relation to a device that is no peer of the unit.

        ``elsewhere``: words for where it is, with their leading space or comma, such as `` elsewhere``.
        """
        return cls("other-device", f"device{elsewhere}")

    @classmethod
    def read(cls, kind: str, words: str, observer: str) -> Relation:
        """The relation of a saved row, from its ``observer_kind``, its ``relation`` (words) and its observer.

        Raises:
            ValueError: there is no such kind, or it is not that of an ``observer`` called cloud or public.
        """
        is_named = {kind, observer} & {"cloud", "public"}
        known: tuple[ObserverKind, ...] = get_args(ObserverKind)
        for one in known:
            if one == kind and (kind in ("asked-for", observer) or not is_named):
                return cls(one, words)
        raise ValueError(f"observer_kind: {kind!r} is not what {observer!r} can be")

    @classmethod
    def of_words(cls, words: str) -> Relation:
        """The relation of a row of an old privacy.json that has ``relation`` but not yet ``observer_kind``.

        Args:
            words: the row's ``relation``, e.g. ``own cabinet``. Its first word gives the kind. "" and ``asked
                for`` give ``asked-for``; words that are not known give ``other-edge``.
        """
        who = words.replace(",", " ").partition(" ")[0]
        found: ObserverKind
        match who:
            case "cloud" | "public" | "peer":
                found = who
            case "own":
                found = "own-edge"
            case "device":
                found = "peer" if words == PEER_IN_A_GROUP.words else "other-device"
            case _:
                found = "asked-for" if words in ("", ASKED_FOR.words) else "other-edge"
        return cls(found, words)


CLOUD, PUBLIC, PEER = Relation("cloud", "cloud"), Relation("public", "public"), Relation("peer", "peer")
PEER_IN_A_GROUP = Relation("peer", "device in a common group")
ASKED_FOR = Relation("asked-for", "asked for")
"""Of a pair that a caller named."""
TOWARDS_ASKED_FOR = Relation("asked-for", "")
"""Of every class of units and the observers that a caller named."""


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


@dataclass(frozen=True)
class PairClass:
    """Equivalent ordered pairs of a unit and an observer, by one whose unit is the worst.

    It may stand for pairs of several kinds, which are not equivalent: then it is the worst of all of them.

    Attributes:
        unit: the device; as a record, one of those that are drawn most often.
        observer: towards whom.
        relation: how the two are placed.
        pair_count: how many pairs there are.
        least: the device whose records are drawn least often, where not all are drawn alike.
        sites: numbers of the sites that the units are at, where a user named any.
        kinds: of how many kinds these pairs are.
        mildest: of several kinds, that with the smallest ε; ``None`` where it is not known.
    """

    unit: int
    observer: Party
    relation: Relation
    pair_count: int
    least: int | None = None
    sites: tuple[int, ...] = ()
    kinds: int = 1
    mildest: PairClass | None = None


def covering(classes: Iterable[PairClass], pairs: int) -> Iterator[PairClass]:
    """Yield ``classes``, unchanged, and check at the end that they stand for all pairs.

    Args:
        classes: of pairs of a unit and an observer.
        pairs: number of pairs that their counts must add up to.

    Raises:
        RuntimeError: an internal error: a pair is in no class, or in two.
    """
    found = tuple(classes)
    counted = sum(pair.pair_count for pair in found)
    if counted != pairs or any(pair.pair_count < 1 for pair in found):
        raise RuntimeError(
            f"classes of pairs: they stand for {counted:,} pairs of a unit and an observer, and there are "
            f"{pairs:,}; no privacy figure can be given"
        )
    return iter(found)

"""Who observes whom: names for observers, and for kinds of pairs that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal


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
class PairClass:
    """Equivalent ordered pairs of a unit and an observer, by one whose unit is the worst.

    Attributes:
        unit: the device; as a record, one of those that are drawn most often.
        observer: towards whom.
        relation: how the two are placed, for people.
        pair_count: how many pairs there are.
        least: the device whose records are drawn least often, where not all are drawn alike.
        sites: numbers of the sites that the units are at, where a user named any.
    """

    unit: int
    observer: Party
    relation: str
    pair_count: int
    least: int | None = None
    sites: tuple[int, ...] = ()


ASKED_FOR = "asked for"
"""The relation of a pair that a caller named, which says nothing of how the two are placed."""
_NO_EDGES = ("", ASKED_FOR, "cloud", "public", "peer", "device")


def edge_kind(relation: str) -> str | None:
    """``own-edge`` or ``other-edge``: whether an aggregator below the cloud is above the unit; else ``None``.

    An edge is an aggregator of any level below the cloud, whatever its name; in groups, a master.

    Args:
        relation: of observer and unit, as a `PairClass` has it.
    """
    if relation.startswith("own "):
        return "own-edge"
    who = relation if relation == ASKED_FOR else relation.replace(",", " ").partition(" ")[0]
    return None if who in _NO_EDGES else "other-edge"


def covering(classes: Iterable[PairClass], pairs: int) -> Iterator[PairClass]:
    """The ``classes``, once they are known to stand for all ``pairs`` of a unit and an observer.

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

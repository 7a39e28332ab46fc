"""Who observes whom: names for observers, and for kinds of pairs that are alike."""

from __future__ import annotations

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
    """Equivalent ordered pairs of a unit and an observer, by one of them."""

    unit: int
    observer: Party
    relation: str
    stands_for: int

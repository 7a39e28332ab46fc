"""What the declared releases of every protocol answer, whatever the topology."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Protocol, Self

from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import PairClass, Party
from sfumato.privacy.records import BatchFacts, RecordReleases
from sfumato.privacy.release import Exposure, NoiseLaw, Release
from sfumato.privacy.sampling import Neighbours
from sfumato.privacy.unit_classes import UnitClass


class DeclaredReleases(Protocol):
    """Facts of a protocol, and who meets which of them."""

    @property
    def device_count(self) -> int:
        """Number of devices."""

    def party_name(self, party: Party) -> str:
        """What the command line calls ``party``."""

    @property
    def noise_law(self) -> NoiseLaw:
        """Of all noise; a law that is not composed counts as no noise."""

    @property
    def batches(self) -> BatchFacts:
        """How devices draw their batches."""

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The flow exposure by draws of batches; empty where no record is drawn by itself."""

    def larger_coalition(self, unit: int, coalition: Sequence[Party]) -> tuple[Party, ...] | None:
        """A coalition with more members towards which a record of ``unit`` may be charged less.

        What holds towards it holds towards ``coalition``, which sees less. ``None`` where there is none.
        """

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """One exposure a bound."""

    def bound_epsilon(
        self, exposure: Exposure, *, delta: float, neighbours: Neighbours, known: float = math.inf
    ) -> EpsilonBound:
        """The smallest sound bound that an exposure of this ledger gives.

        Beside another bound of the pair, ``known``, a larger one may be charged more coarsely (`composed`).
        """

    def noise_by_owner(
        self, unit: int, coalition: Sequence[Party]
    ) -> Mapping[str, Mapping[Release, Mapping[str, float]]]:
        """The variance of every release of every bound by kind of owner."""

    def pair_classes(self, unit: int | None = None, *, apart: bool = False) -> Iterator[PairClass]:
        """Representatives of all ordered pairs, or of one unit's; the worst unit of every class.

        ``apart``: whether sites that a user named, and whose records are drawn unequally often, are apart.
        """

    def units_outside(self, members: Set[int], *, apart: bool = False) -> Iterator[UnitClass]:
        """The devices outside ``members`` by classes that a coalition of ``members`` cannot tell apart."""

    def after(self, rounds: int) -> Self:
        """The ledger of the first ``rounds`` rounds."""

    def to_dict(self) -> dict[str, Any]:
        """The facts as JSON."""


def bounds_of(
    ledger: DeclaredReleases, exposures: Sequence[Exposure], *, delta: float, neighbours: Neighbours
) -> dict[str, EpsilonBound]:
    """The bound of every exposure of one pair, by name."""
    found: dict[str, EpsilonBound] = {}
    for exposure in exposures:
        known = min((bound.epsilon for bound in found.values()), default=math.inf)
        bound = ledger.bound_epsilon(exposure, delta=delta, neighbours=neighbours, known=known)
        found[exposure.bound_name] = replace(bound, exposed=exposure.exposed, gap=exposure.gap)
    return found

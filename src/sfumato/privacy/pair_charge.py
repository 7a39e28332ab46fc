"""How a device, or any one record of it, is charged towards one coalition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sfumato.privacy.charges import noise_scale_for
from sfumato.privacy.declared_releases import DeclaredReleases, bounds_of
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordCharge
from sfumato.privacy.relation import Neighbours
from sfumato.privacy.release import Exposure, are_unprotected


@dataclass(frozen=True, eq=False)
class PairCharge:
    """One pair of a unit and a coalition.

    Attributes:
        ledger: the declared releases.
        device: the unit, or the device of the record.
        coalition: who observes it.
        neighbours: the relation of the spec.
        record: how the record is charged; ``None`` where the device is the unit.
    """

    ledger: DeclaredReleases
    device: int
    coalition: tuple[Party, ...]
    neighbours: Neighbours
    record: RecordCharge | None

    @classmethod
    def of(
        cls,
        ledger: DeclaredReleases,
        kind: str,
        device: int,
        coalition: Sequence[Party],
        *,
        neighbours: Neighbours,
        any_device: bool,
        by_filter: bool = False,
    ) -> PairCharge:
        """For a unit of ``kind``: ``device``, or ``record``; the other arguments as of `RecordCharge.of`."""
        members, record = tuple(coalition), None
        if kind == "record":
            record = RecordCharge.of(
                ledger, device, members, neighbours=neighbours, any_device=any_device, by_filter=by_filter
            )
        return cls(ledger, device, members, neighbours, record)

    @cached_property
    def exposures(self) -> tuple[Exposure, ...]:
        """One exposure a bound."""
        return self.ledger.exposures(self.device, self.coalition)

    def bounds(self, delta: float) -> dict[str, EpsilonBound]:
        """Every bound, by name."""
        if self.record is None:
            return bounds_of(self.ledger, self.exposures, delta=delta, neighbours=self.neighbours)
        return {
            e.bound_name: replace(self.record.bound_epsilon(e, delta=delta), exposed=e.exposed, gap=e.gap)
            for e in self.exposures
        }

    def epsilon(self, delta: float) -> float:
        """The smallest bound's ε."""
        return min(bound.epsilon for bound in self.bounds(delta).values())

    def noise_scale(self, epsilon: float, delta: float) -> float:
        """Least factor on all noise for an ε of at most ``epsilon``; infinite without noise."""
        if self.record is not None:
            return self.record.noise_scale_for(self.exposures, epsilon=epsilon, delta=delta)
        return noise_scale_for(self.exposures, epsilon=epsilon, delta=delta, neighbours=self.neighbours)

    @property
    def is_unprotected(self) -> bool:
        """Whether every bound charges something without noise, so that ε is infinite."""
        if self.record is not None:
            return self.record.is_unprotected(self.exposures)
        return are_unprotected(self.exposures)

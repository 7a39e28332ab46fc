"""How a device, or any one record of it, is charged towards one coalition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sfumato.privacy.charges import Composition, charges, noise_scale_for, smallest_epsilon
from sfumato.privacy.declared_releases import DeclaredReleases, bounds_of
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordCharge
from sfumato.privacy.release import Exposure, are_unprotected
from sfumato.privacy.sampling import Neighbours


@dataclass(frozen=True, eq=False)
class PairCharge:
    """One pair of a unit and a coalition.

    Attributes:
        ledger: the declared releases.
        device: the unit, or the device of the record.
        coalition: who observes it.
        neighbours: the relation of the spec.
        record: how the record is charged; ``None`` where the device is the unit.
        larger: the same pair towards a larger coalition, which bounds it too (`DeclaredReleases`); ``None``
            where there is none.
    """

    ledger: DeclaredReleases
    device: int
    coalition: tuple[Party, ...]
    neighbours: Neighbours
    record: RecordCharge | None
    larger: PairCharge | None = None

    @classmethod
    def of(
        cls,
        ledger: DeclaredReleases,
        kind: str,
        device: int,
        coalition: Sequence[Party],
        *,
        neighbours: Neighbours,
        drawn_like: int | None = None,
        by_filter: bool = False,
    ) -> PairCharge:
        """For a unit of ``kind``: ``device``, or ``record``; the other arguments as of `RecordCharge.of`."""
        members = tuple(coalition)
        if kind != "record":
            return cls(ledger, device, members, neighbours, None)

        def towards(observers: tuple[Party, ...], larger: PairCharge | None) -> PairCharge:
            record = RecordCharge.of(
                ledger, device, observers, neighbours=neighbours, drawn_like=drawn_like, by_filter=by_filter
            )
            return cls(ledger, device, observers, neighbours, record, larger)

        wider = ledger.larger_coalition(device, members)
        return towards(members, None if wider is None else towards(wider, None))

    @cached_property
    def exposures(self) -> tuple[Exposure, ...]:
        """One exposure a bound."""
        return self.ledger.exposures(self.device, self.coalition)

    def bounds(self, delta: float) -> dict[str, EpsilonBound]:
        """Every bound towards the coalition itself, by name."""
        if self.record is None:
            return bounds_of(self.ledger, self.exposures, delta=delta, neighbours=self.neighbours)
        return {
            e.bound_name: replace(
                self.record.bound_epsilon(e, delta=delta, ways=self._ways_of_record[e.bound_name]),
                exposed=e.exposed,
                gap=e.gap,
            )
            for e in self.exposures
        }

    @cached_property
    def _ways_of_record(self) -> dict[str, tuple[Composition, ...]]:
        assert self.record is not None
        return {e.bound_name: self.record.ways(e) for e in self.exposures}

    def way(self, exposure: Exposure, delta: float) -> Composition:
        """The way of charging ``exposure`` that gives its bound."""
        if self.record is None:
            ways = charges(exposure, self.neighbours)
        else:
            ways = self._ways_of_record[exposure.bound_name]
        if len(ways) == 1:
            return ways[0]
        return min(ways, key=lambda way: smallest_epsilon([way], 0, delta=delta).epsilon)

    def least(self, delta: float) -> tuple[PairCharge, dict[str, EpsilonBound]]:
        """Of this pair and the larger one, that with the smaller ε, and every bound of it, by name."""
        bounds = self.bounds(delta)
        if self.larger is None:
            return self, bounds
        found = self.larger.bounds(delta)
        smaller = min(b.epsilon for b in found.values()) < min(b.epsilon for b in bounds.values())
        return (self.larger, found) if smaller else (self, bounds)

    def epsilon(self, delta: float) -> float:
        """The smallest bound's ε."""
        _, bounds = self.least(delta)
        return min(bound.epsilon for bound in bounds.values())

    def noise_scale(self, epsilon: float, delta: float) -> float:
        """Least factor on all noise for an ε of at most ``epsilon``; infinite without noise."""
        if self.record is not None:
            own = self.record.noise_scale_for(self.exposures, epsilon=epsilon, delta=delta)
            return own if self.larger is None else min(own, self.larger.noise_scale(epsilon, delta))
        return noise_scale_for(self.exposures, epsilon=epsilon, delta=delta, neighbours=self.neighbours)

    @property
    def is_unprotected(self) -> bool:
        """Whether every bound charges something without noise, so that ε is infinite."""
        if self.record is not None:
            own = self.record.is_unprotected(self.exposures)
            return own and (self.larger is None or self.larger.is_unprotected)
        return are_unprotected(self.exposures)

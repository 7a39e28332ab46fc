"""What declared releases answer, which units they hold alike, and how one pair is charged.

Observers meet the devices of a class alike, but for the probability q that a record is in a local step. ε
never falls with q (docs/accounting.md), so the worst unit of a class, as a record and as a device, is the
device whose records are drawn most often, and no row needs a figure that no device has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from sfumato.privacy.charges import Composition, smallest_epsilon, ways_to_charge
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.noise_scale import scale_for
from sfumato.privacy.observers import PairClass, Party
from sfumato.privacy.records import BatchFacts, RecordCharge, RecordReleases
from sfumato.privacy.release import Exposure, NoiseLaw, Release, are_unprotected
from sfumato.privacy.sampling import Neighbours

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
    """Yield the classes of ``devices``, which observers meet alike: one class, or one for each kind of site.

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


class DeclaredReleases(Protocol):
    """Facts of a protocol, and who meets which of them."""

    @property
    def device_count(self) -> int:
        """Number of devices, numbered from 0."""

    def party_name(self, party: Party) -> str:
        """The name of ``party``, one that exists, on the command line, such as ``edge:0``."""

    @property
    def noise_law(self) -> NoiseLaw:
        """The distribution of all noise; noise of a law that the accountant cannot compose counts as none."""

    @property
    def has_raw_intervals(self) -> bool:
        """Whether all releases have noise, but models without any are sent to some devices between them."""

    @property
    def batches(self) -> BatchFacts:
        """How devices draw the records of a local step."""

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The releases of the flow exposure by draws of batches, to charge a record of device ``unit``.

        The flow exposure holds all releases that what ``coalition`` sees is computed from. Empty where
        records are not drawn into batches independently of each other.
        """

    def larger_coalition(self, unit: int, coalition: Sequence[Party]) -> tuple[Party, ...] | None:
        """A larger coalition towards which a record of ``unit`` may be charged less; ``None`` if none.

        It sees more than ``coalition``, so the ε charged towards it holds towards ``coalition`` too.
        """

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The sets of releases charged for ``unit`` towards ``coalition``, one for each bound.

        Args:
            unit: number of a device.
            coalition: observers that pool what they know.

        Raises:
            ValueError: a party that does not exist, or a coalition that contains the unit.
        """

    def bound_epsilon(
        self, exposure: Exposure, *, delta: float, neighbours: Neighbours, known: float = math.inf
    ) -> EpsilonBound:
        """The bound with the smallest ε at ``delta`` among the ways of charging ``exposure``.

        Args:
            exposure: the releases charged, one of `exposures`.
            delta: of the ε, in (0, 1).
            neighbours: the neighbouring relation.
            known: the ε of another bound of the same pair: a larger one may be computed more coarsely, as if
                every draw were seen. ∞: none is known.
        """

    def noise_by_owner(
        self, unit: int, coalition: Sequence[Party]
    ) -> Mapping[str, Mapping[Release, Mapping[str, float]]]:
        """The noise variance of each release charged for ``unit`` towards ``coalition``, split by who adds
        it.

        Returns:
            By name of the bound and by release: variance, a coordinate, by kind of owner (such as
            ``devices``).
        """

    def pair_classes(
        self, unit: int | None = None, *, apart: bool = False, every_unit: bool = False
    ) -> Iterator[PairClass]:
        """Yield one pair of a unit and an observer for every class of pairs that are charged alike.

        Args:
            unit: only pairs of this device; ``None``: of all, each class with its worst unit.
            apart: whether sites that a user named are classes of their own where their records are drawn
                unequally often.
            every_unit: whether every unit that observers meet otherwise has rows of its own, however many.
        """

    def units_outside(self, members: Set[int], *, apart: bool = False) -> Iterator[UnitClass]:
        """Yield the classes of the devices that are not in ``members``, numbers of devices.

        A coalition of ``members`` sees all devices of a class alike. ``apart``: whether sites that a user
        named are classes of their own where their records are drawn unequally often.
        """

    def after(self, rounds: int) -> Self:
        """The releases of the first ``rounds`` rounds only."""

    def to_dict(self) -> dict[str, Any]:
        """The facts as a JSON object, enough to recompute every ε without this library."""


def bounds_of(
    declared: DeclaredReleases, exposures: Sequence[Exposure], *, delta: float, neighbours: Neighbours
) -> dict[str, EpsilonBound]:
    """The bound on ε at ``delta`` for every exposure of one pair, by name; equal ones are composed once.

    Args:
        declared: the releases that the exposures are of.
        exposures: one for each bound of the pair.
        delta: of the ε.
        neighbours: the neighbouring relation.

    Returns:
        The bounds by name (``flow``, ``cut``, ``min-cost``), in the order of ``exposures``.
    """
    found: dict[str, EpsilonBound] = {}
    for number, exposure in enumerate(exposures):
        same = next((other for other in exposures[:number] if exposure.charges_same_as(other)), None)
        if same is None:
            known = min((bound.epsilon for bound in found.values()), default=math.inf)
            bound = declared.bound_epsilon(exposure, delta=delta, neighbours=neighbours, known=known)
        else:
            bound = found[same.bound_name]
        found[exposure.bound_name] = replace(bound, exposed=exposure.exposed, gap=exposure.gap)
    return found


def best_way(ways: Sequence[Composition], delta: float) -> Composition:
    """The one of ``ways`` that has the smallest ε at ``delta``; if there is one only, nothing is composed."""
    if len(ways) == 1:
        return ways[0]
    return min(ways, key=lambda way: smallest_epsilon([way], 0, delta=delta).epsilon)


@dataclass(frozen=True, eq=False)
class PairCharge:
    """One pair of a unit and a coalition, and how it is charged.

    Attributes:
        releases: the declared releases.
        device: the unit, or the device of the record.
        coalition: who observes it.
        neighbours: the relation of the spec.
        record: how the record is charged; ``None`` where the device is the unit.
        larger: the same pair towards a larger coalition, which bounds it too (`DeclaredReleases`); ``None``
            where there is none.
    """

    releases: DeclaredReleases
    device: int
    coalition: tuple[Party, ...]
    neighbours: Neighbours
    record: RecordCharge | None
    larger: PairCharge | None = None

    @classmethod
    def of(
        cls,
        declared: DeclaredReleases,
        kind: str,
        device: int,
        coalition: Sequence[Party],
        *,
        neighbours: Neighbours,
        drawn_like: int | None = None,
        by_filter: bool = False,
    ) -> PairCharge:
        """The charge of one pair of a unit and a coalition; ε is computed only when asked for.

        Args:
            declared: the declared releases.
            kind: of unit: ``device``, ``record`` or ``person``.
            device: the unit, or the device of the record.
            coalition: who observes it.
            neighbours: the relation of the spec.
            drawn_like: for a record, the device whose records are drawn as often as this one; ``None``:
                ``device``.
            by_filter: for a record, whether a privacy filter holds the device's budget.
        """
        members = tuple(coalition)
        if kind == "device":
            return cls(declared, device, members, neighbours, None)

        def towards(observers: tuple[Party, ...], larger: PairCharge | None) -> PairCharge:
            record = RecordCharge.of(
                declared,
                device,
                observers,
                neighbours=neighbours,
                drawn_like=drawn_like,
                by_filter=by_filter,
                what=kind,
            )
            return cls(declared, device, observers, neighbours, record, larger)

        wider = declared.larger_coalition(device, members)
        return towards(members, None if wider is None else towards(wider, None))

    @cached_property
    def exposures(self) -> tuple[Exposure, ...]:
        """The sets of releases charged for this pair, one for each bound."""
        return self.releases.exposures(self.device, self.coalition)

    def bounds(self, delta: float) -> dict[str, EpsilonBound]:
        """Every bound of this pair at ``delta``, by its name, such as ``flow``; without those of `larger`."""
        if self.record is None:
            return bounds_of(self.releases, self.exposures, delta=delta, neighbours=self.neighbours)
        return {
            e.bound_name: replace(
                self.record.bound_epsilon(e, delta=delta, ways=self._ways_of_record[e.bound_name]),
                exposed=e.exposed,
                gap=self._gap_of_record(e),
            )
            for e in self.exposures
        }

    def _gap_of_record(self, exposure: Exposure) -> float | None:
        """`Exposure.gap` of one of `exposures` as it holds for the record; ∞ where none is known.

        Sets are compared as they are charged for the device, under the relation of the spec. A record is
        charged as if the device were replaced, and under flow by its draws, too, so that another set may be
        the cheapest.
        """
        assert self.record is not None
        flow, cut = self.exposures[:2]
        charged_alike = self.neighbours == "replace" and not self.record.counts_draws(flow)
        if exposure.gap is None or charged_alike or flow.draws == cut.draws:
            return exposure.gap
        return math.inf if any(release.depends_on_unit for release in exposure.releases) else exposure.gap

    @cached_property
    def _ways_of_record(self) -> dict[str, tuple[Composition, ...]]:
        """For every bound by name, the sound ways to charge the record; only where a record is the unit."""
        assert self.record is not None
        return {e.bound_name: self.record.ways(e) for e in self.exposures}

    def ways(self, exposure: Exposure) -> tuple[Composition, ...]:
        """Every sound way to charge ``exposure``, one of `exposures`; the smallest ε of them counts."""
        if self.record is None:
            return ways_to_charge(exposure, self.neighbours)
        return self._ways_of_record[exposure.bound_name]

    @property
    def all_ways(self) -> tuple[Composition, ...]:
        """Every sound way to charge this pair: over all bounds, those towards `larger` included."""
        own = tuple(way for exposure in self.exposures for way in self.ways(exposure))
        return own if self.larger is None else (*own, *self.larger.all_ways)

    def way(self, exposure: Exposure, delta: float) -> Composition:
        """The way to charge ``exposure`` that has the smallest ε at ``delta``."""
        return best_way(self.ways(exposure), delta)

    def least(self, delta: float) -> tuple[PairCharge, dict[str, EpsilonBound]]:
        """This pair or `larger`, whichever has the smaller ε at ``delta``, and its bounds.

        What the larger coalition learns at most, this one learns at most.

        Returns:
            The pair with the smallest ε (this one if there is no `larger`, or both are equal), and all bounds
            of that pair by name.
        """
        bounds = self.bounds(delta)
        if self.larger is None:
            return self, bounds
        found = self.larger.bounds(delta)
        smaller = min(b.epsilon for b in found.values()) < min(b.epsilon for b in bounds.values())
        return (self.larger, found) if smaller else (self, bounds)

    def epsilon(self, delta: float) -> float:
        """The smallest ε at ``delta`` among all bounds, those towards `larger` included; ∞ if unprotected."""
        _, bounds = self.least(delta)
        return min(bound.epsilon for bound in bounds.values())

    def noise_scale(self, epsilon: float, delta: float) -> float:
        """The least factor on all noise stds at which ε at ``delta`` is at most ``epsilon``, or ∞."""
        ways = (way for exposure in self.exposures for way in self.ways(exposure))
        own = scale_for(ways, epsilon=epsilon, delta=delta)
        return own if self.larger is None else min(own, self.larger.noise_scale(epsilon, delta))

    @property
    def is_composed_roughly(self) -> bool:
        """Whether ε may be up to 2 % above what a finer grid of privacy losses gives."""
        return any(exposure.roughly for exposure in self.exposures)

    @property
    def is_unprotected(self) -> bool:
        """Whether every bound of the pair charges something without noise, so that ε is infinite."""
        if self.record is None:
            return are_unprotected(self.exposures)
        ways = (way for exposure in self.exposures for way in self.ways(exposure))
        own = all(any(term.multiplier == 0 for term in way.terms) for way in ways)
        return own and (self.larger is None or self.larger.is_unprotected)

"""What declared releases answer, and how one pair of a unit and a coalition is charged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, Self

from sfumato.privacy.charges import Composition, has_larger_epsilon, smallest_epsilon, ways_to_charge
from sfumato.privacy.guarantee import EpsilonBound
from sfumato.privacy.noise_scale import scale_for
from sfumato.privacy.observers import PairClass, Party, UnitClass
from sfumato.privacy.records import BatchFacts, RecordCharge, RecordReleases
from sfumato.privacy.release import Exposure, NoiseLaw, Release, are_unprotected
from sfumato.privacy.sampling import Neighbours


class DeclaredReleases(Protocol):
    """The declared releases of a protocol, and which of them each coalition of observers sees."""

    @property
    def device_count(self) -> int:
        """Number of devices, numbered from 0."""

    def party_name(self, party: Party) -> str:
        """The name of ``party`` on the command line, such as ``edge:0``.

        The party must exist in the topology; not every protocol checks that.
        """

    @property
    def noise_law(self) -> NoiseLaw:
        """The distribution of all noise; noise of a law that the accountant cannot compose counts as none."""

    @property
    def has_raw_intervals(self) -> bool:
        """Whether all releases have noise, but between two of them some devices receive models without noise.

        So it is inside an interval of DP-OGL+; of a tree it is never true.
        """

    @property
    def batches(self) -> BatchFacts:
        """How devices draw the records of a local step (`BatchFacts`), from which records are charged."""

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The releases of the flow exposure, sorted by which draws of batches they were trained on.

        A record of device ``unit`` is charged by them. The flow exposure holds every release that anything
        which ``coalition`` sees is computed from. Empty where records are not drawn into batches
        independently of each other.
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
            ValueError: the coalition contains the unit, or in groups a party that does not exist.
            IndexError: in trees, a party that does not exist.
        """

    def distinct_exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """`exposures` without those that are known to be charged like another one of them; quick to compute.

        The smallest ε of what is left is that of all `exposures`, and it is ∞ for the same pairs.

        Args:
            unit: number of a device.
            coalition: observers that pool what they know.
        """

    def bound_epsilon(
        self, exposure: Exposure, *, delta: float, neighbours: Neighbours, known: float = math.inf
    ) -> EpsilonBound:
        """The smallest ε at ``delta`` among the ways of charging ``exposure``, with how it was computed.

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
        """The noise variance of each release charged for ``unit`` towards ``coalition``, by who adds it.

        Returns:
            By name of the bound and by release: variance, a coordinate, by kind of owner (such as
            ``devices``).
        """

    def pair_classes(
        self, unit: int | None = None, *, apart: bool = False, every_unit: bool = False
    ) -> Iterator[PairClass]:
        """Yield pairs of a unit and an observer that together stand for all pairs.

        One pair for every class of pairs that are charged alike. In a large network a pair may also stand for
        pairs whose ε is at most its own at every δ.

        Args:
            unit: only pairs of this device; ``None``: of all, each class with its worst unit.
            apart: whether sites that a user named are classes of their own where their records are drawn
                unequally often.
            every_unit: whether no unit may stand for another one that is charged less, however many rows that
                makes; observers may still stand for others. Without effect in groups.
        """

    def units_outside(self, members: Set[int], *, apart: bool = False) -> Iterator[UnitClass]:
        """Yield the classes of the devices that are not in ``members``, numbers of devices.

        A coalition of ``members`` sees all devices of a class alike. ``apart``: whether sites that a user
        named are classes of their own where their records are drawn unequally often.
        """

    def after(self, rounds: int) -> Self:
        """A copy that declares only the releases of the first ``rounds`` rounds; ``rounds`` is at least 0."""

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
    found, known = list[tuple[Exposure, EpsilonBound]](), math.inf
    # bounds that may be computed coarsely come last: `known` then shows that they need not be exact
    for exposure in sorted(exposures, key=lambda each: each.roughly and each.hides_a_draw):
        bound = next((bound for other, bound in found if exposure.charges_same_as(other)), None)
        if bound is None:
            bound = declared.bound_epsilon(exposure, delta=delta, neighbours=neighbours, known=known)
            known = min(known, bound.epsilon)
        found.append((exposure, bound))
    of_name = {e.bound_name: _as_searched(bound, e) for e, bound in found}
    return {exposure.bound_name: of_name[exposure.bound_name] for exposure in exposures}


def _as_searched(bound: EpsilonBound, exposure: Exposure) -> EpsilonBound:
    """``bound`` with what the search for ``exposure`` found; itself where nothing was searched for."""
    was_searched = exposure.gap is not None or exposure.exposed
    return replace(bound, exposed=exposure.exposed, gap=exposure.gap) if was_searched else bound


def best_way(ways: Sequence[Composition], delta: float) -> Composition:
    """The one of ``ways`` that has the smallest ε at ``delta``; the first of equals.

    With a single way nothing is composed, so this is quick.

    Args:
        ways: sound ways to charge one pair, one or more.
        delta: δ in (0, 1).
    """
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

    @cached_property
    def distinct_exposures(self) -> tuple[Exposure, ...]:
        """Those of `exposures` that may differ in what is charged (`DeclaredReleases.distinct_exposures`)."""
        return self.releases.distinct_exposures(self.device, self.coalition)

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
        """`Exposure.gap` of ``exposure``, one of `exposures`, for the record; ``None`` stays ``None``.

        ∞ where nothing is known.

        The search for the cheapest exposed set compared sets as they are charged for the device, under the
        relation of the spec. A record is charged as if its device were replaced, and under flow also by its
        draws, so another set may be the cheapest for the record. The gap holds only where both are charged
        alike.
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
    def own_ways(self) -> tuple[Composition, ...]:
        """Every sound way to charge this pair, without those towards `larger`."""
        exposures = self.distinct_exposures if self.record is None else self.exposures
        return tuple(way for exposure in exposures for way in self.ways(exposure))

    @property
    def all_ways(self) -> tuple[Composition, ...]:
        """Every sound way to charge this pair, those towards `larger` included; the smallest ε counts."""
        return self.own_ways if self.larger is None else (*self.own_ways, *self.larger.all_ways)

    def best_way(self, exposure: Exposure, delta: float) -> Composition:
        """The one of the `ways` of ``exposure`` that has the smallest ε at ``delta``.

        Args:
            exposure: one of `exposures`.
            delta: δ in (0, 1).
        """
        return best_way(self.ways(exposure), delta)

    def least(self, delta: float) -> tuple[PairCharge, dict[str, EpsilonBound]]:
        """This pair or `larger`, whichever has the smaller ε at ``delta``, and the bounds of that one.

        The larger coalition sees more, so its ε holds towards this one too.

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
        """The smallest ε at ``delta`` among all bounds, those towards `larger` included; ∞ if unprotected.

        Bounds under hidden draws come last, and one that is surely above another is not composed.
        """
        if self.record is not None:
            _, bounds = self.least(delta)
            return min(bound.epsilon for bound in bounds.values())
        found, related = math.inf, self.neighbours
        for exposure in sorted(self.distinct_exposures, key=lambda each: each.hides_a_draw):
            above = partial(has_larger_epsilon, exposure, found, delta=delta, neighbours=related)
            if found == math.inf or not above():
                spent = self.releases.bound_epsilon(exposure, delta=delta, neighbours=related, known=found)
                found = min(found, spent.epsilon)
        return found

    def noise_scale(self, epsilon: float, delta: float) -> float:
        """The least factor on all noise stds at which `epsilon` at ``delta`` is at most ``epsilon``.

        Below 1, less noise is enough. ∞: none is enough, since something is released without any.

        Raises:
            ValueError: ``epsilon`` is not > 0 and finite.
        """
        own = scale_for(self.own_ways, epsilon=epsilon, delta=delta)
        return own if self.larger is None else min(own, self.larger.noise_scale(epsilon, delta))

    @property
    def is_composed_roughly(self) -> bool:
        """Whether ε may be up to 2 % above what a finer grid of privacy losses gives."""
        return any(exposure.roughly for exposure in self.distinct_exposures)

    @property
    def is_unprotected(self) -> bool:
        """Whether every bound of the pair charges something without noise, so that ε is infinite."""
        if self.record is None:
            return are_unprotected(self.distinct_exposures)
        own = all(any(term.multiplier == 0 for term in way.terms) for way in self.own_ways)
        return own and (self.larger is None or self.larger.is_unprotected)

"""Which ordered pairs of a unit and an observer in overlapping groups are alike: one stands for all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sfumato.privacy.groups import folded_observers
from sfumato.privacy.groups.symmetries import Symmetry, generators, orbits, orbits_under, with_stabilisers
from sfumato.privacy.groups.vector_clocks import UNREACHED
from sfumato.privacy.observers import PEER_IN_A_GROUP, PairClass, Party, Relation, UnitClass, covering

if TYPE_CHECKING:
    from sfumato.privacy.groups.releases import GroupReleases


@dataclass(frozen=True)
class GroupPairs:
    """The pairs of a unit and an observer in groups, sorted into classes that are charged alike.

    Attributes:
        releases: facts and exposures of the groups.
    """

    releases: GroupReleases
    _found: dict[bool, tuple[PairClass, ...]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def unit_classes(self) -> tuple[tuple[int, int], ...]:
        """Classes of workers that symmetries of the groups exchange, each as a kind and a number of workers.

        The kind is the first one of its class; the number counts the workers of all kinds in the class.
        """
        alike = self._orbits_of_kinds
        _, firsts = np.unique(alike, return_index=True)
        return tuple(
            (int(kind), int(self.releases.kinds.size[alike == alike[kind]].sum())) for kind in np.sort(firsts)
        )

    @cached_property
    def _generators(self) -> tuple[Symmetry, ...]:
        """Symmetries of the groups that connect those in the same position."""
        return generators(self.releases.kinds, self.parameters)

    @cached_property
    def _orbits_of_kinds(self) -> npt.NDArray[np.int64]:
        """A number for every kind, ``[kinds]``, equal only where a symmetry of the groups exchanges them."""
        return orbits_under(self._generators, self.releases.kinds, self.parameters)[0]

    def count_alike(self, units: Iterable[int]) -> int:
        """The number of workers that symmetries exchange with any of ``units``, themselves included.

        ``units``: numbers of workers, one or more; each worker is counted once.
        """
        alike, kinds = self._orbits_of_kinds, self.releases.kinds
        return int(kinds.size[np.isin(alike, alike[kinds.of[list(units)]])].sum())

    @cached_property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """A tuple of symmetries of the groups, of which all other symmetries found are products."""
        return with_stabilisers(self._generators, self.releases.kinds, self.parameters)

    @property
    def parameters(self) -> list[tuple[float, ...]]:
        """What a symmetry must keep of every group: a tuple of numbers, equal where groups may be exchanged.

        In order: clip norm, noise multiplier, size or rate of the draw, threshold of secure aggregation (0
        without), whether workers add the noise, and the least survivors.
        """
        declared = self.releases
        thresholds = declared.unmask_thresholds or (0,) * declared.group_count
        drawn = declared.cohort or declared.rate
        owners = map(declared.noised_by_devices, range(declared.group_count))
        least = declared.least_survivors
        return list(
            zip(declared.clip, declared.noise_multiplier, drawn, thresholds, owners, *least, strict=True)
        )

    def group_orbits(self, named: Iterable[Party]) -> npt.NDArray[np.int64]:
        """A class number for every group, ``[groups]``, equal only where a symmetry exchanges the groups.

        The symmetry leaves every party of ``named`` in its place.
        """
        parties = sorted(named, key=repr)
        marked = [
            (*colour, *(float(self._holds(party, group)) for party in parties))
            for group, colour in enumerate(self.parameters)
        ]
        return orbits(self.releases.kinds, marked)[1]

    def _holds(self, party: Party, group: int) -> bool:
        """Whether ``party`` is the master of ``group``, or a device that is in it in any era."""
        if party.kind == "node":
            return party.index == group
        return any(group in era for era in self.releases.kinds.groups[self.releases.kinds.of[party.index]])

    def of(self, unit: int | None = None, *, apart: bool = False) -> Iterator[PairClass]:
        """Yield one pair for every class of equivalent ordered pairs; their ``pair_count`` adds up to all.

        Observers are every master and every other device. Units count as equivalent if a symmetry of the
        groups maps one to the other, observers of one unit if all their exposures are equal and the unit
        trusts all of them or none. In a large network a pair also stands for those with observers that see no
        more than its own (`folded_observers`), unless a unit is asked for.

        Args:
            unit: only pairs of this device; ``None``: of all.
            apart: whether sites whose records are drawn unequally often are classes of their own.

        Raises:
            RuntimeError: an internal error: the classes do not add up to all pairs.
        """
        observers = self.releases.group_count + self.releases.device_count - 1
        if unit is not None:
            return covering(self._pairs_of(UnitClass(unit, 1)), observers)
        if apart not in self._found:
            self._found[apart] = tuple(
                pair for units in self._units(apart) for pair in self._pairs_of(units, fold=self.is_large)
            )
        return covering(self._found[apart], self.releases.device_count * observers)

    def _units(self, apart: bool) -> Iterator[UnitClass]:
        """List classes of units, one or more for each orbit of workers under the groups' symmetries.

        ``apart``: whether sites whose records are drawn unequally often are classes of their own.
        """
        alike = self._orbits_of_kinds
        for kind, _ in self.unit_classes:
            yield from self.releases.units_of(
                np.flatnonzero((alike == alike[kind])[self.releases.kinds.of]), apart=apart
            )

    @cached_property
    def is_large(self) -> bool:
        """Whether there are so many kinds of pairs that an observer stands for those that see no more."""
        kinds = self.releases.kinds
        pairs = len(self.unit_classes) * (kinds.group_count + len(kinds.size))
        return pairs > folded_observers.MOST_PAIRS and folded_observers.may_fold(self.releases)

    @cached_property
    def _wider_kinds(self) -> list[list[int]]:
        """For every kind of workers, the kinds that are in all of its groups and in others."""
        return folded_observers.wider_kinds(self.releases.kinds)

    def _pairs_of(self, found: UnitClass, *, fold: bool = False) -> Iterator[PairClass]:
        """Yield classes of the pairs of units ``found``: observers with equal relation, trust and exposures.

        Args:
            found: the units, which are charged alike; its first one is charged for all.
            fold: whether a pair also stands for those with observers that see no more than its own. Such a
                pair is a class of its own, so that its observer is in all groups of each observer that it
                stands for.
        """
        unit, unit_kind = found.unit, int(self.releases.kinds.of[found.unit])
        classes: dict[Any, PairClass] = {}
        for party, relation, count, kinds in self._observers_of(unit, unit_kind, fold=fold):
            charged = tuple(exposure.without_names for exposure in self.releases.exposures(unit, (party,)))
            folded_observer = party if kinds > 1 else None
            signature = relation, self._is_trusted(relation, party), charged, folded_observer
            first = classes.get(signature, PairClass(unit, party, relation, 0, found.least, found.sites))
            classes[signature] = replace(
                first, pair_count=first.pair_count + found.count * count, kinds=first.kinds + kinds - 1
            )
        yield from classes.values()

    def _observers_of(
        self, unit: int, unit_kind: int, *, fold: bool
    ) -> Iterator[tuple[Party, Relation, int, int]]:
        """List masters and devices except ``unit``, one for each class of observers placed alike towards it.

        Trust makes no difference here.

        Args:
            unit: number of the device.
            unit_kind: number of its kind of workers.
            fold: whether an observer also stands for classes that see no more than its own.

        Yields:
            The observer, its relation to the unit, how many observers it stands for, and in how many classes
            these are.
        """
        rows = self.releases.kinds.groups[unit_kind]
        marked = [
            (*colour, *(float(group in era) for era in rows)) for group, colour in enumerate(self.parameters)
        ]
        of_kinds, of_groups = orbits(self.releases.kinds, marked)
        for group, count in zip(*np.unique(of_groups, return_counts=True), strict=True):
            master = Party("node", 1, int(group))
            yield master, self._relation(unit_kind, master), int(count), 1
        others = self.releases.kinds.without(unit_kind)
        counts = {int(place): int(others[of_kinds == place].sum()) for place in np.unique(of_kinds)}
        devices: dict[int, tuple[Party, Relation]] = {}
        for place in (place for place, count in counts.items() if count):
            kind = int(np.flatnonzero((of_kinds == place) & (others > 0))[0])
            members = np.flatnonzero(self.releases.kinds.of == kind)
            device = Party("device", 0, int(members[members != unit][0]))
            devices[place] = device, self._relation(unit_kind, device)
        stand_ins = {place: place for place in devices}
        if fold:
            stand_ins = folded_observers.stand_ins(
                devices, of_kinds, self._wider_kinds, self.releases.kinds, lambda place: devices[place][1]
            )
        counts_by_stand_in: defaultdict[int, list[int]] = defaultdict(list)
        for place, worst in stand_ins.items():
            counts_by_stand_in[worst].append(counts[place])
        for place, class_counts in counts_by_stand_in.items():
            yield *devices[place], sum(class_counts), len(class_counts)

    def _is_trusted(self, relation: Relation, party: Party) -> bool:
        """Whether ``party`` is a master that gets raw updates of the unit, since it adds the noise itself.

        An ε of ∞ towards any other party has other reasons.
        """
        return relation.kind == "own-edge" and not self.releases.noised_by_devices(party.index)

    def _relation(self, unit_kind: int, party: Party) -> Relation:
        """Say how ``party`` is placed towards units of kind number ``unit_kind``.

        It is their own master or a peer if it shares a group with them in any era. Else the words say how
        many groups away it is, or, where groups change, only that no group is in common.
        """
        is_master = party.kind == "node"
        theirs = (
            tuple((party.index,) for _ in self.releases.eras)
            if is_master
            else self.releases.kinds.groups[self.releases.kinds.of[party.index]]
        )
        own = self.releases.kinds.groups[unit_kind]
        if any(set(a) & set(b) for a, b in zip(own, theirs, strict=True)):
            return Relation.edge("master") if is_master else PEER_IN_A_GROUP
        if len(self.releases.eras) > 1:
            place = " in no common group"
        else:
            away = self.releases.hops_between(unit_kind)[np.ix_(own[0], theirs[0])]
            hops = int(away.min(initial=UNREACHED))
            place = f", {hops} {'group' if hops == 1 else 'groups'} away"
            place = ", not connected" if hops == UNREACHED else place
        return Relation.edge("master", place) if is_master else Relation.device(place)

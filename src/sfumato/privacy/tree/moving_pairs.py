"""Which pairs one row stands for where devices move: by the unit's history, and how the observer is placed.

Units that are under the same edge in every round are alike. Where nothing is drawn, what a pair amounts to
is the sum of μ² over the rounds, and one row stands for all observers that are placed alike towards such a
unit: the one with the largest figure. Where participants or records are drawn, figures cannot be ordered
before they are composed: then a row stands for pairs that are of one kind in every round.

Kinds of pairs in one round (`RoundKinds`): what is computed for one of a kind holds for all. Two pairs of
one observer are of a kind if the units' edges are alike, the observers' edges are alike, and both observers
are (or both are not) of the unit's own edge: permuting edges that are alike, with their devices, maps one
pair to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import (
    CLOUD,
    PEER,
    PUBLIC,
    PairClass,
    Party,
    Relation,
    UnitClass,
    covering,
    unit_classes,
)
from sfumato.privacy.records import RecordReleases
from sfumato.privacy.release import Exposure, Release, total_mu_squared
from sfumato.privacy.sampling import Neighbours
from sfumato.privacy.tree.releases import TreeReleases
from sfumato.privacy.tree.shape import FloatArray, IntArray

Kind: TypeAlias = tuple[int, str, int]
Owned: TypeAlias = dict[str, dict[Release, dict[str, float]]]
_Found = TypeVar("_Found")
_OWN = -1


@dataclass(frozen=True, eq=False)
class RoundKinds:
    """The releases charged for a pair in one round, computed once for all pairs of the same kind.

    Attributes:
        releases: of the round.
    """

    releases: TreeReleases
    _exposures: dict[tuple[int, Kind], tuple[Exposure, ...]] = field(default_factory=dict)
    _owned: dict[tuple[int, Kind], Owned] = field(default_factory=dict)
    _of_records: dict[tuple[int, Kind], tuple[RecordReleases, ...]] = field(default_factory=dict)
    _looked_at: dict[tuple[int, Kind], tuple[int, Sequence[Party]]] = field(default_factory=dict)

    @cached_property
    def alike(self) -> IntArray:
        """A class number for every edge, ``[edges]``, equal only where a symmetry exchanges edges."""
        return self.releases.leaf_classes

    def kind_of(self, unit: int, coalition: Sequence[Party]) -> Kind | None:
        """The kind of the pair of ``unit`` and ``coalition``; ``None`` unless that is one other party.

        Returns:
            The class of the unit's edge, the observer's kind, and the class of the observer's edge: -1 if
            that is the unit's own edge, or if the observer is the cloud or the public.
        """
        if len(coalition) != 1 or coalition[0] == Party("device", 0, unit):
            return None
        (party,), mine = coalition, self.releases.leaf_of(unit)
        if party.kind == "public" or (party.kind == "node" and party.tier == 0):
            return int(self.alike[mine]), party.kind, _OWN
        theirs = self.releases.leaf_of(party.index) if party.kind == "device" else party.index
        return (
            int(self.alike[mine]),
            f"{party.kind} below",
            _OWN if theirs == mine else int(self.alike[theirs]),
        )

    def exposures(self, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
        """The flow and the cut exposure of one round of device ``unit`` towards ``coalition``.

        Results are kept for all pairs of one kind and edge of the unit, so names in them may be those of
        another such pair.
        """
        return self._once(self._exposures, self.releases.exposures, unit, coalition)

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The releases that a record of device ``unit`` is charged for in one round, towards ``coalition``.

        They are those of the flow exposure, which holds all that the coalition's view is computed from, in
        one part for each draw of the record into local steps. Empty where records are not drawn one by one.
        """
        return self._once(self._of_records, self.releases.record_releases, unit, coalition)

    def noise_by_owner(self, unit: int, coalition: Sequence[Party]) -> Owned:
        """The noise variance of each release that one round charges for a pair, by who adds it.

        Args:
            unit: number of the device.
            coalition: who observes it.

        Returns:
            By name of the bound and by release: variance, a coordinate, by kind of owner (such as
            ``devices``).
        """
        return self._once(self._owned, self.releases.noise_by_owner, unit, coalition)

    def _once(
        self,
        kept: dict[tuple[int, Kind], _Found],
        compute: Callable[[int, Sequence[Party]], _Found],
        unit: int,
        coalition: Sequence[Party],
    ) -> _Found:
        """Look up the result of ``compute`` for a pair, or compute and keep it.

        Args:
            kept: results so far, by leaf of the unit and kind of pair.
            compute: a function of a unit and a coalition.
            unit: the device.
            coalition: who observes it; a pair without a kind (`kind_of`) is computed anew each time.
        """
        kind = self.kind_of(unit, coalition)
        if kind is None:
            return compute(unit, coalition)
        named = self.releases.leaf_of(unit), kind
        if named not in kept:  # of one pair, so that sums are added up in one order and are equal
            kept[named] = compute(*self._looked_at.setdefault(named, (unit, coalition)))
        return kept[named]

    def kind_numbers(self, units: IntArray, parties: Sequence[Party]) -> IntArray:
        """A number for every pair of a unit and a party, equal only for pairs of one kind, int64 ``[U, P]``.

        Args:
            units: numbers of devices, ``[U]``.
            parties: only edges, or only devices ``[P]``.
        """
        mine = self.releases.leaves_of(units)
        if parties[0].kind == "device":
            theirs = self.releases.leaves_of(np.array([party.index for party in parties]))
        else:
            theirs = np.array([party.index for party in parties])
        own = mine[:, None] == theirs[None, :]
        seen = np.where(own, 0, 1 + self.alike[theirs][None, :])
        found: IntArray = self.alike[mine][:, None] * (2 + int(self.alike.max())) + seen
        return found

    def mu_squared(self, unit: int, parties: Sequence[Party]) -> FloatArray:
        """μ² of one round of ``unit`` towards each of ``parties``, all edges or all devices, ``[P, 2, 2]``.

        The axes: parties; flow and cut bound; zero-out and replace.
        """
        numbers, table = self.kind_numbers(np.array([unit]), parties)[0], self._tables[parties[0].kind]
        found = table[numbers]
        if np.isnan(found).any():
            for number, place in zip(*np.unique(numbers, return_index=True), strict=True):
                if np.isnan(table[number]).any():
                    table[number] = self._mu_squared_of_pair(unit, parties[int(place)])
            found = table[numbers]
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def _tables(self) -> dict[str, FloatArray]:
        """μ² of kinds of pairs, ``[kinds, 2, 2]``, by kind of party (node, device); NaN: not computed."""
        kinds = int(self.alike.max()) + 1
        return {who: np.full((kinds * (kinds + 1), 2, 2), np.nan) for who in ("node", "device")}

    def _mu_squared_of_pair(self, unit: int, party: Party) -> list[list[float]]:
        """μ² of one round of ``unit`` towards ``party``: rows flow and cut, columns zero-out and replace."""
        relations: tuple[Neighbours, Neighbours] = ("zero-out", "replace")
        found = self.exposures(unit, (party,))
        return [[total_mu_squared(one.releases, how) for how in relations] for one in found]


@dataclass(frozen=True, eq=False)
class MovingPairs:
    """The pairs of a unit and an observer where devices move, sorted into classes that are charged alike.

    Attributes:
        kinds: of pairs, in one round of each era.
        lengths: rounds of each era.
    """

    kinds: Sequence[RoundKinds]
    lengths: IntArray

    @property
    def is_drawn(self) -> bool:
        """Whether participants of rounds, or records of batches, are drawn at random."""
        facts = self.kinds[0].releases
        return facts.draw_kind != "all" or facts.batches.rates is not None

    @cached_property
    def _places(self) -> IntArray:
        """The edge that every device is under in each era, ``[eras, devices]``."""
        facts = self.kinds[0].releases
        return np.stack([k.releases.leaves_of(np.arange(facts.device_count)) for k in self.kinds])

    @cached_property
    def of_device(self) -> IntArray:
        """The class of every device, ``[devices]``; those of one are under the same edge in every round."""
        found = np.unique(self._places, axis=1, return_inverse=True)[1]
        return np.asarray(found, dtype=np.int64).reshape(-1)

    @cached_property
    def firsts(self) -> IntArray:
        """The number of the first device of each class of `of_device`, ``[classes]``."""
        return np.unique(self.of_device, return_index=True)[1].astype(np.int64)

    def units_outside(self, members: Set[int]) -> Iterator[UnitClass]:
        """Yield the classes of the devices outside ``members``, as in `of_device`."""
        facts = self.kinds[0].releases
        for number in np.argsort(self.firsts):
            left = np.setdiff1d(np.flatnonzero(self.of_device == number), np.fromiter(members, np.int64))
            if len(left):
                yield from unit_classes(
                    int(left[0]),
                    len(left),
                    partial(np.asarray, left),
                    rates=facts.batches.rates,
                    sites=None,
                    apart=False,
                )

    @cached_property
    def counts(self) -> IntArray:
        """Number of devices of each class of `of_device`, ``[classes]``."""
        return np.bincount(self.of_device).astype(np.int64)

    def of(self, unit: int | None = None) -> Iterator[PairClass]:
        """Yield one pair for every class of pairs; their ``pair_count`` adds up to all pairs (of one unit).

        ``unit``: only pairs of this device, every edge a class of its own; ``None``: of all.

        Raises:
            RuntimeError: an internal error: the classes do not add up to all pairs.
        """
        facts = self.kinds[0].releases
        observers = sum(map(len, facts.parents)) + facts.device_count
        if unit is None:
            rows = (
                replace(pair, least=units.least)
                for units in self.units_outside(frozenset())
                for pair in self._of_class(units.unit, units.count, each=False)
            )
            return covering(rows, facts.device_count * observers)
        return covering(self._of_class(unit, 1, each=True), observers)

    def _of_class(self, unit: int, units: int, *, each: bool) -> Iterator[PairClass]:
        """Yield the pairs of ``unit``, which stands for ``units`` like it, with every class of observers.

        ``each``: whether every edge is a class of its own.
        """
        facts, number = self.kinds[0].releases, int(self.of_device[unit])
        yield PairClass(unit, Party("public"), PUBLIC, units)
        yield PairClass(unit, Party("node", 0, 0), CLOUD, units)
        mine = self._places[:, unit]
        name = facts.names[1]
        edges = [Party("node", 1, edge) for edge in range(facts.leaf_count)]
        above = np.isin(np.arange(facts.leaf_count), mine)
        ones = np.ones(len(edges), dtype=np.int64)
        own, other = Relation.edge(name), Relation.edge(name, " elsewhere")
        yield from self._classes(unit, units, edges, ones, above, (own, other), each=each)
        devices, counts = self._one_device_of_each_class(number, unit)
        if devices:
            places = self._places[:, [party.index for party in devices]]
            together = (places == mine[:, None]).any(axis=0)
            told = (PEER, Relation.device(" elsewhere"))
            yield from self._classes(unit, units, devices, counts, together, told, each=False)

    def _one_device_of_each_class(self, number: int, unit: int) -> tuple[list[Party], IntArray]:
        """One device of every class but ``unit``, and how many devices other than ``unit`` it stands for.

        ``number``: the class of ``unit``. A class without any other device is left out.
        """
        counts, firsts = self.counts.copy(), self.firsts.copy()
        counts[number] -= 1
        if counts[number]:
            alike = np.flatnonzero(self.of_device == number)
            firsts[number] = next(int(device) for device in alike[:2] if device != unit)
        left = np.flatnonzero(counts)
        return [Party("device", 0, int(firsts[n])) for n in left], counts[left]

    def _classes(
        self,
        unit: int,
        units: int,
        parties: Sequence[Party],
        counts: IntArray,
        near: npt.NDArray[np.bool_],
        relations: tuple[Relation, Relation],
        *,
        each: bool,
    ) -> Iterator[PairClass]:
        """Classes of the pairs of ``unit`` with ``parties``, those that are ``near`` apart from the others.

        Args:
            unit: the device.
            units: how many it stands for.
            parties: all edges, or one device of each class.
            counts: how many each of them stands for.
            near: whether an edge is ever above the unit, or a device ever under the same one.
            relations: what observers that are near are called, and the others.
            each: whether every party is a class of its own.
        """
        for flag, relation in zip((True, False), relations, strict=True):
            chosen = np.flatnonzero(near == flag)
            groups: list[IntArray]
            if each:
                groups = [chosen[i : i + 1] for i in range(len(chosen))]
            elif not self.is_drawn:
                groups = self._by_largest(unit, [parties[int(i)] for i in chosen], chosen)
            else:
                groups = self._grouped_by_kind(unit, [parties[int(i)] for i in chosen], chosen)
            for group in groups:
                count = units * int(counts[group].sum())
                yield PairClass(unit, parties[int(group[0])], relation, count)

    def _kinds_with(self, unit: int, parties: Sequence[Party]) -> Iterator[IntArray]:
        """For every era, the number of the kind of pair of ``unit`` with each of ``parties``, ``[P]``."""
        for kinds in self.kinds:
            yield kinds.kind_numbers(np.array([unit]), parties)[0]

    def _grouped_by_kind(self, unit: int, parties: Sequence[Party], places: IntArray) -> list[IntArray]:
        """Divide ``places`` into groups of parties that form one kind of pair with ``unit`` in every round.

        ``places``: a number for each of ``parties``, which the groups are made of.
        """
        found: dict[Any, list[int]] = {}
        if parties:
            for place, key in zip(places, zip(*self._kinds_with(unit, parties), strict=True), strict=True):
                found.setdefault(tuple(map(int, key)), []).append(int(place))
        return [np.array(group) for group in found.values()]

    def _by_largest(self, unit: int, parties: Sequence[Party], places: IntArray) -> list[IntArray]:
        """Divide ``places`` into groups of parties, one row each; the first of a group has its largest μ².

        All parties with a finite μ² are one group. The reported ε is the smaller of two bounds, and which is
        smaller may depend on the neighbouring relation: where no party has the largest μ² under both
        relations, groups are by kind of pair. Of parties with infinite μ², edges may be trusted or not, so
        each is its own group; devices are one group.

        Args:
            unit: number of the device.
            parties: all edges, or all devices.
            places: a number for each party, which the groups are made of; none: there is no group.
        """
        if not len(places):
            return []
        totals = np.zeros((len(parties), 2, 2))
        for kinds, length in zip(self.kinds, self.lengths, strict=True):
            totals += int(length) * kinds.mu_squared(unit, parties)
        figures = totals.min(axis=1)  # of each party, under either relation
        bounded = np.isfinite(figures).all(axis=1)
        unbounded = places[~bounded]
        unbounded_groups = (
            [unbounded[i : i + 1] for i in range(len(unbounded))]
            if parties[0].kind == "node"
            else [unbounded]
        )
        if not bounded.any():
            return unbounded_groups
        bounded_places, bounded_figures = places[bounded], figures[bounded]
        largest = np.flatnonzero((bounded_figures >= bounded_figures.max(axis=0)).all(axis=1))
        if not len(largest):
            return self._grouped_by_kind(unit, parties, places)
        first = int(largest[0])
        group = np.concatenate([bounded_places[first : first + 1], np.delete(bounded_places, first)])
        return [group, *(one for one in unbounded_groups if len(one))]

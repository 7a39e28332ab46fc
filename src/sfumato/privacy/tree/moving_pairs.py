"""Which pairs one row stands for where devices move: by the unit's history, and how the observer is placed.

Units that are under the same edge in every round are alike. Where nothing is drawn, what a pair amounts to
is the sum of μ² over the rounds, and one row stands for all observers that are placed alike towards such a
unit: the one with the largest figure. Where participants or records are drawn, figures cannot be ordered
before they are composed: then a row stands for pairs that are of one kind in every round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.privacy.observers import CLOUD, PEER, PUBLIC, PairClass, Party, Relation, covering
from sfumato.privacy.tree.round_kinds import RoundKinds
from sfumato.privacy.unit_classes import UnitClass, unit_classes

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MovingPairs:
    """Classes of pairs over several rounds.

    Attributes:
        kinds: of pairs, in one round of each era.
        lengths: rounds of each era.
    """

    kinds: Sequence[RoundKinds]
    lengths: IntArray

    @property
    def is_drawn(self) -> bool:
        """Whether participants or records are drawn."""
        facts = self.kinds[0].releases
        return facts.draw_kind != "all" or facts.batches.rates is not None

    @cached_property
    def _places(self) -> IntArray:
        """The edge of every device, ``[eras, devices]``."""
        facts = self.kinds[0].releases
        return np.stack([k.releases.leaves_of(np.arange(facts.device_count)) for k in self.kinds])

    @cached_property
    def of_device(self) -> IntArray:
        """A number for every device, equal where devices are under the same edge in every round."""
        found = np.unique(self._places, axis=1, return_inverse=True)[1]
        return np.asarray(found, dtype=np.int64).reshape(-1)

    @cached_property
    def firsts(self) -> IntArray:
        """The first device of each of these classes."""
        return np.unique(self.of_device, return_index=True)[1].astype(np.int64)

    def units_outside(self, members: Set[int]) -> Iterator[UnitClass]:
        """The devices of each class that has any outside ``members``."""
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
        """Devices of each of these classes."""
        return np.bincount(self.of_device).astype(np.int64)

    def of(self, unit: int | None = None) -> Iterator[PairClass]:
        """Representatives of all pairs, or of one unit's; ``pair_count`` adds up to all pairs.

        Of one unit every edge is a class of its own.
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
        """The pairs of a unit and those like it; ``each``: with every edge by itself."""
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
        devices, counts = self._others(number, unit)
        if devices:
            places = self._places[:, [party.index for party in devices]]
            together = (places == mine[:, None]).any(axis=0)
            told = (PEER, Relation.device(" elsewhere"))
            yield from self._classes(unit, units, devices, counts, together, told, each=False)

    def _others(self, number: int, unit: int) -> tuple[list[Party], IntArray]:
        """One device of every class, the unit apart, and how many there are."""
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
                groups = self._by_kinds(unit, [parties[int(i)] for i in chosen], chosen)
            for group in groups:
                count = units * int(counts[group].sum())
                yield PairClass(unit, parties[int(group[0])], relation, count)

    def _numbers(self, unit: int, parties: Sequence[Party]) -> Iterator[IntArray]:
        """Of every era, what kind of a pair the unit is with each of ``parties``."""
        for kinds in self.kinds:
            yield kinds.numbers(np.array([unit]), parties)[0]

    def _by_kinds(self, unit: int, parties: Sequence[Party], places: IntArray) -> list[IntArray]:
        """The places of parties that are of one kind in every round, together."""
        found: dict[Any, list[int]] = {}
        if parties:
            for place, key in zip(places, zip(*self._numbers(unit, parties), strict=True), strict=True):
                found.setdefault(tuple(map(int, key)), []).append(int(place))
        return [np.array(group) for group in found.values()]

    def _by_largest(self, unit: int, parties: Sequence[Party], places: IntArray) -> list[IntArray]:
        """The places with a finite figure, the largest first, and each other one; else by kinds.

        The smaller of two bounds is reported, and which it is may depend on the relation of neighbours. Edges
        without a bound may be trusted or not, so each stands for itself; other parties are all alike then.
        """
        if not len(places):
            return []
        totals = np.zeros((len(parties), 2, 2))
        for kinds, length in zip(self.kinds, self.lengths, strict=True):
            totals += int(length) * kinds.squares(unit, parties)
        figures = totals.min(axis=1)  # of each party, under either relation
        bounded = np.isfinite(figures).all(axis=1)
        bare = places[~bounded]
        alone = [bare[i : i + 1] for i in range(len(bare))] if parties[0].kind == "node" else [bare]
        if not bounded.any():
            return alone
        found, left = places[bounded], figures[bounded]
        largest = np.flatnonzero((left >= left.max(axis=0)).all(axis=1))
        if not len(largest):
            return self._by_kinds(unit, parties, places)
        first = int(largest[0])
        group = np.concatenate([found[first : first + 1], np.delete(found, first)])
        return [group, *(one for one in alone if len(one))]

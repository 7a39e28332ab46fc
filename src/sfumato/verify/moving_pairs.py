"""Pairs of a device and an observer where devices move, or trust changes, and rows that stand for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.moving_exposures import CheckedMovingTree
from sfumato.verify.parties import Party, kind_and_index, require_index_below
from sfumato.verify.read import Json


class CheckedMovingPairs:
    """Whether rows stand for all pairs of a run whose devices move, none with more than its row says.

    Units are alike that are under one edge in every era. Where everybody takes part, the rows about one unit
    and observers placed alike (an edge that is ever above it, one that never is, ...) stand for the pairs
    if at least as many pairs as lie above any row's μ² are stood for by rows above it. Where participants are
    drawn, a row stands for pairs that no era tells apart.
    """

    def __init__(self, facts: CheckedMovingTree, relation: str) -> None:
        self.facts, self.eras, self.relation = facts, facts.eras, relation
        self.count = int(facts.eras[0].devices.sum())
        self.places = [tuple(era.leaf_of(device) for era in self.eras) for device in range(self.count)]
        edges = range(len(facts.eras[0].devices))
        self.observers: list[Party] = [("public", 0, 0), ("node", 0, 0), *(("node", 1, e) for e in edges)]
        self.observers += [("device", 2, device) for device in range(self.count)]

    def _placement_of(self, unit: int, party: Party) -> str:
        """How an observer is placed towards a unit over all eras.

        "public" or "node" for the cloud; else "node" or "device" with " near" or " elsewhere" behind it.
        """
        who, tier, _ = party
        near = "near" if self.facts.is_near(unit, party) else "elsewhere"
        return who if who == "public" or tier == 0 else f"{who} {near}"

    def _squared_mu(self, unit: int, party: Party) -> float:
        """Σ μ² over all rounds of ``unit`` towards ``party``, by flow or cut, whichever gives less."""
        rounds = np.array([read.count(era.ledger["rounds"]) for era in self.eras])
        squares = np.stack([era.squared_mu_of_round(unit, party, self.relation) for era in self.eras])
        return float((rounds @ squares).min())

    def problems(self, rows: Sequence[Json]) -> Iterator[str]:
        """Yield a line where rows omit pairs, or are charged less than a pair that they stand for."""
        stated: dict[Any, list[tuple[Any, int]]] = {}
        drawn = self.eras[0].ledger["draw"]["kind"] != "all" or "batches" in self.eras[0].ledger
        figure_of: Callable[[int, Party], Any] = self._key_in_eras if drawn else self._squared_mu
        for row in rows:
            unit, party = kind_and_index(row["unit"])[1], self.facts.party_named(row["observer"])
            require_index_below(row["unit"], unit, self.count)
            key = self.places[unit], self._placement_of(unit, party)
            found = figure_of(unit, party)
            stated.setdefault(key, []).append((found, read.count(row["stands_for"])))
        alike = Counter(self.places)
        units = {place: self.places.index(place) for place in alike}
        for place, unit in units.items():
            there: dict[Any, list[tuple[Any, int]]] = {}
            for party in self.observers:
                if party != ("device", 2, unit):
                    found = figure_of(unit, party)
                    key = place, self._placement_of(unit, party)
                    there.setdefault(key, []).append((found, alike[place]))
            for key in there.keys() | {key for key in stated if key[0] == place}:
                yield from self._count_problems(unit, key[1], stated.get(key, []), there.get(key, []), drawn)

    def key_of(self, unit: int, party: Party) -> Any:
        """A hashable key of device ``unit`` and ``party``; equal for pairs charged alike in every era."""
        return self.places[unit], self._placement_of(unit, party), self._key_in_eras(unit, party)

    def unit_classes(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Yield the classes of devices under the same edges in every era, with the pairs of one of each.

        Yields:
            The numbers of the devices of a class; and for one of them the number of observers, other than
            itself, by the key of the pair (`key_of`).
        """
        alike: dict[Any, list[int]] = {}
        for device, place in enumerate(self.places):
            alike.setdefault(place, []).append(device)
        for units in alike.values():
            others = (party for party in self.observers if party != ("device", 2, units[0]))
            yield units, Counter(self.key_of(units[0], party) for party in others)

    def _key_in_eras(self, unit: int, party: Party) -> Any:
        """The keys of ``unit`` and ``party`` in the trees of all eras, in order, as one hashable key."""
        return tuple(era.symmetry.key_of(unit, party) for era in self.eras)

    @staticmethod
    def _count_problems(
        unit: int, placed: str, rows: list[tuple[Any, int]], pairs: list[tuple[Any, int]], drawn: bool
    ) -> Iterator[str]:
        """Yield a line where rows about ``unit`` and observers placed as ``placed`` stand for other pairs.

        Args:
            rows: (figure, count) of the rows; the figure is a key where participants are drawn, else μ².
            pairs: the same of the pairs that there are.
            drawn: whether participants are drawn; then every key must be there as often.
        """
        what = f"privacy.json: stands_for: device:{unit} towards observers placed as {placed}"
        total, wanted = sum(n for _, n in rows), sum(n for _, n in pairs)
        if total != wanted:
            yield f"{what}: stated {total}; there are {wanted}"
        elif drawn:
            if _total_counts(rows) != _total_counts(pairs):
                yield f"{what}: rows are not about these pairs as often as there are such"
        else:
            for level, _ in rows:
                above = level * (1 + ROUNDING)
                held, there = (sum(n for f, n in found if f > above) for found in (rows, pairs))
                if there > held:
                    yield f"{what}: {there} pairs have a larger figure than a row; rows stand for {held}"
                    return


def _total_counts(counted: Iterable[tuple[Any, int]]) -> Counter[Any]:
    """Key to the sum of its counts, from (key, count) pairs."""
    found = Counter[Any]()
    for key, count in counted:
        found[key] += count
    return found

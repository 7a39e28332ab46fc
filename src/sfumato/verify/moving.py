"""Devices that move, or trust that changes: the facts of every era, and the pairs that rows stand for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sfumato.verify import read
from sfumato.verify.comparison import ROUNDING
from sfumato.verify.draws import Draw
from sfumato.verify.parties import Party, kind_and_index, require_index_below
from sfumato.verify.read import Array, Json, UnknownKindError
from sfumato.verify.releases import ExpectedRelease
from sfumato.verify.tree_exposures import CheckedTree
from sfumato.verify.tree_pairs import CheckedTreePairs


class CheckedMovingTree:
    """Edges under a cloud whose devices move, or whose trust changes: a tree for every era, in order."""

    def __init__(self, ledger: Json) -> None:
        self.ledger = ledger
        self.eras = [EraFacts(era) for era in ledger["eras"]]

    @property
    def pair_count(self) -> int:
        """Number of ordered pairs of a device and an observer: aggregator, public or other device."""
        return self.eras[0].pair_count

    def party_named(self, name: str) -> Party:
        """The party (kind, tier, index) of an observer's name, such as ``edge:2``.

        Raises:
            ValueError: there is no such party.
        """
        return self.eras[0].party_named(name)

    def is_near(self, unit: int, party: Party) -> bool:
        """Whether, in any era, ``party`` is an aggregator above ``unit`` or a device under the same leaf."""
        return any(era.is_near(unit, party) for era in self.eras)

    def exposure_problems(
        self, bound: str, cert: Json, draws: Sequence[Draw], unit: int, coalition: Sequence[Party]
    ) -> Iterator[str]:
        """Yield a line for each mismatch between what a bound charges and the releases exposed in an era.

        Args:
            bound: ``flow`` or ``cut``; any other raises `UnknownKindError`.
            cert: what the certificate states of this bound.
            draws: the certificate's draws, one an era.
            unit: index of the device.
            coalition: who observes together.
        """
        if len(draws) != len(self.eras):
            yield f"exposed set: it has {len(draws)} draws; there are {len(self.eras)} eras"
            return
        if bound not in ("flow", "cut"):
            raise UnknownKindError(f"bound: this checker has no rule for the kind {bound!r} in a tree")
        wanted = [(era.flow if bound == "flow" else era.cut)(unit, coalition) for era in self.eras]
        owners = _most_noise_by_owner(one for releases in wanted for one in releases)
        for facts, draw, releases in zip(self.eras, draws, wanted, strict=True):
            where = f"from round {facts.ledger['from_round']}"
            allowed = [one._replace(noise=owners[_release_key(one)]) for one in releases]
            for problem in facts.exposure_problems(bound, cert, [draw], unit, coalition, allowed):
                yield f"{where}: {problem}"
            for stated, one in zip(draw.releases, releases, strict=False):
                if read.figure(stated["variance"]) > float(one.noise.sum()) * (1 + ROUNDING) + 1e-300:
                    least = float(one.noise.sum())
                    yield f"{where}: {one.name}: variance: {stated['variance']}; the facts leave {least:.9g}"


def _release_key(release: ExpectedRelease) -> tuple[str, ...]:
    """A key that is equal for releases that a certificate lists once: name, vector and rounded figures."""
    figures = (release.own, release.others, float(release.noise.sum()))
    return (release.name, release.vector, *(f"{figure:.9g}" for figure in figures))


def _most_noise_by_owner(releases: Iterable[ExpectedRelease]) -> dict[tuple[str, ...], Array]:
    """For each release key the largest variance by owner (devices, aggregators, channel) over the eras.

    Equal releases of several eras may have the same total from different owners.
    """
    found: dict[tuple[str, ...], Array] = {}
    for one in releases:
        found[_release_key(one)] = np.maximum(found.get(_release_key(one), np.zeros(3)), one.noise)
    return found


class EraFacts(CheckedTree):
    """The rounds of one tree; what is charged is computed once for all observers that are placed alike."""

    def __init__(self, ledger: Json) -> None:
        super().__init__(ledger)
        self.symmetry = CheckedTreePairs(self)
        self._charged: dict[Any, list[ExpectedRelease]] = {}

    def flow(self, unit: int, coalition: Sequence[Party]) -> list[ExpectedRelease]:
        """The releases of a round that the flow bound charges in this era, cached; see `CheckedTree.flow`."""
        return self._computed_once("flow", super().flow, unit, coalition)

    def cut(self, unit: int, coalition: Sequence[Party]) -> list[ExpectedRelease]:
        """The releases of a round that the cut bound charges in this era, cached; see `CheckedTree.cut`."""
        return self._computed_once("cut", super().cut, unit, coalition)

    def _computed_once(
        self, bound: str, charged: Callable[..., list[ExpectedRelease]], unit: int, coalition: Sequence[Party]
    ) -> list[ExpectedRelease]:
        """``charged(unit, coalition)``, computed once for all pairs of one leaf that are alike.

        Args:
            bound: name of the bound, for the key of the cache.
            charged: `CheckedTree.flow` or `CheckedTree.cut`.
            unit: index of the device.
            coalition: who observes it; several are computed anew each time.
        """
        if len(coalition) > 1:
            return charged(unit, coalition)
        key = bound, self.leaf_of(unit), self.symmetry.key_of(unit, coalition[0])
        if key not in self._charged:
            self._charged[key] = charged(unit, coalition)
        return self._charged[key]

    def squared_mu_of_round(self, unit: int, party: Party, relation: str) -> Array:
        """Σ μ² over one round of a device towards a party, ``[2]``: by the flow and by the cut bound."""
        charged = self.flow(unit, [party]), self.cut(unit, [party])
        return np.array([math.fsum(one.squared_mu(relation) for one in releases) for releases in charged])


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
        """Σ μ² over all rounds, under the smaller of the flow and the cut bound."""
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
        """A hashable key of a device and an observer, equal for pairs that are charged alike in every era."""
        return self.places[unit], self._placement_of(unit, party), self._key_in_eras(unit, party)

    def units(self) -> Iterator[tuple[list[int], Counter[Any]]]:
        """Yield (devices under the same edge in every era, number of pairs of one of them by `key_of`)."""
        alike: dict[Any, list[int]] = {}
        for device, place in enumerate(self.places):
            alike.setdefault(place, []).append(device)
        for units in alike.values():
            others = (party for party in self.observers if party != ("device", 2, units[0]))
            yield units, Counter(self.key_of(units[0], party) for party in others)

    def _key_in_eras(self, unit: int, party: Party) -> Any:
        """The keys of a pair in the trees of all eras, in order, as one hashable key."""
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

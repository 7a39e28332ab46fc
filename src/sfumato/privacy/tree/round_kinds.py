"""Kinds of pairs in one round of edges under a cloud: what is computed for one of a kind holds for all.

Two pairs of one observer are of a kind if the units' edges are alike, the observers' edges are alike, and
both observers are (or both are not) of the unit's own edge: permuting edges that are alike, with their
devices, maps one pair to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.privacy.neighbours import Neighbours
from sfumato.privacy.observers import Party
from sfumato.privacy.records import RecordReleases
from sfumato.privacy.release import Exposure, Release, total_mu_squared
from sfumato.privacy.tree.releases import TreeReleases

Kind: TypeAlias = tuple[int, str, int]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Owned: TypeAlias = dict[str, dict[Release, dict[str, float]]]
_Found = TypeVar("_Found")
_OWN = -1


@dataclass(frozen=True, eq=False)
class RoundKinds:
    """What a pair meets in one round, computed once for all pairs of a kind.

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
        """A number for every edge, equal where edges are alike."""
        return self.releases.leaf_classes

    def kind_of(self, unit: int, coalition: Sequence[Party]) -> Kind | None:
        """The kind of a pair; ``None`` for coalitions of several parties."""
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
        """The flow and the cut exposure of one round; releases bear the name of the unit's own edge."""
        return self._once(self._exposures, self.releases.exposures, unit, coalition)

    def record_releases(self, unit: int, coalition: Sequence[Party]) -> tuple[RecordReleases, ...]:
        """The flow exposure of one round by draws of batches."""
        return self._once(self._of_records, self.releases.record_releases, unit, coalition)

    def noise_by_owner(self, unit: int, coalition: Sequence[Party]) -> Owned:
        """The variance of every release of the round by kind of owner."""
        return self._once(self._owned, self.releases.noise_by_owner, unit, coalition)

    def _once(
        self,
        kept: dict[tuple[int, Kind], _Found],
        compute: Callable[[int, Sequence[Party]], _Found],
        unit: int,
        coalition: Sequence[Party],
    ) -> _Found:
        """What ``compute`` gives for a pair, from ``kept`` where one of its kind was asked for before."""
        kind = self.kind_of(unit, coalition)
        if kind is None:
            return compute(unit, coalition)
        named = self.releases.leaf_of(unit), kind
        if named not in kept:  # of one pair, so that sums are added up in one order and are equal
            kept[named] = compute(*self._looked_at.setdefault(named, (unit, coalition)))
        return kept[named]

    def numbers(self, units: IntArray, parties: Sequence[Party]) -> IntArray:
        """A number for every pair of the units and parties, equal only where pairs are of a kind.

        Args:
            units: ``[U]``.
            parties: all edges, or all devices ``[P]``.
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

    def squares(self, unit: int, parties: Sequence[Party]) -> FloatArray:
        """μ² of the round towards each of ``parties``, all edges or all devices: ``[P, 2, 2]``.

        Of the flow and the cut bound, under zero-out and under replace.
        """
        numbers, table = self.numbers(np.array([unit]), parties)[0], self._tables[parties[0].kind]
        found = table[numbers]
        if np.isnan(found).any():
            for number, place in zip(*np.unique(numbers, return_index=True), strict=True):
                if np.isnan(table[number]).any():
                    table[number] = self._squares(unit, parties[int(place)])
            found = table[numbers]
        return np.asarray(found, dtype=np.float64)

    @cached_property
    def _tables(self) -> dict[str, FloatArray]:
        """Squares by number of a kind of pairs, with edges and with devices; NaN where not computed."""
        kinds = int(self.alike.max()) + 1
        return {who: np.full((kinds * (kinds + 1), 2, 2), np.nan) for who in ("node", "device")}

    def _squares(self, unit: int, party: Party) -> list[list[float]]:
        relations: tuple[Neighbours, Neighbours] = ("zero-out", "replace")
        found = self.exposures(unit, (party,))
        return [[total_mu_squared(one.releases, how) for how in relations] for one in found]

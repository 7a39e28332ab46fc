"""Symmetries of a group structure: which kinds of workers are in the same position.

A symmetry is a permutation of the groups that keeps their parameters and the number of workers of every kind,
in every era. Equivalent positions are found by colour refinement with individualisation, as graph
isomorphism programs do; every symmetry found is checked before it is used, and where the search gives up,
positions count as different. So classes may be too many, never too few.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from sfumato.privacy.clocks import IntArray, Kinds

_MOST_REFINEMENTS = 400
_MOST_VERTICES = 3000


def orbits(kinds: Kinds, colours: Sequence[Hashable]) -> tuple[IntArray, IntArray]:
    """A number for every kind of worker and every group, equal only where a symmetry maps one to the other.

    Args:
        kinds: of workers, with their groups.
        colours: the parameters of every group; symmetries keep them.
    """
    search = _Search(kinds, colours)
    found = search.generators()
    of_kinds = [search.of_kinds(mapping) for mapping in found]
    return _joined(len(kinds.size), of_kinds), _joined(kinds.group_count, found)


def _joined(count: int, mappings: Sequence[Sequence[int]]) -> IntArray:
    """Smallest member of every orbit under ``mappings`` of ``0..count - 1``."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    tails = np.tile(np.arange(count), len(mappings))
    heads = np.array(mappings, dtype=np.int64).ravel()
    arcs = coo_array((np.ones(len(tails), dtype=np.int8), (tails, heads)), shape=(count, count))
    labels = connected_components(arcs, directed=False)[1]
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    smallest: IntArray = first[inverse].astype(np.int64)
    return smallest


class _Search:
    """Groups are vertices 0..M-1, kinds of workers the vertices after; an edge is labelled with its era."""

    def __init__(self, kinds: Kinds, colours: Sequence[Hashable]) -> None:
        self.kinds, self.colours = kinds, colours
        self.groups = kinds.group_count
        self.names: dict[Hashable, int] = {}
        self.left = _MOST_REFINEMENTS
        self.edges: list[list[tuple[int, int]]] = [[] for _ in range(self.groups + len(kinds.size))]
        for kind, rows in enumerate(kinds.groups):
            for era, groups in enumerate(rows):
                for group in groups:
                    self.edges[group].append((era, self.groups + kind))
                    self.edges[self.groups + kind].append((era, group))
        start = [self._name(("group", colour)) for colour in colours]
        self.start = start + [self._name(("kind", int(size))) for size in kinds.size]
        self.index = {rows: kind for kind, rows in enumerate(kinds.groups)}

    def generators(self) -> list[list[int]]:
        """Symmetries, as maps of groups, that connect all groups found to be in the same position."""
        if len(self.edges) > _MOST_VERTICES:
            return []
        base = self._refined(self.start, self.start)
        if base is None:
            return []
        place = base[0]
        found: list[list[int]] = []
        orbit = list(range(self.groups))
        for group in range(self.groups):
            alike = [g for g in range(group) if place[g] == place[group] and orbit[g] == g]
            for first in alike:
                if orbit[group] != group:
                    break
                mapping = self._extend(place, place, first, group)
                if mapping is None:
                    continue
                found.append(mapping)
                for g, image in enumerate(mapping):  # join orbits
                    low, high = sorted((orbit[g], orbit[image]))
                    orbit = [low if o == high else o for o in orbit]
        return found

    def _name(self, key: Hashable) -> int:
        return self.names.setdefault(key, len(self.names))

    def _step(self, place: list[int]) -> list[int]:
        return [
            self._name((own, tuple(sorted((era, place[other]) for era, other in self.edges[vertex]))))
            for vertex, own in enumerate(place)
        ]

    def _refined(self, one: list[int], two: list[int]) -> tuple[list[int], list[int]] | None:
        """Both colourings refined until stable; none once they differ, or when the search has done enough."""
        if self.left <= 0:
            return None
        self.left -= 1
        while True:
            classes = len(set(one))
            one, two = self._step(one), self._step(two)
            if sorted(one) != sorted(two):
                return None
            if len(set(one)) == classes:
                return one, two

    def _extend(self, one: list[int], two: list[int], source: int, image: int) -> list[int] | None:
        """A symmetry of the groups that takes ``source`` to ``image`` and respects the colourings."""
        one, two = list(one), list(two)
        one[source] = two[image] = self._name(("chosen", len(self.names)))
        refined = self._refined(one, two)
        if refined is None:
            return None
        one, two = refined
        members: dict[int, list[int]] = {}
        for group in range(self.groups):
            members.setdefault(one[group], []).append(group)
        several = [cell for cell in members.values() if len(cell) > 1]
        if not several:
            at = {place: group for group, place in enumerate(two[: self.groups])}
            mapping = [at[place] for place in one[: self.groups]]
            return mapping if self._keeps(mapping) else None
        cell = min(several, key=len)
        source = cell[0]
        images = [g for g in range(self.groups) if two[g] == one[source]]
        images.sort(key=lambda g: (g - source - 1) % self.groups)  # one turn joins more than many swaps
        for image in images:
            whole = self._extend(one, two, source, image)
            if whole is not None or self.left <= 0:
                return whole
        return None

    def of_kinds(self, mapping: list[int]) -> list[int]:
        """The kinds that ``mapping`` takes each kind to."""
        return [self.index.get(self._image(rows, mapping), -1) for rows in self.kinds.groups]

    def _image(self, rows: tuple[tuple[int, ...], ...], mapping: list[int]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(sorted(mapping[group] for group in groups)) for groups in rows)

    def _keeps(self, mapping: list[int]) -> bool:
        images = self.of_kinds(mapping)
        size = self.kinds.size
        return (
            sorted(images) == list(range(len(images)))
            and all(size[kind] == size[image] for kind, image in enumerate(images))
            and all(self.colours[g] == self.colours[image] for g, image in enumerate(mapping))
        )

"""Symmetries of a group structure: which kinds of workers are in the same position.

A symmetry is a permutation of the groups that keeps their parameters and the number of workers of every
kind, in every era. Equivalent positions are found by colour refinement with individualisation, as graph
isomorphism programs do; every symmetry found is checked before it is used, and where the search gives up,
positions count as different. So classes may be too many, never too few. Classes are then checked once more
against the structure itself: a class too few would give one worker another's ε.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.privacy.groups.vector_clocks import IntArray, WorkerKinds

_MOST_REFINEMENTS = 400
_MOST_VERTICES = 3000
_MOST_FIXED = 4

Symmetry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""A symmetry as the images of all groups, and of all kinds of workers."""


def generators(kinds: WorkerKinds, colours: Sequence[Hashable]) -> tuple[Symmetry, ...]:
    """Generators of the symmetry group, as far as it is found: permutations from which the orbits follow.

    Args:
        kinds: of workers, with their groups.
        colours: for each group a value (of clip, noise, draw); only groups of equal values are exchanged.

    Returns:
        Symmetries that connect all groups in the same position; () if no two are found to be.
    """
    search = _Search(kinds, colours)
    return tuple((tuple(mapping), tuple(search.of_kinds(mapping))) for mapping in search.generators())


def orbits(kinds: WorkerKinds, colours: Sequence[Hashable]) -> tuple[IntArray, IntArray]:
    """For each kind of workers and each group, the smallest member of its orbit under the symmetries.

    Args:
        kinds: of workers, with their groups.
        colours: the parameters of every group; symmetries keep them.

    Returns:
        That kind for every kind, ``[kinds]``, and that group for every group, ``[groups]``.

    Raises:
        RuntimeError: an internal error: orbits were found that the structure itself contradicts.
    """
    return orbits_under(generators(kinds, colours), kinds, colours)


def orbits_under(
    found: Sequence[Symmetry], kinds: WorkerKinds, colours: Sequence[Hashable]
) -> tuple[IntArray, IntArray]:
    """For each kind of workers and each group, the smallest member of its orbit under known symmetries.

    `orbits` searches for the symmetries first.

    Args:
        found: symmetries, such as those of `generators`; orbits are those under all that they generate. With
            () every kind and every group is alone in its orbit.
        kinds: of workers, with their groups.
        colours: the parameters of every group; symmetries keep them.

    Returns:
        The smallest kind in the orbit of every kind, ``[kinds]``, and the smallest group in that of every
        group, ``[groups]``.

    Raises:
        RuntimeError: an internal error: orbits were found that the structure itself contradicts.
    """
    of_kinds = _smallest_of_orbits(len(kinds.size), [images for _, images in found])
    of_groups = _smallest_of_orbits(kinds.group_count, [images for images, _ in found])
    _require_alike("kinds of workers", of_kinds, _kind_invariants(kinds, of_groups))
    _require_alike("groups", of_groups, _group_invariants(kinds, colours, of_kinds))
    return of_kinds, of_groups


def with_stabilisers(
    found: Sequence[Symmetry], kinds: WorkerKinds, colours: Sequence[Hashable]
) -> tuple[Symmetry, ...]:
    """``found`` and, after them, symmetries that fix one group, then two, and so on.

    Together they generate more of the symmetries than ``found`` does, which only connects groups; all, if it
    does not end early. It ends when nothing moves any more, or after four fixed groups.

    Args:
        found: symmetries, from `generators`, which connect all groups in the same position.
        kinds: of workers, with their groups.
        colours: the parameters of every group; symmetries keep them.
    """
    chain, last, marked = [*found], found, list(colours)
    for level in range(_MOST_FIXED):
        moved = [group for group in range(kinds.group_count) if any(m[group] != group for m, _ in last)]
        if not moved:
            break
        marked[moved[0]] = ("fixed", level)
        last = generators(kinds, marked)
        chain += last
    return tuple(chain)


def _smallest_of_orbits(count: int, mappings: Sequence[Sequence[int]]) -> IntArray:
    """Find, for each of ``0..count - 1``, the smallest member of its orbit under permutations, ``[count]``.

    ``mappings``: the permutations, each the image of every member. No graph library is used: in scipy 1.11.1
    and 1.11.2 `connected_components` gives one label to all for int64 indices, which merges every orbit, and
    raises nothing.
    """
    permutations = [np.asarray(mapping, dtype=np.int64) for mapping in mappings]
    label = np.arange(count, dtype=np.int64)
    while True:
        before = label
        # it ends when every label is at most that of its image, so all labels of a cycle are equal
        for images in permutations:
            label = np.minimum(label, label[images])
        label = label[label]  # reaches as far in few passes as the longest cycle is
        if np.array_equal(label, before):
            return label


def _kind_invariants(kinds: WorkerKinds, of_groups: IntArray) -> list[Hashable]:
    """Invariants of every kind of worker: its size, and in every era the orbits of its groups, sorted.

    ``of_groups``: orbit of every group, ``[groups]``.
    """
    orbit = of_groups.tolist()
    return [
        (int(size), tuple(tuple(sorted(orbit[group] for group in groups)) for groups in eras))
        for size, eras in zip(kinds.size, kinds.groups, strict=True)
    ]


def _group_invariants(kinds: WorkerKinds, colours: Sequence[Hashable], of_kinds: IntArray) -> list[Hashable]:
    """Invariants of every group: its colour, and the era and orbit of every kind of worker in it.

    Args:
        kinds: of workers.
        colours: of the groups.
        of_kinds: orbit of every kind of worker, ``[kinds]``.
    """
    members: list[list[tuple[int, int]]] = [[] for _ in colours]
    for orbit, eras in zip(of_kinds.tolist(), kinds.groups, strict=True):
        for era, groups in enumerate(eras):
            for group in groups:
                members[group].append((era, orbit))
    return [(colour, tuple(sorted(found))) for colour, found in zip(colours, members, strict=True)]


def _require_alike(what: str, orbit: IntArray, facts: Sequence[Hashable]) -> None:
    """Raise a RuntimeError unless every member has the facts of the smallest member of its orbit.

    Args:
        what: the members are, for the error.
        orbit: of every member, the number of the smallest one in its orbit, ``[members]``.
        facts: of every member, in the same order.
    """
    for member, first in enumerate(orbit.tolist()):
        if not 0 <= first <= member or facts[first] != facts[member]:
            raise RuntimeError(
                f"{what}: number {member} was put into one class with number {first}, which is not alike; "
                "no privacy figure can be given"
            )


def _hashed(values: IntArray) -> npt.NDArray[np.uint64]:
    """Every integer hashed to 64 bits, in the shape of ``values``.

    By the mixing function of SplitMix64 (Steele, Lea and Flood 2014).
    """
    mixed = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class _Parts(NamedTuple):
    """Vertices by colour, and by what they see of their neighbours' colours.

    Attributes:
        members: the vertices, part after part.
        colour: of every part.
        seen: what its members see.
        sizes: how many members it has.
        whole: how many members all parts of its colour have.
        is_largest: whether it is the largest of its colour, the first of equals.
    """

    members: IntArray
    colour: IntArray
    seen: npt.NDArray[np.uint64]
    sizes: IntArray
    whole: IntArray
    is_largest: npt.NDArray[np.bool_]


class _Search:
    """Groups are vertices 0..M-1, kinds of workers the vertices after; an edge is labelled with its era."""

    def __init__(self, kinds: WorkerKinds, colours: Sequence[Hashable]) -> None:
        """Build the graph of groups and ``kinds`` of workers.

        ``colours``: the parameters of every group, which symmetries keep.
        """
        self.kinds, self.colours = kinds, colours
        self.groups = kinds.group_count
        self.left = _MOST_REFINEMENTS
        edges = [
            (era, *ends)
            for kind, rows in enumerate(kinds.groups)
            for era, groups in enumerate(rows)
            for group in groups
            for ends in ((group, self.groups + kind), (self.groups + kind, group))
        ]
        self.era, vertex, self.other = (
            np.array(sorted(edges, key=itemgetter(1)), dtype=np.int64).reshape(-1, 3).T
        )
        names: dict[Hashable, int] = {}
        own = [("group", colour) for colour in colours] + [("kind", int(size)) for size in kinds.size]
        self.start = np.array([names.setdefault(key, len(names)) for key in own], dtype=np.int64)
        self.degree = np.bincount(vertex, minlength=len(self.start))
        self.first = np.cumsum(self.degree) - self.degree
        self.index = {rows: kind for kind, rows in enumerate(kinds.groups)}

    def generators(self) -> list[list[int]]:
        """Symmetries (lists of the image of every group) that connect all groups in the same position.

        Empty where all groups differ, there are more than 3000 vertices, or the search gave up; some may be
        missing where it gave up later.
        """
        if len(self.start) > _MOST_VERTICES:
            return []
        base = self._refine_both(self.start, self.start)
        if base is None:
            return []
        place = base[0]
        found: list[list[int]] = []
        orbit = np.arange(self.groups)
        firsts: defaultdict[int, list[int]] = defaultdict(list)  # of the orbits at every place
        for group, here in enumerate(place[: self.groups].tolist()):
            alike = [g for g in firsts[here] if orbit[g] == g]
            firsts[here] = [*alike, group]
            for first in alike:
                if orbit[group] != group:
                    break
                mapping = self._extend_to_symmetry(place, place, first, group)
                if mapping is None:
                    continue
                found.append(mapping)
                for g, image in enumerate(mapping):  # join orbits
                    low, high = sorted((orbit[g], orbit[image]))
                    if low < high:
                        orbit[orbit == high] = low
        return found

    def _refine_both(self, one: IntArray, two: IntArray) -> tuple[IntArray, IntArray] | None:
        """Refine two colourings in step until they are stable, so that vertices of one colour look alike.

        Vertices of one colour are told apart by their neighbours' colours. The largest part of a colour
        keeps it, so that in the next round only neighbours of the other parts have to be looked at.

        Args:
            one: colour of every vertex, ``[vertices]``.
            two: another colouring; equal numbers mean the same colour in both.

        Returns:
            The stable colourings; ``None`` once a colour has unequally many vertices in them, or after too
            much work.
        """
        if self.left <= 0:
            return None
        self.left -= 1
        colour = np.unique(np.concatenate([one, two]), return_inverse=True)[1].ravel().astype(np.int64)
        copy = np.repeat([1, -1], len(one))
        size = np.bincount(colour, minlength=len(colour))
        if np.bincount(colour, copy).any():
            return None
        seen, colours = np.zeros(len(colour), dtype=np.uint64), int(colour.max()) + 1  # of every colour
        changed = np.arange(len(colour))
        while len(near := np.unique(self._edges_of(changed)[0])):
            parts = self._parts(near, colour)
            is_whole = parts.whole == size[parts.colour]  # else the others of a colour keep it
            keeps = np.where(is_whole, parts.is_largest, parts.seen == seen[parts.colour])
            seen[parts.colour[keeps]] = parts.seen[keeps]
            new = np.flatnonzero(~keeps)
            changed = parts.members[np.repeat(~keeps, parts.sizes)]
            size -= np.bincount(colour[changed], minlength=len(size))
            colour[changed] = np.repeat(np.arange(colours, colours + len(new)), parts.sizes[new])
            size[colours : colours + len(new)] = parts.sizes[new]
            seen[colours : colours + len(new)] = parts.seen[new]
            colours += len(new)
            if np.bincount(colour[changed], copy[changed]).any():
                return None
        return colour[: len(one)], colour[len(one) :]

    def _edges_of(self, vertices: IntArray) -> tuple[IntArray, IntArray]:
        """List the other ends and the eras of all edges of ``vertices``, one vertex after the other.

        The vertices ``[n]`` are those of two copies of the graph: a copy's edges stay in it. Both results are
        as long as the degrees of ``vertices`` add up to.
        """
        place = vertices % len(self.start)
        degree = self.degree[place]
        offset = np.repeat(self.first[place] - np.cumsum(degree) + degree, degree)
        edges = offset + np.arange(len(offset))
        return self.other[edges] + np.repeat(vertices - place, degree), self.era[edges]

    def _parts(self, vertices: IntArray, colour: IntArray) -> _Parts:
        """Divide ``vertices``, all with edges, by their own ``colour`` and those of their neighbours.

        The neighbours' colours of a vertex, with multiplicity, are compared by a sum of hashes. Where two
        sums are equal by chance, unlike vertices stay together, and a symmetry may not be found; none is
        wrongly found.
        """
        ends, eras = self._edges_of(vertices)
        hashed = _hashed(colour[ends] * len(self.kinds.groups[0]) + eras)
        degree = self.degree[vertices % len(self.start)]
        seen = np.add.reduceat(hashed, np.cumsum(degree) - degree)
        own = colour[vertices]
        order = np.lexsort((seen, own))
        own, seen = own[order], seen[order]
        starts = np.flatnonzero(np.append(True, (np.diff(own) != 0) | (np.diff(seen) != 0)))
        count = np.diff(np.append(starts, len(order)))
        own, seen = own[starts], seen[starts]
        of_colour, number = np.unique(own, return_inverse=True)
        whole = np.bincount(number, count)[number].astype(np.int64)
        is_largest = np.zeros(len(own), dtype=np.bool_)
        by_size = np.lexsort((-count, own))
        is_largest[by_size[np.searchsorted(own[by_size], of_colour)]] = True
        return _Parts(vertices[order], own, seen, count, whole, is_largest)

    def _extend_to_symmetry(self, one: IntArray, two: IntArray, source: int, image: int) -> list[int] | None:
        """Search for a symmetry that takes group ``source`` to ``image`` and colours ``one`` to ``two``.

        Args:
            one: colour of every vertex, ``[vertices]``.
            two: the colours that their images must have.
            source: number of a group.
            image: number of the group that it is taken to.

        Returns:
            The image of every group; ``None`` where there is no such symmetry or the search gave up.
        """
        one, two = one.copy(), two.copy()
        one[source] = two[image] = 2 * len(one)  # no other vertex has this colour
        refined = self._refine_both(one, two)
        if refined is None:
            return None
        one, two = refined
        members: dict[int, list[int]] = {}
        for group, place in enumerate(one[: self.groups].tolist()):
            members.setdefault(place, []).append(group)
        several = [cell for cell in members.values() if len(cell) > 1]
        if not several:
            at = {place: group for group, place in enumerate(two[: self.groups].tolist())}
            mapping = [at[place] for place in one[: self.groups].tolist()]
            return mapping if self._is_symmetry(mapping) else None
        cell = min(several, key=len)
        source = cell[0]
        images = np.flatnonzero(two[: self.groups] == one[source]).tolist()
        images.sort(key=lambda g: (g - source - 1) % self.groups)  # a rotation joins more than a swap
        for image in images:
            whole = self._extend_to_symmetry(one, two, source, image)
            if whole is not None or self.left <= 0:
                return whole
        return None

    def of_kinds(self, mapping: list[int]) -> list[int]:
        """The kind that ``mapping``, of groups, takes each kind of worker to; -1 where there is none."""
        return [self.index.get(self._image_of_groups(rows, mapping), -1) for rows in self.kinds.groups]

    def _image_of_groups(
        self, rows: tuple[tuple[int, ...], ...], mapping: list[int]
    ) -> tuple[tuple[int, ...], ...]:
        """Map the groups of one kind, ``rows`` for every era, by ``mapping``; sorted in every era.

        ``mapping``: the image of every group.
        """
        return tuple(tuple(sorted(mapping[group] for group in groups)) for groups in rows)

    def _is_symmetry(self, mapping: list[int]) -> bool:
        """Say whether ``mapping`` permutes kinds of workers and keeps sizes and colours.

        ``mapping``: the image of every group.
        """
        images = self.of_kinds(mapping)
        size = self.kinds.size
        return (
            sorted(images) == list(range(len(images)))
            and all(size[kind] == size[image] for kind, image in enumerate(images))
            and all(self.colours[g] == self.colours[image] for g, image in enumerate(mapping))
        )

"""How models travel through overlapping groups: who links what, block by block, and vector clocks.

Release (m, τ) is the noised sum of group m at step τ; model θ_m^{τ+1} is made of the releases (m, 1..τ). A
worker that trains in m starts from θ_m^τ, or, at a *merging* step, from the mean of the models θ_h^τ of all
its groups h. So the dependence of one model on another group is always on a *prefix* of that group's
releases, and one integer says all:

    clock[g, m] = number of releases of m that group g's current model depends on.

A merging step takes, for every group, the largest clocks among the groups that it shares a worker with; a
step of m sets clock[m, m] to that step. *The target is no link*: a worker that only the target connects to
reaches nobody, since the target's own message moves by its clip norm at most, whatever it started from
(docs/leakage.md, "the target is no link").

Steps are epochs for protocols that release every epoch, intervals for those that release once an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

UNREACHED = np.iinfo(np.int64).max


@dataclass(frozen=True)
class GroupStructure:
    """Who is in which group from ``first_epoch`` (1 is the first) until the next era begins.

    Attributes:
        first_epoch: when it begins.
        groups: the devices of every group; as many groups in every era, some of them maybe empty.
    """

    first_epoch: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Block:
    """Steps in a row in which nothing but the first can merge and nobody changes groups.

    Attributes:
        first: its first step, from 1.
        length: number of steps.
        merges: whether workers start its first step from the mean of their groups' models.
        era: which structure holds.
    """

    first: int
    length: int
    merges: bool
    era: int


def split_at_merges_and_eras(steps: int, period: int, era_starts: Sequence[int]) -> tuple[Block, ...]:
    """Divide the steps ``1..steps`` into blocks, one from every merging step and start of an era on.

    Args:
        steps: number of steps.
        period: steps from one merging to the next; the first merges.
        era_starts: first step of every era, ascending.
    """
    if steps < 1:
        return ()
    starts = sorted(set(range(1, steps + 1, period)) | {start for start in era_starts if start <= steps})
    ends = [*starts[1:], steps + 1]
    eras = np.searchsorted(np.asarray(era_starts), starts, side="right") - 1
    return tuple(
        Block(first, end - first, (first - 1) % period == 0, int(era))
        for first, end, era in zip(starts, ends, eras, strict=True)
    )


def next_unlike_blocks(blocks: Sequence[Block]) -> IntArray:
    """For every block, the number of the next one that differs in length, era or merging, ``[blocks]``.

    It is the number of blocks if there is none.
    """
    out = np.full(len(blocks), len(blocks), dtype=np.int64)
    for number in range(len(blocks) - 2, -1, -1):
        here, after = blocks[number], blocks[number + 1]
        same = (here.length, here.merges, here.era) == (after.length, after.merges, after.era)
        out[number] = out[number + 1] if same else number + 1
    return out


def as_bits(groups: BoolArray) -> int:
    """A set of groups, given as a mask ``[groups]``, as a whole number with bit g set for group g."""
    return sum(1 << group for group in np.flatnonzero(groups).tolist())


def groups_of_bits(bits: int) -> Iterator[int]:
    """Yield the groups whose bits are set in ``bits``, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


@dataclass(frozen=True, eq=False)
class Bridges:
    """The kinds of workers that are in several groups in one era, and so link them.

    Attributes:
        size: number of workers of every kind.
        groups: the groups of each kind, one kind after the other; in a network of many groups they are few.
        first: the place in ``groups`` where those of each kind begin.
    """

    size: npt.NDArray[np.float64]
    groups: IntArray
    first: IntArray

    @cached_property
    def kind_at(self) -> IntArray:
        """The number of the kind of each of `groups`, from 0, int64, of the shape of `groups`."""
        counts = np.diff(self.first, append=len(self.groups))
        return np.repeat(np.arange(len(self.first)), counts)

    @cached_property
    def into(self) -> dict[int, list[tuple[float, int]]]:
        """By group, its kinds of linking workers: how many workers, and their other groups `as_bits`."""
        found: dict[int, list[tuple[float, int]]] = {}
        ends = np.append(self.first[1:], len(self.groups))[: len(self.size)]
        for size, first, end in zip(self.size.tolist(), self.first, ends, strict=True):
            members = self.groups[first:end].tolist()
            together = sum(1 << group for group in members)
            for group in members:
                found.setdefault(group, []).append((size, together & ~(1 << group)))
        return found


@dataclass(frozen=True)
class WorkerKinds:
    """Workers told apart only by their groups, over all eras.

    Attributes:
        of: the kind of every device.
        size: number of devices of every kind.
        groups: for every kind and era, the groups it is in.
        group_count: number of groups.
    """

    of: IntArray
    size: IntArray
    groups: tuple[tuple[tuple[int, ...], ...], ...]
    group_count: int

    @classmethod
    def among(cls, devices: int, eras: Sequence[GroupStructure]) -> WorkerKinds:
        """The kinds of ``devices`` workers: those of a kind are in the same groups in all of ``eras``.

        Kinds are numbered in the order of their first members.
        """
        belongs: list[list[list[int]]] = [[[] for _ in eras] for _ in range(devices)]
        for number, era in enumerate(eras):
            for group, members in enumerate(era.groups):
                for device in members:
                    belongs[device][number].append(group)
        found: dict[tuple[tuple[int, ...], ...], int] = {}
        of = np.array(
            [found.setdefault(tuple(map(tuple, rows)), len(found)) for rows in belongs], dtype=np.int64
        )
        size = np.bincount(of, minlength=len(found)).astype(np.int64)
        return cls(of, size, tuple(found), len(eras[0].groups))

    @cached_property
    def first(self) -> IntArray:
        """The number of the first device of every kind, ``[kinds]``."""
        return np.unique(self.of, return_index=True)[1].astype(np.int64)

    @cached_property
    def incidence(self) -> tuple[BoolArray, ...]:
        """For every era, a mask ``[kinds, groups]``: which kind of workers is in which group."""
        out = []
        for era in range(len(self.groups[0])):
            matrix = np.zeros((len(self.size), self.group_count), dtype=np.bool_)
            for kind, rows in enumerate(self.groups):
                matrix[kind, list(rows[era])] = True
            out.append(matrix)
        return tuple(out)

    def links(self, era: int, others: IntArray) -> BoolArray:
        """Mask ``[groups, groups]`` of the groups that share a worker in ``era``; each is linked to itself.

        ``others``: how many workers of each kind count, ``[kinds]``.
        """
        present = self.incidence[era][(others > 0) & (self.incidence[era].sum(axis=1) > 1)].astype(np.float32)
        shared: BoolArray = (present.T @ present) > 0
        return shared | np.eye(self.group_count, dtype=np.bool_)

    def without(self, kind: int) -> IntArray:
        """The number of devices of every kind, ``[kinds]``, with one device of ``kind`` left out."""
        rest = self.size.copy()
        rest[kind] -= 1
        return rest

    @cached_property
    def bridges(self) -> Callable[[int], tuple[Bridges, ...]]:
        """A function from a kind of workers to the `Bridges` of every era, without one worker of that kind.

        The worker left out is the unit, which is no link for its own data. The last four results are kept.
        """
        return lru_cache(4)(self._bridges_without)

    def _bridges_without(self, kind: int) -> tuple[Bridges, ...]:
        """List, for every era, the kinds of workers in several groups, without one worker of ``kind``."""
        others = self.without(kind)
        found = []
        for incidence in self.incidence:
            several = (incidence.sum(axis=1) > 1) & (others > 0)
            size = others[several].astype(np.float64)
            kinds, groups = np.nonzero(incidence[several])
            first = np.searchsorted(kinds, np.arange(len(size)))
            found.append(Bridges(size, groups, first))
        return tuple(found)


def hops_between_groups(links: BoolArray) -> IntArray:
    """Lengths of shortest paths over ``links``, a symmetric mask; int64 ``[groups, groups]``.

    0 from a group to itself, and `UNREACHED` where there is no path.

    Raises:
        RuntimeError: an internal error: scipy found a way longer than the shortest, which would hide
            releases. None is, if each is 0 from a group to itself and changes by at most 1 over a link.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    hops = shortest_path(csr_array(links.astype(np.int8)), directed=False, unweighted=True)
    one, other = np.nonzero(np.triu(links, 1))
    steps_of_one = (((row[one] <= row[other] + 1) & (row[other] <= row[one] + 1)).all() for row in hops)
    if hops.shape != links.shape or hops.diagonal().any() or not all(steps_of_one):
        raise RuntimeError(
            "hops between groups: scipy's shortest_path found ways that are not the shortest; "
            "no privacy figure can be given"
        )
    reached = np.isfinite(hops)
    return np.where(reached, np.where(reached, hops, 0).astype(np.int64), UNREACHED)


def prefixes_closed_form(hops: IntArray, steps: int, period: int) -> IntArray:
    """For groups that never change: how many releases of group m the last model of group g depends on.

    At merging step 1 + period·k a model takes in what its neighbours knew then; the last one is k = K − 1, K
    = ⌈steps / period⌉, so information from ρ hops away stops at period·(K − ρ) releases:

        steps                                 if ρ = 0,
        period · max(0, ⌈steps/period⌉ − ρ)   otherwise.

    Args:
        hops: ρ, int64 ``[groups, groups]``; `UNREACHED` gives 0.
        steps: number of steps of training.
        period: steps from one merging to the next.

    Returns:
        Int64 ``[groups, groups]``: g by row, m by column.
    """
    last = -(-steps // period)
    away = np.minimum(hops, last)
    return np.where(hops == 0, steps, period * (last - away))


def clocks(blocks: Sequence[Block], links: Sequence[BoolArray], until: Sequence[int] | IntArray) -> IntArray:
    """Vector clocks: how many releases of group m the model of group g depends on after step ``until[g]``.

    Args:
        blocks: steps of training, cut where models can cross between groups or workers change groups.
        links: for every era, mask ``[groups, groups]`` of groups that share a worker other than the target.
        until: for every group a step at the end of a block, or 0 for its initial model.

    Returns:
        Int64 ``[groups, groups]``: g by row, m by column.
    """
    groups = len(until)
    clock = np.zeros((groups, groups), dtype=np.int64)
    at_stop = np.zeros_like(clock)
    neighbours = [[np.flatnonzero(row) for row in era] for era in links]
    stop = np.asarray(until)
    for block in blocks:
        if block.merges:
            clock = np.stack([clock[near].max(axis=0) for near in neighbours[block.era]])
        last = block.first + block.length - 1
        np.fill_diagonal(clock, last)
        at_stop[stop == last] = clock[stop == last]
    return at_stop

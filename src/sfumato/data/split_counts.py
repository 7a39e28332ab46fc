"""The arithmetic of dividing examples: who gets how many of what, before any row is touched.

A rule turns a ``Pool`` (what there is) into a ``SplitPlan`` (what each part gets). Plans need counts
only, so ``account`` can make them without data; dealing actual rows by a plan comes after.
Parts are weighed by whole numbers: a device weighs 1, an edge as much as it has devices.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import RowNumbers
from sfumato.errors import SpecError

IntArray = NDArray[np.int64]

# Beyond it the sums inside NumPy's sampler overflow, and the proportions are equal long before.
_LARGEST_ALPHA = 1e9


@dataclass(frozen=True, eq=False)
class Pool:
    """How many examples there are to divide, and of which kinds.

    Attributes:
        examples: all of them.
        class_counts: of each label [K]; ``None`` if not known.
        group_counts: of each natural group [G]; ``None`` if not known.
    """

    examples: int
    class_counts: IntArray | None = None
    group_counts: IntArray | None = None


class SplitPlan(Protocol):
    """What each part gets."""

    @property
    def sizes(self) -> IntArray:
        """Number of examples of each part, ``[parts]``."""
        ...

    def pools(self) -> list[Pool]:
        """What each part has (examples, and labels or groups as far as known), to be divided further."""
        ...

    def deal(
        self, rows: RowNumbers, labels: RowNumbers, groups: IntArray | None, rng: np.random.Generator
    ) -> RowNumbers:
        """Deal rows out by this plan: all rows of part 0, then of part 1, and so on, ``[sum of sizes]``.

        Args:
            rows: row numbers to deal [n].
            labels: label of each of ``rows`` [n].
            groups: natural group of each of ``rows`` [n]; ``None`` where there are none.
            rng: source of the random order.
        """
        ...


@dataclass(frozen=True, eq=False)
class SizeSplitPlan:
    """Each part gets so many examples, whichever."""

    sizes: IntArray

    def pools(self) -> list[Pool]:
        """What each part has: its number of examples; labels and groups are not known."""
        return [Pool(size) for size in self.sizes.tolist()]

    def deal(
        self, rows: RowNumbers, labels: RowNumbers, groups: IntArray | None, rng: np.random.Generator
    ) -> RowNumbers:
        """Deal rows in random order, whatever their labels; see `SplitPlan.deal`."""
        return rng.permutation(rows)[: int(self.sizes.sum())]


@dataclass(frozen=True, eq=False)
class ClassSplitPlan:
    """Each part gets ``table[part, label]`` examples of each label."""

    table: IntArray

    @property
    def sizes(self) -> IntArray:
        """Number of examples of each part, ``[parts]``."""
        sizes: IntArray = self.table.sum(axis=1)
        return sizes

    def pools(self) -> list[Pool]:
        """What each part has: its number of examples of each label."""
        return [Pool(int(counts.sum()), counts) for counts in self.table]

    def deal(
        self, rows: RowNumbers, labels: RowNumbers, groups: IntArray | None, rng: np.random.Generator
    ) -> RowNumbers:
        """Deal to each part as many rows of each label as planned, in random order; see `SplitPlan.deal`."""
        order = rng.permutation(len(rows))
        order = order[np.argsort(labels[order], kind="stable")]
        # One row more, for what nobody gets: it sorts to the end and is cut off.
        unheld = np.bincount(labels, minlength=self.table.shape[1]) - self.table.sum(axis=0)
        parts = np.arange(len(self.table) + 1)
        owners = np.concatenate([np.repeat(parts, column) for column in np.vstack([self.table, unheld]).T])
        return rows[order][np.argsort(owners, kind="stable")][: int(self.table.sum())]


@dataclass(frozen=True, eq=False)
class GroupSplitPlan:
    """Each natural group goes whole to part ``owners[group]``, or to nobody (-1)."""

    owners: IntArray
    group_counts: IntArray
    parts: int

    @property
    def sizes(self) -> IntArray:
        """Number of examples of each part, ``[parts]``."""
        held = self.owners >= 0
        sums = np.bincount(self.owners[held], self.group_counts[held], minlength=self.parts)
        return sums.astype(np.int64)

    def pools(self) -> list[Pool]:
        """What each part has: its number of examples of each natural group, 0 for groups of other parts."""
        kept = [np.where(self.owners == part, self.group_counts, 0) for part in range(self.parts)]
        return [Pool(int(counts.sum()), None, counts) for counts in kept]

    def deal(
        self, rows: RowNumbers, labels: RowNumbers, groups: IntArray | None, rng: np.random.Generator
    ) -> RowNumbers:
        """Deal to each part the rows of its groups, in the order of ``rows``; see `SplitPlan.deal`."""
        assert groups is not None  # this plan was made from their counts
        owners = self.owners.astype(np.int32)[groups]
        order = np.argsort(owners, kind="stable")
        return rows[order][int(np.count_nonzero(owners < 0)) :]


def apportion(total: int, weights: IntArray) -> IntArray:
    """Whole shares of ``total`` in proportion to ``weights`` [parts], each off by less than 1, [parts]."""
    cuts = np.cumsum(weights) * total // max(int(weights.sum()), 1)
    return np.diff(cuts, prepend=0)


def plan_equal(pool: Pool, weights: IntArray) -> SizeSplitPlan:
    """A split in which sizes are in proportion to ``weights`` [parts], up to rounding by less than 1."""
    return SizeSplitPlan(apportion(pool.examples, weights))


def plan_lognormal(
    pool: Pool, weights: IntArray, *, sigma: float, floor: int, rng: np.random.Generator
) -> SizeSplitPlan:
    """A split of the whole ``pool`` into parts of ``weights[p]`` devices each, with sizes that are drawn.

    First every part gets ``floor`` examples for each of its devices, or an equal number for each device where
    there are fewer. What is left is divided in proportion to ``weights[p]`` times exp(``sigma`` * N(0, 1)).
    """
    weight = int(weights.sum())
    floors = min(floor, pool.examples // weight) * weights
    shares = np.cumsum(weights * rng.lognormal(0.0, sigma, len(weights)))
    rest = pool.examples - int(floors.sum())
    cuts = np.floor(shares / shares[-1] * rest).astype(np.int64)
    cuts[-1] = rest
    return SizeSplitPlan(np.diff(cuts, prepend=0) + floors)


def plan_labels(
    counts: IntArray,
    weights: IntArray,
    *,
    labels_each: int,
    allow_empty: bool,
    place: str,
    rng: np.random.Generator,
) -> ClassSplitPlan:
    """A split in which each part has ``labels_each`` labels, each label equally many parts (within 1).

    The examples of a label are cut into equal shards (within 1) for the parts that hold it, larger for
    heavier parts. All examples are used, but for labels nobody holds where parts times ``labels_each`` is
    less than the number of labels. Labels are given out one after the other: a part that still needs r of the
    L labels left gets the next with probability r / L (systematic sampling in random order): both promises
    are kept exactly, all combinations of labels can occur.

    Args:
        counts: examples of each label [K].
        weights: devices of each part [parts].
        labels_each: labels of a part.
        allow_empty: whether a shard may be empty.
        place: key of the rule in the spec, for messages.
        rng: source of the random order.

    Raises:
        SpecError: there are fewer labels, or some shard would be empty and ``allow_empty`` is not set.
    """
    present = rng.permutation(np.flatnonzero(counts))
    if labels_each > len(present):
        raise SpecError(
            f"{place}.labels_per_device", labels_each, f"at most {len(present)}, the labels there are"
        )
    table = np.zeros((len(weights), len(counts)), np.int64)
    needed = np.full(len(weights), labels_each, np.int64)
    for left, label in zip(range(len(present), 0, -1), present, strict=True):
        order = rng.permutation(len(weights))
        steps = (np.cumsum(needed[order]) + rng.integers(left)) // left
        holders = order[np.diff(steps, prepend=0) > 0]
        needed[holders] -= 1
        # In proportion to what a holder weighs; the order is random, so is who gets one more.
        table[holders, label] = apportion(int(counts[label]), weights[holders])
        if not allow_empty and len(holders) and table[holders, label].min() == 0:
            raise SpecError(
                f"{place}.labels_per_device",
                labels_each,
                f"fewer labels or devices, or empty_devices: allow; the {counts[label]:,} examples of "
                f"label {label} do not go round {len(holders):,} devices",
            )
    return ClassSplitPlan(table)


def plan_dirichlet(
    counts: IntArray,
    weights: IntArray,
    *,
    alpha: float,
    shards: int | None = None,
    floor: int,
    place: str,
    rng: np.random.Generator,
) -> ClassSplitPlan:
    """Each label is divided over the parts by proportions from Dirichlet(alpha); small alpha is uneven.

    The size rule is that of Li et al. (NIID-Bench) and Flower's self-balancing: a part that already holds its
    even share of all examples gets nothing of later labels (they come in random order). Then parts with fewer
    than ``floor`` a device are filled up from the largest labels of the parts with most to spare. All
    examples are used, but for those of the shards that no part gets.

    Args:
        counts: examples of each label [K].
        weights: devices of each part [parts].
        alpha: of the Dirichlet distribution, above 0.
        shards: equal shares that the examples are divided into, of which the parts get the first; ``None``:
            as many as parts, weighed like these.
        floor: fewest examples a device.
        place: key of the rule in the spec, for messages.
        rng: source of randomness.

    Raises:
        SpecError: there are fewer than ``floor`` examples a device, fewer shards than parts, or ``alpha`` is
            too large.
    """
    if shards is not None and shards < len(weights):
        raise SpecError(
            f"{place}.shards", shards, f"must be at least {len(weights):,}, the number of devices"
        )
    wanted = len(weights)
    if shards is not None:
        weights = np.ones(shards, np.int64)
    if alpha > _LARGEST_ALPHA:
        raise SpecError(f"{place}.alpha", alpha, "a positive number up to 1e9")
    parts, total, weight = len(weights), int(counts.sum()), int(weights.sum())
    if floor * weight > total:
        raise SpecError(
            f"{place}.min_examples",
            floor,
            f"at most {total // weight} ({total:,} examples, {weight:,} devices)",
        )
    table = np.zeros((parts, len(counts)), np.int64)
    sizes = np.zeros(parts, np.int64)
    for label in rng.permutation(np.flatnonzero(counts)):
        open_ = np.flatnonzero(sizes * weight < weights * total)
        proportions = np.cumsum(rng.dirichlet(alpha * weights[open_] * (parts / weight)))
        cuts = np.floor(proportions / proportions[-1] * counts[label] + 0.5).astype(np.int64)
        table[open_, label] = np.diff(cuts, prepend=0)
        sizes = table.sum(axis=1)
    _fill_up(table, floor * weights)
    return ClassSplitPlan(table[:wanted])


def plan_natural_groups(
    counts: IntArray,
    weights: IntArray,
    *,
    groups_each: int | None,
    floor: int,
    allow_empty: bool,
    place: str,
    rng: np.random.Generator,
) -> GroupSplitPlan:
    """Natural groups in random order, dealt whole to the parts: all of them, or ``groups_each`` a device.

    Args:
        counts: examples of each group [G].
        weights: devices of each part [parts].
        groups_each: groups of a device; ``None``: all groups are dealt out.
        floor: groups with fewer examples are left out.
        allow_empty: whether a device may get no group.
        place: key of the rule in the spec, for messages.
        rng: source of the random order.

    Raises:
        SpecError: there are fewer groups than are needed, and ``allow_empty`` is not set.
    """
    usable = rng.permutation(np.flatnonzero(counts >= max(floor, 1)))
    needed = len(weights) if groups_each is None else groups_each * int(weights.sum())
    if needed > len(usable) and not allow_empty:
        raise SpecError(
            f"{place}.kind",
            "natural",
            f"at least {needed:,} natural groups for so many devices; there are {len(usable):,}"
            + (f" of {floor:,} examples or more" if floor > 1 else ""),
        )
    shares = apportion(len(usable), weights) if groups_each is None else groups_each * weights
    owners = np.full(len(counts), -1, np.int64)
    dealt = np.repeat(np.arange(len(weights)), shares)[: len(usable)]
    owners[usable[: len(dealt)]] = dealt
    return GroupSplitPlan(owners, counts, len(weights))


def _fill_up(table: IntArray, floors: IntArray) -> None:
    """Move examples in ``table`` ``[parts, labels]``, in place, until every part has at least its floor.

    They come from the part with most to spare, of the label that it has most of. ``floors``: ``[parts]``.
    """
    spare = table.sum(axis=1) - floors
    short = np.flatnonzero(spare < 0)
    if not len(short):
        return
    donors = [(-int(spare[part]), int(part)) for part in np.flatnonzero(spare > 0)]
    heapq.heapify(donors)
    for part in short:
        while spare[part] < 0:
            surplus, donor = heapq.heappop(donors)
            label = int(table[donor].argmax())
            moved = min(-int(spare[part]), -surplus, int(table[donor, label]))
            table[donor, label] -= moved
            table[part, label] += moved
            spare[part] += moved
            if -surplus > moved:
                heapq.heappush(donors, (surplus + moved, donor))

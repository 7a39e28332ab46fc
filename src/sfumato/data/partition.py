"""Divides the training rows over devices by the rule that ``data.partition`` spells out.

Every draw comes from ``Stream.PARTITION``, so a seed fixes the partition. How many examples each
device gets follows from counts alone (``partition_sizes``); which rows they are needs the labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import RowNumbers, row_numbers
from sfumato.data.persons import first_row_of_each
from sfumato.data.split_counts import (
    ClassSplitPlan,
    IntArray,
    Pool,
    SplitPlan,
    plan_dirichlet,
    plan_equal,
    plan_labels,
    plan_lognormal,
    plan_natural_groups,
)
from sfumato.data.splits import count_occurrences
from sfumato.errors import SpecError
from sfumato.random import Stream, generator
from sfumato.spec.data import (
    DirichletPartition,
    FlowerPartition,
    IidPartition,
    LabelsPartition,
    NaturalPartition,
    PartitionRule,
    TwoLevelPartition,
)

Labels: TypeAlias = NDArray[np.integer[Any]]

PLACE = "data.partition"
_PLAN, _DEAL = 0, 1
_WHOLE, _INSIDE = 0, 1


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows of the training set by device, devices numbered over the whole tree, edge by edge.

    Attributes:
        rows: row numbers [used examples], device after device.
        offsets: [devices + 1]; device d holds ``rows[offsets[d]:offsets[d + 1]]``.
        persons: [persons + 1], where the rows of each person begin in ``rows``, and the end of all; ``None``
            where rows are not told apart by persons.
    """

    rows: RowNumbers
    offsets: IntArray
    persons: IntArray | None = None

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """Number of examples of each device, ``[devices]``."""
        return np.diff(self.offsets)

    def indices(self, device: int) -> IntArray:
        """Row numbers of the training set that ``device`` holds, ``[its examples]``, a copy in int64."""
        return self.rows[self.offsets[device] : self.offsets[device + 1]].astype(np.int64)

    def reordered(self, order: IntArray) -> Partition:
        """The partition in which device d holds what device ``order[d]`` holds in this one."""
        rows = [self.rows[self.offsets[share] : self.offsets[share + 1]] for share in order]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[order])]).astype(np.int64)
        held, starts = self.persons_of(order), None
        if held is not None:
            moved = [own[:-1] + offset for own, offset in zip(held, offsets[:-1], strict=True)]
            starts = np.concatenate([*moved, offsets[-1:]])
        return Partition(np.concatenate(rows) if rows else self.rows, offsets, starts)

    def persons_of(self, devices: Iterable[int]) -> list[IntArray] | None:
        """For each device: where in `indices` each person's rows begin, and where the last one's end.

        Counted from the device's first row, ``[persons + 1]`` each. ``None`` where the data name no persons.
        """
        if self.persons is None:
            return None
        found = np.searchsorted(self.persons, self.offsets)
        return [self.persons[found[d] : found[d + 1] + 1] - self.offsets[d] for d in devices]


def partition(
    labels: NDArray[np.integer[Any]],
    devices_per_edge: Sequence[int] | IntArray,
    rule: PartitionRule,
    *,
    seed: int,
    groups: NDArray[np.int64] | None = None,
    sites: NDArray[np.int64] | None = None,
) -> Partition:
    """Divide the rows with these ``labels`` [N] over devices.

    Args:
        labels: of the training rows, 0, 1, ...
        devices_per_edge: devices under each edge, at least one; of a star, the one number of all.
        rule: the section ``data.partition`` of a spec.
        seed: of the run.
        groups: natural group of each row [N], 0, 1, ...; needed by ``natural``.
        sites: the edge that each row belongs to [N], if the data say so; the rule then divides the rows of
            every edge over its devices.

    Raises:
        SpecError: the rule cannot be kept with these labels and devices.
        MissingExtraError: the rule is a partitioner of Flower, and flwr-datasets is not installed.
    """
    weights = np.asarray(devices_per_edge, np.int64)
    devices = int(weights.sum())
    step, inside = _steps(rule, seed)
    dealt: RowNumbers
    if isinstance(rule, FlowerPartition):
        from sfumato.data.flwr_partitioners import flower_partition

        name, options = rule.partitioner, rule.options
        dealt, sizes = flower_partition(name, labels, groups, devices, options, seed=seed, place=PLACE)
    elif sites is not None:
        by_site = np.argsort(sites, kind="stable")
        blocks = np.split(by_site, np.cumsum(np.bincount(sites, minlength=len(weights)))[:-1])
        dealt, sizes = step.deal_inside(blocks, labels, groups, weights)
    elif inside is None:
        dealt, sizes = step.deal(row_numbers(len(labels)), labels, groups, np.ones(devices, np.int64))
    else:
        by_edge, edge_sizes = step.deal(row_numbers(len(labels)), labels, groups, weights)
        blocks = np.split(by_edge, np.cumsum(edge_sizes)[:-1])
        dealt, sizes = inside.deal_inside(blocks, labels, groups, weights)
    _refuse_empty(rule, sizes, len(labels))
    return Partition(dealt, np.concatenate([[0], np.cumsum(sizes)]))


def partition_of_persons(
    persons: NDArray[np.int64],
    devices_per_edge: Sequence[int] | IntArray,
    rule: PartitionRule,
    *,
    seed: int,
    groups: NDArray[np.int64] | None = None,
    sites: NDArray[np.int64] | None = None,
) -> Partition:
    """Divide persons over devices, each with all of its rows.

    Args:
        persons: number of each training row's person [N], from 0.
        devices_per_edge: as of `partition`.
        rule: as of `partition`, but not by labels: a person has none.
        seed: of the run.
        groups: natural group of each row [N]; that of a person's first row counts.
        sites: the edge that each row belongs to [N]; that of a person's first row counts.

    Raises:
        SpecError: the rule cannot be kept with these persons and devices.
    """
    first, counts = first_row_of_each(persons), np.bincount(persons)
    dealt = partition(
        np.zeros(len(first), np.int64),
        devices_per_edge,
        rule,
        seed=seed,
        groups=None if groups is None else groups[first],
        sites=None if sites is None else sites[first],
    )
    by_person, before = np.argsort(persons, kind="stable"), np.cumsum(counts) - counts
    each = counts[dealt.rows]
    starts = np.concatenate([[0], np.cumsum(each)]).astype(np.int64)
    places = np.arange(starts[-1]) + np.repeat(before[dealt.rows] - starts[:-1], each)
    return Partition(by_person[places], starts[dealt.offsets], starts)


def partition_sizes(
    rule: PartitionRule,
    devices_per_edge: Sequence[int] | IntArray,
    *,
    examples: int,
    seed: int,
    class_counts: Sequence[int] | None = None,
    group_counts: Sequence[int] | None = None,
    site_counts: Sequence[int] | IntArray | None = None,
) -> IntArray | None:
    """How many examples `partition` would give each device, from counts alone.

    Args:
        rule: as for ``partition``.
        devices_per_edge: as for ``partition``.
        examples: training rows, N.
        seed: of the run.
        class_counts: training rows of each label, if known.
        group_counts: training rows of each natural group, if known.
        site_counts: training rows that belong to each edge, if the data say so.

    Returns:
        The sizes [devices], or ``None`` where the counts do not determine them: they were not given, a second
        level divides by labels or groups what the first did not, or Flower decides.

    Raises:
        SpecError: the rule cannot be kept.
    """
    if isinstance(rule, FlowerPartition):
        return None
    weights = np.asarray(devices_per_edge, np.int64)
    pool = Pool(
        examples,
        None if class_counts is None else np.asarray(class_counts, np.int64),
        None if group_counts is None else np.asarray(group_counts, np.int64),
    )
    step, inside = _steps(rule, seed)
    if site_counts is not None:
        sizes = step.sizes_inside([Pool(int(count)) for count in site_counts], weights)
    elif inside is None:
        plan = step.plan(pool, np.ones(int(weights.sum()), np.int64))
        sizes = None if plan is None else plan.sizes
    else:
        plan = step.plan(pool, weights)
        sizes = None if plan is None else inside.sizes_inside(plan.pools(), weights)
    if sizes is not None:
        _refuse_empty(rule, sizes, examples)
    return sizes


def planned_label_counts(
    rule: LabelsPartition | DirichletPartition, devices: int, class_counts: Sequence[int], *, seed: int
) -> IntArray:
    """Number of examples of each label that every device of a star gets by ``rule``, ``[devices, labels]``.

    Args:
        rule: how rows are divided among devices.
        devices: number of devices.
        class_counts: number of training rows of each label.
        seed: of the spec, which the division is drawn from.

    Raises:
        SpecError: the rule cannot be kept.
    """
    step, counts = _steps(rule, seed)[0], np.asarray(class_counts, np.int64)
    plan = step.plan(Pool(int(counts.sum()), counts), np.ones(devices, np.int64))
    assert isinstance(plan, ClassSplitPlan)  # as both rules make
    _refuse_empty(rule, plan.sizes, int(counts.sum()))
    return plan.table


def uses_every_row(rule: PartitionRule) -> bool:
    """Whether ``rule`` gives every training row to some device, however many rows and groups there are."""
    match rule:
        case TwoLevelPartition():
            return uses_every_row(rule.edge) and uses_every_row(rule.device)
        case NaturalPartition():
            return rule.groups_per_device is None and (rule.min_examples or 0) <= 1
        case DirichletPartition():
            return rule.shards is None
        case _:
            return isinstance(rule, IidPartition)


def _steps(rule: PartitionRule, seed: int) -> tuple[_Step, _Step | None]:
    """The division of all rows, and the division of the rows of every edge if the rule has two levels.

    ``seed``: of the run.
    """
    allow_empty = rule.empty_devices == "allow"
    if isinstance(rule, TwoLevelPartition):
        inside = _Step(rule.device, f"{PLACE}.device", allow_empty, seed)
        return _Step(rule.edge, f"{PLACE}.edge", allow_empty, seed), inside
    return _Step(rule, PLACE, allow_empty, seed), None


@dataclass(frozen=True)
class _Step:
    """One division by a rule: of all rows, or of the rows of one edge.

    Attributes:
        rule: of this division.
        place: of the rule in the spec.
        allow_empty: whether a part may get nothing, as the outer rule says.
        seed: of the run.
        key: the address of its draws within ``Stream.PARTITION``.
    """

    rule: PartitionRule
    place: str
    allow_empty: bool
    seed: int
    key: tuple[int, int] = (_WHOLE, 0)

    def plan(self, pool: Pool, weights: IntArray) -> SplitPlan | None:
        """How a pool is split into parts of these ``weights`` (devices of each).

        ``None`` if counts do not suffice.

        Raises:
            SpecError: the rule cannot be kept.
        """
        if not self.allow_empty and pool.examples < len(weights):
            # Before the rule itself: it would complain of what follows from this.
            raise _empty_devices_error(len(weights) - pool.examples, len(weights), pool.examples)
        rule, place = self.rule, self.place
        rng = generator(self.seed, Stream.PARTITION, *self.key, _PLAN)
        floor = getattr(rule, "min_examples", None)
        floor = int(not self.allow_empty) if floor is None else floor
        match rule:
            case IidPartition(size_sigma=0):
                return plan_equal(pool, weights)
            case IidPartition():
                return plan_lognormal(pool, weights, sigma=rule.size_sigma, floor=floor, rng=rng)
            case LabelsPartition() if pool.class_counts is not None:
                each, allow = rule.labels_per_device, self.allow_empty
                counts = pool.class_counts
                return plan_labels(counts, weights, labels_each=each, allow_empty=allow, place=place, rng=rng)
            case DirichletPartition(alpha=alpha, shards=shards):
                if shards is not None and (place != PLACE or self.key[0] == _INSIDE):
                    raise SpecError(f"{place}.shards", shards, "goes with one division of all examples")
                if (known := pool.class_counts) is not None:
                    part = partial(plan_dirichlet, alpha=alpha, shards=shards, floor=floor)
                    return part(known, weights, place=place, rng=rng)
            case NaturalPartition() if pool.group_counts is not None:
                return plan_natural_groups(
                    pool.group_counts,
                    weights,
                    groups_each=rule.groups_per_device,
                    floor=floor,
                    allow_empty=self.allow_empty,
                    place=place,
                    rng=rng,
                )
        return None

    def deal(
        self, rows: RowNumbers, labels: Labels, groups: IntArray | None, weights: IntArray
    ) -> tuple[RowNumbers, IntArray]:
        """Deal ``rows`` to parts of ``weights`` ``[parts]``; returns them part by part, and their sizes."""
        if isinstance(self.rule, IidPartition):  # asks for neither, and there may be very many
            own_labels, own_groups, pool = labels[:0], None, Pool(len(rows))
        else:
            own_labels, own_groups = labels[rows], None if groups is None else groups[rows]
            group_counts = None if own_groups is None else count_occurrences(own_groups)
            pool = Pool(len(rows), count_occurrences(own_labels), group_counts)
        plan = self.plan(pool, weights)
        if plan is None:
            raise no_groups_error(self.place, self.rule)
        rng = generator(self.seed, Stream.PARTITION, *self.key, _DEAL)
        return plan.deal(rows, own_labels, own_groups, rng), plan.sizes

    def sizes_inside(self, pools: Iterable[Pool], weights: IntArray) -> IntArray | None:
        """Sizes of all devices, ``[devices]``, where each edge divides its pool over its own.

        ``None`` if counts do not suffice. ``weights``: devices of each edge.
        """
        sizes = []
        for edge, (pool, count) in enumerate(zip(pools, weights.tolist(), strict=True)):
            plan = replace(self, key=(_INSIDE, edge)).plan(pool, np.ones(count, np.int64))
            if plan is None:
                return None
            sizes.append(plan.sizes)
        return np.concatenate(sizes)

    def deal_inside(
        self, blocks: Sequence[RowNumbers], labels: Labels, groups: IntArray | None, weights: IntArray
    ) -> tuple[RowNumbers, IntArray]:
        """Deal the rows of each edge, ``blocks``, to its devices; returns rows and sizes, edge by edge."""
        inside = [
            replace(self, key=(_INSIDE, edge)).deal(block, labels, groups, np.ones(count, np.int64))
            for edge, (block, count) in enumerate(zip(blocks, weights.tolist(), strict=True))
        ]
        return np.concatenate([part for part, _ in inside]), np.concatenate([counts for _, counts in inside])


def no_groups_error(place: str, rule: PartitionRule) -> SpecError:
    """The error for a rule by natural groups where the data have none; ``place``: the key of the rule."""
    return SpecError(f"{place}.kind", rule.kind, "a data set with a group column (group_column)")


def _refuse_empty(rule: PartitionRule, sizes: IntArray, examples: int) -> None:
    """Raise `SpecError` if a device has no examples, unless the rule allows that."""
    empty = int(np.count_nonzero(sizes == 0))
    if empty and rule.empty_devices == "refuse":
        raise _empty_devices_error(empty, len(sizes), examples)


def _empty_devices_error(empty: int, parts: int, examples: int) -> SpecError:
    """The error for ``empty`` of ``parts`` devices that would hold none of ``examples`` examples."""
    return SpecError(
        f"{PLACE}.empty_devices",
        "refuse",
        f"{empty:,} of {parts:,} devices would hold none of {examples:,} examples; "
        "use fewer devices, or 'allow'",
    )

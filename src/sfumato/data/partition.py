"""Divides the training rows over devices by a rule.

Every draw comes from ``Stream.PARTITION``, so a seed fixes the partition. How many examples each
device gets follows from counts alone (``partition_sizes``); which rows they are needs the labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.data.flwr_partitioners import FLOWER_PREFIX, flower_partition
from sfumato.data.partition_rule import PartitionRule
from sfumato.data.split_counts import (
    IntArray,
    Pool,
    SplitPlan,
    plan_dirichlet,
    plan_equal,
    plan_groups,
    plan_labels,
    plan_lognormal,
)
from sfumato.errors import SpecError
from sfumato.random import Stream, generator

_PLAN, _DEAL = 0, 1
_WHOLE, _INSIDE = 0, 1


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows of the training set by device, devices numbered over the whole tree, edge by edge.

    Attributes:
        rows: row numbers [used examples], device after device.
        offsets: [devices + 1]; device d holds ``rows[offsets[d]:offsets[d + 1]]``.
    """

    rows: IntArray
    offsets: IntArray

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """Examples of each device [devices]."""
        return np.diff(self.offsets)

    def indices(self, device: int) -> IntArray:
        """Row numbers of one device, a view."""
        return self.rows[self.offsets[device] : self.offsets[device + 1]]

    def reordered(self, order: IntArray) -> Partition:
        """Device d holds what device ``order[d]`` held."""
        rows = [self.indices(int(share)) for share in order]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[order])]).astype(np.int64)
        return Partition(np.concatenate(rows) if rows else self.rows, offsets)


def partition(
    labels: NDArray[np.int64],
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
        devices_per_edge: devices under each edge; of a star, the one number of all.
        rule: how.
        seed: of the run.
        groups: natural group of each row [N], 0, 1, ...; needed by ``natural``.
        sites: the edge that each row belongs to [N], if the data say so; the rule then divides the rows of
            every edge over its devices.

    Raises:
        SpecError: the rule cannot be kept with these labels and devices.
    """
    weights = _weights(devices_per_edge)
    devices = int(weights.sum())
    rows = np.arange(len(labels), dtype=np.int64)
    if rule.kind.startswith(FLOWER_PREFIX):
        dealt, sizes = flower_partition(
            rule.kind, labels, groups, devices, rule.options, seed=seed, place=rule.place
        )
    elif sites is not None:
        blocks = [np.flatnonzero(sites == place) for place in range(len(weights))]
        dealt, sizes = _deal_inside(rule, blocks, labels, groups, weights, rule, seed)
    elif rule.edge is None or rule.device is None:
        dealt, sizes = _deal(rule, rows, labels, groups, np.ones(devices, np.int64), rule, (seed, _WHOLE, 0))
    else:
        by_edge, edge_sizes = _deal(rule.edge, rows, labels, groups, weights, rule, (seed, _WHOLE, 0))
        blocks = np.split(by_edge, np.cumsum(edge_sizes)[:-1])
        dealt, sizes = _deal_inside(rule.device, blocks, labels, groups, weights, rule, seed)
    _refuse_empty(rule, sizes, len(labels))
    return Partition(dealt, np.concatenate([[0], np.cumsum(sizes)]))


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
    """The sizes ``partition`` would give each device [devices], from counts alone.

    Args:
        rule: as for ``partition``.
        devices_per_edge: as for ``partition``.
        examples: training rows, N.
        seed: of the run.
        class_counts: training rows of each label, if known.
        group_counts: training rows of each natural group, if known.
        site_counts: training rows that belong to each edge, if the data say so.

    Returns:
        The sizes, or ``None`` where the counts do not settle them: they were not given, a second
        level divides by labels or groups what the first did not, or Flower decides.

    Raises:
        SpecError: the rule cannot be kept.
    """
    weights = _weights(devices_per_edge)
    devices = int(weights.sum())
    pool = Pool(
        examples,
        None if class_counts is None else np.asarray(class_counts, np.int64),
        None if group_counts is None else np.asarray(group_counts, np.int64),
    )
    if rule.kind.startswith(FLOWER_PREFIX):
        return None
    if site_counts is not None:
        pools = [Pool(int(count), None, None) for count in site_counts]
        sizes = _sizes_inside(rule, pools, weights, rule, seed)
    elif rule.edge is None or rule.device is None:
        plan = _plan(rule, pool, np.ones(devices, np.int64), rule, (seed, _WHOLE, 0))
        sizes = None if plan is None else plan.sizes
    else:
        sizes = _two_level_sizes(rule, rule.edge, rule.device, pool, weights, seed)
    if sizes is not None:
        _refuse_empty(rule, sizes, examples)
    return sizes


def mean_examples(
    rule: PartitionRule,
    devices_per_edge: Sequence[int] | IntArray,
    *,
    examples: int,
    seed: int,
    class_counts: Sequence[int] | None = None,
    group_counts: Sequence[int] | None = None,
    site_counts: Sequence[int] | IntArray | None = None,
) -> float | None:
    """Mean number of examples of a device, from counts alone; arguments as ``partition_sizes``.

    Where the sizes are not settled it is ``examples`` / devices if the rule always gives out every
    row, else ``None``: then only ``partition`` tells.

    Raises:
        SpecError: the rule cannot be kept.
    """
    sizes = partition_sizes(
        rule,
        devices_per_edge,
        examples=examples,
        seed=seed,
        class_counts=class_counts,
        group_counts=group_counts,
        site_counts=site_counts,
    )
    if sizes is not None:
        return float(sizes.mean())
    rules = [part for part in (rule.edge, rule.device) if part is not None] or [rule]
    return examples / int(_weights(devices_per_edge).sum()) if all(map(_gives_out_all, rules)) else None


def _gives_out_all(rule: PartitionRule) -> bool:
    if rule.kind == "natural":
        return rule.groups_per_device is None and (rule.min_examples or 0) <= 1
    return rule.kind in ("iid", "dirichlet")


def _two_level_sizes(
    rule: PartitionRule, edge: PartitionRule, device: PartitionRule, pool: Pool, weights: IntArray, seed: int
) -> IntArray | None:
    outer = _plan(edge, pool, weights, rule, (seed, _WHOLE, 0))
    if outer is None:
        return None
    return _sizes_inside(device, outer.pools(), weights, rule, seed)


def _sizes_inside(
    device: PartitionRule, pools: Iterable[Pool], weights: IntArray, rule: PartitionRule, seed: int
) -> IntArray | None:
    """Sizes of all devices where each edge divides a pool of its own over them."""
    sizes = []
    for number, (part, count) in enumerate(zip(pools, weights.tolist(), strict=True)):
        inner = _plan(device, part, np.ones(count, np.int64), rule, (seed, _INSIDE, number))
        if inner is None:
            return None
        sizes.append(inner.sizes)
    return np.concatenate(sizes)


def _deal_inside(
    device: PartitionRule,
    blocks: Sequence[IntArray],
    labels: IntArray,
    groups: IntArray | None,
    weights: IntArray,
    rule: PartitionRule,
    seed: int,
) -> tuple[IntArray, IntArray]:
    """Rows in the order of all devices where each edge divides a block of its own over them, and sizes."""
    inside = [
        _deal(device, block, labels, groups, np.ones(count, np.int64), rule, (seed, _INSIDE, edge))
        for edge, (block, count) in enumerate(zip(blocks, weights.tolist(), strict=True))
    ]
    return np.concatenate([part for part, _ in inside]), np.concatenate([counts for _, counts in inside])


def _deal(
    rule: PartitionRule,
    rows: IntArray,
    labels: IntArray,
    groups: IntArray | None,
    weights: IntArray,
    outer: PartitionRule,
    address: tuple[int, int, int],
) -> tuple[IntArray, IntArray]:
    """Rows in the order of their parts, and the parts' sizes."""
    own_labels = labels[rows]
    own_groups = None if groups is None else groups[rows]
    pool = Pool(
        len(rows),
        np.bincount(own_labels),
        None if own_groups is None else np.bincount(own_groups),
    )
    plan = _plan(rule, pool, weights, outer, address)
    if plan is None:
        raise no_groups(rule)
    seed, *key = address
    return plan.deal(rows, own_labels, own_groups, generator(seed, Stream.PARTITION, *key, _DEAL)), plan.sizes


def no_groups(rule: PartitionRule) -> SpecError:
    """For a rule by natural groups, and data that have none."""
    return SpecError(f"{rule.place}.kind", rule.kind, "a data set with a group column (group_column)")


def _plan(
    rule: PartitionRule, pool: Pool, weights: IntArray, outer: PartitionRule, address: tuple[int, int, int]
) -> SplitPlan | None:
    """What each part gets; ``None`` if the pool does not tell enough."""
    seed, *key = address
    rng = generator(seed, Stream.PARTITION, *key, _PLAN)
    allow_empty = outer.empty_devices == "allow"
    if not allow_empty and pool.examples < len(weights):
        # Before the rule itself: it would complain of what follows from this.
        raise _empty(outer, len(weights) - pool.examples, len(weights), pool.examples)
    floor = rule.min_examples if rule.min_examples is not None else int(not allow_empty)
    match rule.kind:
        case "iid" if rule.size_sigma == 0:
            return plan_equal(pool, weights)
        case "iid":
            return plan_lognormal(pool, weights, sigma=rule.size_sigma, floor=floor, rng=rng)
        case "labels":
            assert rule.labels_per_device is not None  # checked when the rule was made
            if pool.class_counts is None:
                return None
            return plan_labels(
                pool,
                weights,
                labels_each=rule.labels_per_device,
                allow_empty=allow_empty,
                place=rule.place,
                rng=rng,
            )
        case "dirichlet":
            assert rule.alpha is not None  # checked when the rule was made
            if pool.class_counts is None:
                return None
            return plan_dirichlet(pool, weights, alpha=rule.alpha, floor=floor, place=rule.place, rng=rng)
        case _:
            if pool.group_counts is None:
                return None
            return plan_groups(
                pool,
                weights,
                groups_each=rule.groups_per_device,
                floor=floor,
                allow_empty=allow_empty,
                place=rule.place,
                rng=rng,
            )


def _refuse_empty(rule: PartitionRule, sizes: IntArray, examples: int) -> None:
    empty = int(np.count_nonzero(sizes == 0))
    if empty and rule.empty_devices == "refuse":
        raise _empty(rule, empty, len(sizes), examples)


def _empty(rule: PartitionRule, empty: int, parts: int, examples: int) -> SpecError:
    return SpecError(
        f"{rule.place}.empty_devices",
        "refuse",
        f"{empty:,} of {parts:,} devices would hold none of {examples:,} examples; "
        "use fewer devices, or 'allow'",
    )


def _weights(devices_per_edge: Sequence[int] | IntArray) -> IntArray:
    weights = np.asarray(devices_per_edge, np.int64)
    if not len(weights) or weights.min() < 1:
        raise SpecError("topology", list(devices_per_edge), "at least one device under every edge")
    return weights

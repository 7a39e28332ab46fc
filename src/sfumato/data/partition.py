"""Divides the training rows over devices: a rule, and the partition it makes.

Every draw comes from ``Stream.PARTITION``, so a seed fixes the partition. How many examples each
device gets follows from counts alone (``partition_sizes``); which rows they are needs the labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.flwr_partitioners import FLOWER_PREFIX, flower_partition
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
# Beyond it the sums inside NumPy's sampler overflow, and the proportions are equal long before.
_LARGEST_ALPHA = 1e9


@dataclass(frozen=True)
class PartitionRule:
    """How to divide examples over parts; the fields are the keys of ``data.partition``.

    Attributes:
        kind: ``"iid"``, ``"labels"``, ``"dirichlet"``, ``"natural"``, ``"two-level"`` or
            ``"flwr:NAME"``, a partitioner of flwr-datasets.
        labels_per_device: labels each device holds (labels).
        alpha: concentration of the Dirichlet distribution (dirichlet).
        min_examples: dirichlet: no device gets fewer (default 1, or 0 with empty devices allowed);
            natural: groups with fewer are left out. Of an edge it asks as much for each of its devices.
        groups_per_device: natural: groups each device holds, the rest stay unused; ``None`` divides
            all groups.
        size_sigma: iid: sizes spread as a lognormal of this sigma; 0 makes them equal.
        empty_devices: ``"refuse"`` or ``"allow"`` devices without examples; in two-level rules the
            outer one decides.
        edge: two-level: how to divide over edges, each weighed by its devices.
        device: two-level: how to divide an edge's examples over its devices.
        options: ``flwr:NAME``: arguments of the partitioner; number of devices, seed and the
            column of labels are supplied.
        place: where the rule stands in the spec, for messages.

    Raises:
        SpecError: a field is missing, out of range, or not for this kind.
    """

    kind: str = "iid"
    labels_per_device: int | None = None
    alpha: float | None = None
    min_examples: int | None = None
    groups_per_device: int | None = None
    size_sigma: float = 0.0
    empty_devices: str = "refuse"
    edge: PartitionRule | None = None
    device: PartitionRule | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    place: str = "data.partition"

    def __post_init__(self) -> None:
        kind = "flwr" if self.kind.startswith(FLOWER_PREFIX) else self.kind
        if kind not in _FIELDS:
            allowed = ", ".join([*(name for name in _FIELDS if name != "flwr"), "flwr:NAME"])
            raise SpecError(f"{self.place}.kind", self.kind, f"one of {allowed}")
        for name in ("labels_per_device", "alpha", "edge", "device"):
            if name in _FIELDS[kind] and getattr(self, name) is None:
                raise SpecError(f"{self.place}.{name}", None, f"needed for kind: {self.kind}")
        for name in _OPTIONAL:
            given = getattr(self, name)
            is_set = given not in (None, {}) and not (name == "size_sigma" and given == 0)
            if is_set and name not in _FIELDS[kind]:
                raise SpecError(f"{self.place}.{name}", given, f"nothing: not for kind: {self.kind}")
        self._refuse_under("labels_per_device", 1)
        self._refuse_under("groups_per_device", 1)
        self._refuse_under("min_examples", 0)
        self._refuse_under("size_sigma", 0)
        if self.alpha is not None and not 0 < self.alpha <= _LARGEST_ALPHA:
            raise SpecError(f"{self.place}.alpha", self.alpha, "a positive number up to 1e9")
        if self.empty_devices not in ("refuse", "allow"):
            raise SpecError(f"{self.place}.empty_devices", self.empty_devices, "refuse or allow")
        for name in ("edge", "device"):
            inner = getattr(self, name)
            if inner is not None and inner.kind not in _INNER:
                raise SpecError(f"{self.place}.{name}.kind", inner.kind, f"one of {', '.join(_INNER)}")

    def _refuse_under(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and not value >= least:
            raise SpecError(f"{self.place}.{name}", value, f"at least {least}")


_FIELDS: Mapping[str, frozenset[str]] = {
    "iid": frozenset({"size_sigma"}),
    "labels": frozenset({"labels_per_device"}),
    "dirichlet": frozenset({"alpha", "min_examples"}),
    "natural": frozenset({"min_examples", "groups_per_device"}),
    "two-level": frozenset({"edge", "device"}),
    "flwr": frozenset({"options"}),
}
_OPTIONAL = sorted(frozenset().union(*_FIELDS.values()))
_INNER = ("iid", "labels", "dirichlet", "natural")


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
) -> Partition:
    """Divide the rows with these ``labels`` [N] over devices.

    Args:
        labels: of the training rows, 0, 1, ...
        devices_per_edge: devices under each edge; of a star, the one number of all.
        rule: how.
        seed: of the run.
        groups: natural group of each row [N], 0, 1, ...; needed by ``natural``.

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
    elif rule.edge is None or rule.device is None:
        dealt, sizes = _deal(rule, rows, labels, groups, np.ones(devices, np.int64), rule, (seed, _WHOLE, 0))
    else:
        by_edge, edge_sizes = _deal(rule.edge, rows, labels, groups, weights, rule, (seed, _WHOLE, 0))
        blocks = np.split(by_edge, np.cumsum(edge_sizes)[:-1])
        inside = [
            _deal(rule.device, block, labels, groups, np.ones(count, np.int64), rule, (seed, _INSIDE, edge))
            for edge, (block, count) in enumerate(zip(blocks, weights.tolist(), strict=True))
        ]
        dealt = np.concatenate([part for part, _ in inside])
        sizes = np.concatenate([counts for _, counts in inside])
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
) -> IntArray | None:
    """The sizes ``partition`` would give each device [devices], from counts alone.

    Args:
        rule: as for ``partition``.
        devices_per_edge: as for ``partition``.
        examples: training rows, N.
        seed: of the run.
        class_counts: training rows of each label, if known.
        group_counts: training rows of each natural group, if known.

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
    if rule.edge is None or rule.device is None:
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
    sizes = []
    for number, (part, count) in enumerate(zip(outer.pools(), weights.tolist(), strict=True)):
        inner = _plan(device, part, np.ones(count, np.int64), rule, (seed, _INSIDE, number))
        if inner is None:
            return None
        sizes.append(inner.sizes)
    return np.concatenate(sizes)


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
        raise SpecError(f"{rule.place}.kind", rule.kind, "a data set with a group column (group_column)")
    seed, *key = address
    return plan.deal(rows, own_labels, own_groups, generator(seed, Stream.PARTITION, *key, _DEAL)), plan.sizes


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

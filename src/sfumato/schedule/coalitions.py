"""The worst coalition of clients of every size that HDP tolerates: up to ceil(k/3) - 1 (Sec. III-B)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.privacy.guarantee import number
from sfumato.privacy.observers import Party
from sfumato.schedule.tree import TreePlan

_MOST_SIZES, _LARGEST = 40, 400


@dataclass(frozen=True)
class Coalition:
    """The clients of one size that learn most about a unit.

    Attributes:
        unit: e.g. ``device:0``.
        size: number of clients.
        in_zone: how many of them are in the unit's zone.
        observer: the coalition, for ``--observer``.
        epsilon: before training; where supernodes are elected, members are as often as chance has it.
        supernode_epsilon: with the unit's supernode as one of them: in every round, where it is elected.
    """

    unit: str
    size: int
    in_zone: int
    observer: str
    epsilon: float
    supernode_epsilon: float

    def to_dict(self) -> dict[str, Any]:
        """A row of ``coalitions`` in ``account --json``."""
        return {
            "unit": self.unit,
            "size": self.size,
            "in_zone": self.in_zone,
            "observer": self.observer,
            "epsilon": number(self.epsilon),
            "supernode_epsilon": number(self.supernode_epsilon),
        }


def tolerated_coalitions(plan: TreePlan, delta: float) -> tuple[Coalition, ...]:
    """The worst coalitions of clients, for one unit of every class; HDP's threat model names them."""
    if plan.spec.protocol != "hdp":
        return ()
    sizes = tolerated_sizes(float(plan.participants.drawn.sum()))
    units = dict.fromkeys(pair.unit for pair in plan.ledger.pair_classes())
    return tuple(found for unit in units for found in worst_coalitions(plan, unit, sizes, delta))


def tolerated_sizes(online: float) -> tuple[int, ...]:
    """Sizes 1 to ceil(k/3) - 1 of coalitions among k clients online; a selection, where they are many."""
    most = min(math.ceil(online / 3) - 1, _LARGEST)
    if most <= _MOST_SIZES:
        return tuple(range(1, most + 1))
    spread = np.geomspace(1, most, _MOST_SIZES).round().astype(int)
    return tuple(sorted(set(spread.tolist())))


def worst_coalitions(plan: TreePlan, unit: int, sizes: Sequence[int], delta: float) -> tuple[Coalition, ...]:
    """The worst coalition of each size among those that symmetry leaves (docs/hdp.md).

    Members of the unit's zone come from its loudest devices, those of other zones too, either filling zone
    after zone or one a zone in turn: what a member brings is the noise it knows and its chance of election.
    """
    ledger = plan.ledger
    loudness = ledger.classes.variance(ledger.steps[-1].device_std)
    here = ledger.leaf_of(unit)
    weight = {leaf: ledger.unit_weight(path, 0) ** 2 for leaf, path in enumerate(ledger.paths)}

    def loudest(leaf: int, most: int) -> list[int]:
        """The ``most`` loudest devices of a zone, the unit apart."""
        found: list[int] = []
        for c in sorted(ledger.classes.of_leaf(leaf), key=lambda c: -float(loudness[c])):
            found += [int(d) for d in ledger.classes.members(c, most + 1) if d != unit]
            if len(found) >= most:
                break
        return found[:most]

    own = loudest(here, max(sizes, default=0))
    others = sorted(
        (leaf for leaf in range(plan.tree.leaf_count) if leaf != here),
        key=lambda leaf: (
            -max(float(loudness[c]) for c in ledger.classes.of_leaf(leaf)) * weight[leaf],
            leaf,
        ),
    )
    queues = _queues([loudest(leaf, max(sizes, default=0)) for leaf in others], max(sizes, default=0))
    supernode = Party("node", ledger.depth - 1, here)
    found = []
    for size in sizes:
        best: tuple[float, int, tuple[int, ...]] | None = None
        with_node = 0.0
        for inside, members in _candidates(own, queues, size):
            coalition = tuple(Party("device", 0, d) for d in members)
            epsilon = _epsilon(plan, unit, coalition, delta)
            fewer = coalition[:-1] if ledger.elections else coalition  # an elected supernode is one of them
            with_node = max(with_node, _epsilon(plan, unit, (*fewer, supernode), delta))
            if best is None or epsilon > best[0]:
                best = (epsilon, inside, members)
        if best is not None:
            name = ",".join(f"device:{d}" for d in best[2])
            found.append(Coalition(f"device:{unit}", size, best[1], name, best[0], with_node))
    return tuple(found)


def _queues(zones: list[list[int]], most: int) -> tuple[list[int], list[int]]:
    """Devices of other zones in two orders: zone after zone, and one of each zone in turn."""
    filled: list[int] = []
    for zone in zones:
        if len(filled) >= most:
            break
        filled += zone
    turns: list[int] = []
    depth = 0
    while len(turns) < most and any(len(zone) > depth for zone in zones):
        turns += [zone[depth] for zone in zones if len(zone) > depth]
        depth += 1
    return filled[:most], turns[:most]


def _candidates(
    own: list[int], queues: tuple[list[int], list[int]], size: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """How many members are in the unit's zone, and the members: none, half of those there, or all."""
    most = min(size, len(own))
    for inside in sorted({0, most // 2, most}):
        for outside in dict.fromkeys(tuple(queue[: size - inside]) for queue in queues):
            if inside + len(outside) == size:
                yield inside, (*outside, *own[:inside])


def _epsilon(plan: TreePlan, unit: int, coalition: tuple[Party, ...], delta: float) -> float:
    return min(
        plan.ledger.bound_epsilon(exposure, delta=delta, neighbours=plan.spec.privacy.neighbours).epsilon
        for exposure in plan.ledger.exposures(unit, coalition)
    )

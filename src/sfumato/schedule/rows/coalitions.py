"""The worst coalition of clients of every size that HDP tolerates: up to ceil(k/3) - 1 (Sec. III-B)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato.privacy.charges import is_surely_within
from sfumato.privacy.guarantee import json_number
from sfumato.privacy.observers import Party
from sfumato.privacy.release import are_unprotected
from sfumato.schedule.tree import TreePlan

_MOST_SIZES, _LARGEST = 40, 400
_SURELY, _FINITE = 1e-9, 1e5  # beyond rounding; an epsilon below all that are not as good as infinite


@dataclass(frozen=True)
class Coalition:
    """The clients of one size that learn most about a unit.

    Attributes:
        unit: e.g. ``device:0``.
        size: number of clients.
        in_zone: how many of them are in the unit's zone.
        observer: the coalition, for ``--observer``.
        epsilon: before training; where supernodes are elected, members are as often as chance has it.
        supernode_epsilon: with the unit's supernode as one of them: in every round, where it is elected. The
            clients may be others than those of ``observer``.
        supernode_in_zone: how many clients of that coalition are in the unit's zone, the supernode apart.
    """

    unit: str
    size: int
    in_zone: int
    observer: str
    epsilon: float
    supernode_epsilon: float
    supernode_in_zone: int

    def to_dict(self) -> dict[str, Any]:
        """The row of ``coalitions`` in ``account --json``; an ε of ∞ becomes ``"inf"``."""
        figures = {
            "epsilon": json_number(self.epsilon),
            "supernode_epsilon": json_number(self.supernode_epsilon),
        }
        return asdict(self) | figures


def tolerated_coalitions(plan: TreePlan, delta: float) -> tuple[Coalition, ...]:
    """The worst coalition of every size that HDP tolerates, for a unit of every class, with its ε.

    Empty for other protocols. ``delta``: at which ε is computed.
    """
    if plan.spec.protocol != "hdp":
        return ()
    sizes = tolerated_sizes(float(plan.participants.drawn.sum()))
    units = dict.fromkeys(pair.unit for pair in plan.releases.pair_classes())
    return tuple(found for unit in units for found in worst_coalitions(plan, unit, sizes, delta))


def tolerated_sizes(online: float) -> tuple[int, ...]:
    """The sizes of coalitions that HDP tolerates of ``online`` clients (k): 1 to ceil(k/3) - 1, ascending.

    At most 400, and a selection of 40 or fewer where there are more than 40; none for three clients or fewer.
    """
    most = min(math.ceil(online / 3) - 1, _LARGEST)
    if most <= _MOST_SIZES:
        return tuple(range(1, most + 1))
    spread = np.geomspace(1, most, _MOST_SIZES).round().astype(int)
    return tuple(sorted(set(spread.tolist())))


def worst_coalitions(plan: TreePlan, unit: int, sizes: Sequence[int], delta: float) -> tuple[Coalition, ...]:
    """For each of ``sizes``, the coalition of so many devices that learns most about device ``unit``.

    The search is over those that symmetry leaves (docs/hdp.md): from every zone the devices with the largest
    variance of noise, and among zones one after the other, or one device of each in turn. What a member
    brings is the noise that it knows and its chance of election.

    Args:
        plan: of HDP.
        unit: number of the device that is protected; never a member.
        sizes: numbers of members; those that no coalition has are left out of the result.
        delta: δ at which the ε are compared.

    Returns:
        In the order of ``sizes``; each has also the largest ε with the unit's supernode as a member.
    """
    declared = plan.releases
    loudness = declared.classes.variance(declared.steps[-1].device_std)
    here = declared.leaf_of(unit)
    weight = {leaf: declared.unit_weight(path, 0) ** 2 for leaf, path in enumerate(declared.paths)}

    def loudest(leaf: int, most: int) -> list[int]:
        """The ``most`` devices of zone ``leaf`` whose noise has the largest variance, the unit apart."""
        found: list[int] = []
        for c in sorted(declared.classes.of_leaf(leaf), key=lambda c: -float(loudness[c])):
            found += [int(d) for d in declared.classes.members(c, most + 1) if d != unit]
            if len(found) >= most:
                break
        return found[:most]

    own = loudest(here, max(sizes, default=0))
    others = sorted(
        (leaf for leaf in range(plan.tree.leaf_count) if leaf != here),
        key=lambda leaf: (
            -max(float(loudness[c]) for c in declared.classes.of_leaf(leaf)) * weight[leaf],
            leaf,
        ),
    )
    queues = _order_outsiders(
        [loudest(leaf, max(sizes, default=0)) for leaf in others], max(sizes, default=0)
    )
    supernode = Party("node", declared.depth - 1, here)
    found = []
    for size in sizes:
        candidates = list(_candidate_coalitions(own, queues, size))
        if not candidates:
            continue
        coalitions = [tuple(Party("device", 0, d) for d in members) for _, members in candidates]
        epsilon, worst = _largest_epsilon(plan, unit, coalitions, delta)
        # an elected supernode is one of the members
        with_node = [(*(c[:-1] if declared.elections else c), supernode) for c in coalitions]
        inside, members = candidates[worst]
        name = ",".join(f"device:{d}" for d in members)
        worst_with_node, place = _largest_epsilon(plan, unit, with_node, delta)
        beside_node = candidates[place][0]
        if declared.elections:
            beside_node = max(0, beside_node - 1)  # the last of the zone gave its place to the supernode
        found.append(Coalition(f"device:{unit}", size, inside, name, epsilon, worst_with_node, beside_node))
    return tuple(found)


def _order_outsiders(zones: list[list[int]], most: int) -> tuple[list[int], list[int]]:
    """The first ``most`` devices of other zones in two orders: zone after zone, and by turns."""
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


def _candidate_coalitions(
    own: list[int], queues: tuple[list[int], list[int]], size: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield coalitions of ``size`` devices with none, half or as many as fit of the unit's zone.

    Args:
        own: devices of the unit's zone that may be members, the first ones first.
        queues: devices of other zones in two orders; the rest are the first of either.
        size: of a coalition; where there are too few devices nothing is yielded.

    Yields:
        How many members are in the unit's zone, and the members.
    """
    most = min(size, len(own))
    for inside in sorted({0, most // 2, most}):
        for outside in dict.fromkeys(tuple(queue[: size - inside]) for queue in queues):
            if inside + len(outside) == size:
                yield inside, (*outside, *own[:inside])


def _largest_epsilon(
    plan: TreePlan, unit: int, coalitions: Sequence[tuple[Party, ...]], delta: float
) -> tuple[float, int]:
    """The largest ε of ``unit`` at ``delta`` towards any of ``coalitions``, and the index of the worst.

    The last one, with the most members in the unit's zone, is composed first: most others are surely below.
    Of equal ones the first counts.
    """
    neighbours = plan.spec.privacy.neighbours
    best, worst = -1.0, 0
    least = _epsilon_of_coalition(plan, unit, coalitions[-1], delta)
    for number, coalition in enumerate(coalitions):
        below = min(max(best, least) * (1 - _SURELY), _FINITE)
        quick = plan.releases.quick_exposures(unit, coalition)
        if below > 0 and is_surely_within(quick, below, delta=delta, neighbours=neighbours):
            continue
        epsilon = (
            least if coalition == coalitions[-1] else _epsilon_of_coalition(plan, unit, coalition, delta)
        )
        if epsilon > best:
            best, worst = epsilon, number
    return best, worst


def _epsilon_of_coalition(plan: TreePlan, unit: int, coalition: tuple[Party, ...], delta: float) -> float:
    """The smallest bound on ε of device ``unit`` towards ``coalition`` at ``delta``; ∞ without protection."""
    if are_unprotected(plan.releases.quick_exposures(unit, coalition)):
        return math.inf
    neighbours = plan.spec.privacy.neighbours
    return min(
        plan.releases.bound_epsilon(exposure, delta=delta, neighbours=neighbours).epsilon
        for exposure in plan.releases.exposures(unit, coalition)
    )

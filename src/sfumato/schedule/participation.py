"""Who takes part in a round of a tree, and what sums of their messages are divided by.

The draw is the same for whoever plays, accounts for or audits a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.random import Stream, generator
from sfumato.schedule.noise.zone_placement import device_weights
from sfumato.schedule.per_edge import per_edge
from sfumato.spec.document import Spec
from sfumato.spec.training import ClippedDenominator, FixedParticipation, PoissonParticipation

if TYPE_CHECKING:
    from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round.

    Attributes:
        kind: how they are chosen.
        rate: share of rounds a device takes part in, expected.
        drawn: devices of each leaf in a round: all, the fixed number, or the expected one.
        count: what the sum of each leaf's messages is divided by (a public constant, so that one device's
            weight never depends on the others): ``drawn``, or their expected weight where devices count
            differently; with a clipped denominator, the least that is divided by.
        weights: how much every device counts, ``[devices]``; 1 if ``None``.
        most: the most that is divided by, where that depends on who is drawn ``[leaves]``; else ``None``.
        cohort: who takes part in every round, ascending, where an audit decides that; ``None``: who is drawn.
    """

    kind: Literal["all", "poisson", "fixed"]
    rate: float
    drawn: FloatArray
    count: FloatArray
    weights: FloatArray | None = None
    most: FloatArray | None = None
    cohort: IntArray | None = None


def draw_participants(plan: TreePlan, number: int) -> npt.NDArray[np.int64]:
    """Devices that take part in round ``number``, ascending: drawn, unless the plan says who they are."""
    tree, participants = plan.tree, plan.participants
    if participants.cohort is not None:
        return participants.cohort
    if participants.kind == "all":
        return np.arange(tree.device_count, dtype=np.int64)
    rng = generator(plan.spec.seed, Stream.PARTICIPATION, number)
    if participants.kind == "poisson":
        return np.flatnonzero(rng.random(tree.device_count) < participants.rate).astype(np.int64)
    counts = participants.drawn.astype(np.int64)
    chosen = [
        tree.devices_under(leaf)[np.sort(rng.choice(size, size=count, replace=False))]
        for leaf, (size, count) in enumerate(zip(tree.devices, counts, strict=True))
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def participants_of(spec: Spec, tree: Tree) -> Cohort:
    """How many devices of each leaf take part, and how they are chosen.

    Raises:
        SpecError: a fixed number larger than an edge.
    """
    choice = spec.training.participation
    devices = tree.devices.astype(np.float64)
    if isinstance(choice, PoissonParticipation):
        return _weighed(spec, tree, "poisson", choice.rate, devices * choice.rate)
    if isinstance(choice, FixedParticipation):
        count = np.array(per_edge(choice.count, tree.leaf_count), dtype=np.float64)
        if (count > tree.devices).any():
            edge = int(np.argmax(count - tree.devices))
            where = f"the smallest {tree.tiers[-1].name}"
            if tree.depth == 1 or not isinstance(choice.count, int):
                where = "the star" if tree.depth == 1 else tree.node_name(tree.depth - 1, edge)
            raise SpecError(
                "training.participation.count",
                int(count[edge]),
                f"must be at most the {int(tree.devices[edge])} devices of {where}",
            )
        return _weighed(spec, tree, "fixed", float(np.max(count / devices)), count)
    return _weighed(spec, tree, "all", 1.0, devices)


def _weighed(
    spec: Spec, tree: Tree, kind: Literal["all", "poisson", "fixed"], rate: float, drawn: FloatArray
) -> Cohort:
    """What sums are divided by: ``q W``, or ``q W_min`` at least (hdp.txt, Algorithm 1, repaired).

    A clipped denominator is the weight of those drawn where that is more than ``q W_min``. It is one number
    for all rounds where everybody takes part, or as many devices of one weight.
    """
    weights = device_weights(spec, tree)
    share, denominator = drawn / tree.devices, spec.training.denominator
    if isinstance(denominator, ClippedDenominator):
        floor = share * denominator.min_weight
        least, most = _drawn_weight(tree, kind, drawn, weights)
        least, most = np.maximum(floor, least), np.maximum(floor, most)
        moves = not np.allclose(least, most, rtol=1e-12, atol=0.0)
        return Cohort(kind, rate, drawn, least, weights, most if moves else None)
    if weights is None:
        return Cohort(kind, rate, drawn, drawn)
    whole = np.add.reduceat(weights, tree.first_device[:-1])
    return Cohort(kind, rate, drawn, share * whole, weights)


def _drawn_weight(
    tree: Tree, kind: Literal["all", "poisson", "fixed"], drawn: FloatArray, weights: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """The least and the most that the devices drawn in each leaf can weigh, ``[leaves]`` each."""
    each = np.ones(tree.device_count) if weights is None else weights
    bounds = []
    for first, last, count in zip(tree.first_device, tree.first_device[1:], drawn, strict=False):
        sums = np.concatenate([[0.0], np.cumsum(np.sort(each[first:last]))])
        number = round(float(count))
        if kind == "fixed":
            bounds.append((float(sums[number]), float(sums[-1] - sums[-1 - number])))
        else:
            bounds.append((0.0 if kind == "poisson" else float(sums[-1]), float(sums[-1])))
    least, most = np.array(bounds).T
    return least, most

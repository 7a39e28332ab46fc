"""Who takes part in a round, what sums of their messages are divided by, and how many are sure to be there.

The draw is the same for whoever plays, accounts for or audits a round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from sfumato.data.dataset_sizes import device_examples
from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.received import Hop
from sfumato.random import Stream, generator
from sfumato.schedule.local_steps import per_edge
from sfumato.spec.document import Spec
from sfumato.spec.faults import Faults
from sfumato.spec.training import CappedWeights, ClippedDenominator, FixedParticipation, PoissonParticipation

if TYPE_CHECKING:
    from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_SMALLEST_UNMASKED = 4  # parties of the smallest session whose default threshold is below its size


@dataclass(frozen=True)
class TreeParticipants:
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
    """The devices that take part in round ``number`` (from 0), ascending: drawn, or named by the plan.

    They are numbers of devices, int64, as many as take part; under Poisson draws there may be none.
    """
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


def participants_of(spec: Spec, tree: Tree) -> TreeParticipants:
    """How many devices of each leaf take part, how they are drawn, and what sums are divided by.

    Raises:
        SpecError: a fixed number larger than an edge.
    """
    choice = spec.training.participation
    devices = tree.devices.astype(np.float64)
    if isinstance(choice, PoissonParticipation):
        return _with_denominators(spec, tree, "poisson", choice.rate, devices * choice.rate)
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
        return _with_denominators(spec, tree, "fixed", float(np.max(count / devices)), count)
    return _with_denominators(spec, tree, "all", 1.0, devices)


def _with_denominators(
    spec: Spec, tree: Tree, kind: Literal["all", "poisson", "fixed"], rate: float, drawn: FloatArray
) -> TreeParticipants:
    """Compute what the sums of participants are divided by: ``q W``, or at least ``q W_min``.

    That is Alg. 1 of hdp.txt, repaired.

    A clipped denominator is the weight of those drawn where that is more than ``q W_min``. It is one number
    for all rounds where everybody takes part, or as many devices of one weight.

    Args:
        spec: of the protocol.
        tree: of the run.
        kind: of the draw.
        rate: expected share of rounds that a device takes part in, the largest over leaves.
        drawn: devices of each leaf in a round, expected, ``[leaves]``.
    """
    weights = device_weights(spec, tree)
    share, denominator = drawn / tree.devices, spec.training.denominator
    if isinstance(denominator, ClippedDenominator):
        floor = share * denominator.min_weight
        least, most = _bounds_on_drawn_weight(tree, kind, drawn, weights)
        least, most = np.maximum(floor, least), np.maximum(floor, most)
        moves = not np.allclose(least, most, rtol=1e-12, atol=0.0)
        return TreeParticipants(kind, rate, drawn, least, weights, most if moves else None)
    if weights is None:
        return TreeParticipants(kind, rate, drawn, drawn)
    whole = np.add.reduceat(weights, tree.first_device[:-1])
    return TreeParticipants(kind, rate, drawn, share * whole, weights)


def _bounds_on_drawn_weight(
    tree: Tree, kind: Literal["all", "poisson", "fixed"], drawn: FloatArray, weights: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """The least and the most that the devices drawn in each leaf can weigh together, ``[leaves]`` each.

    Args:
        tree: of the run.
        kind: of the draw.
        drawn: devices of each leaf in a round; a fixed number is read from it.
        weights: of every device, ``[devices]``; ``None``: 1.
    """
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


def device_weights(spec: Spec, tree: Tree) -> FloatArray | None:
    """The weight of every device, ``min(examples / cap, 1)``, ``[devices]``; ``None`` where all count alike.

    The weights are public: whoever sees a message knows how it counts.

    Raises:
        SpecError: how many examples a device holds is not known before the data are read.
        DataError: the data set is neither built in nor on this machine.
    """
    weights = spec.training.weights
    if not isinstance(weights, CappedWeights):
        return None
    return np.minimum(device_examples(spec, tree) / weights.examples, 1.0)


@dataclass(frozen=True)
class GuaranteedSurvivors:
    """Which devices and nodes are sure to be in the sums that are released.

    Attributes:
        least: devices sure to be in the sum of each leaf that sends, ``[leaves]``; ``None``: all drawn.
        all_nodes_always_send: whether every node sends in every round.
        elections: expected number of supernodes a round in every zone, where they are elected.
    """

    least: IntArray | None = None
    all_nodes_always_send: bool = True
    elections: float = 1.0


def threshold_of(faults: Faults | None, parties: int) -> int:
    """The fewest survivors of a secure aggregation session of ``parties`` with which it has a sum.

    More than 2/3 of them, or the share that ``faults`` set, but always more than half.
    """
    if faults is None or faults.survival_threshold is None:
        return 2 * parties // 3 + 1
    return max(math.ceil(faults.survival_threshold * parties - 1e-9), parties // 2 + 1)


def shares_that_unmask(faults: Faults | None, tree: Tree, drawn: FloatArray) -> tuple[IntArray, ...]:
    """For every tier, how many children must collude with a node to unmask the others, ``[nodes]``.

    A party shares the secrets of its masks with the whole session; a threshold of shares rebuilds them, which
    is how the sum survives dropouts. So secure aggregation protects from fewer colluders than that.

    Args:
        faults: as declared.
        tree: who is under whom.
        drawn: participants of each leaf, expected where their number is random (then nobody else's noise
            counts anyway), ``[leaves]``.
    """
    sessions = [*tree.children[:-1], np.ceil(drawn)]
    return tuple(
        np.array([threshold_of(faults, int(parties)) for parties in sizes], dtype=np.int64)
        for sizes in sessions
    )


def colluders_that_unmask(faults: Faults | None, parties: int, *, drawn: bool) -> int:
    """How many workers of a group must collude with its master to remove the masks of others' messages.

    Args:
        faults: as declared; they may set the threshold of shares.
        parties: workers in the group.
        drawn: whether the session is a random part of the group. Then the smallest session counts that holds
            the unit and enough colluders for its threshold: that many may happen to be drawn together. Where
            no session of the group does, the whole group would be needed, unit included.
    """
    if not drawn:
        return threshold_of(faults, parties)
    sizes = range(2, max(parties, _SMALLEST_UNMASKED) + 1)
    return next((size - 1 for size in sizes if threshold_of(faults, size) < size), parties)


def guaranteed_survivors_of(
    faults: Faults | None, hop: Hop, drawn: FloatArray, *, by_chance: bool | BoolArray
) -> GuaranteedSurvivors:
    """How many messages are sure to be in each leaf's sum, and who may send nothing, under ``faults``.

    A session of secure aggregation releases the sum of at least its threshold of messages, or none: in every
    sum that has the unit's message there are ``threshold - 1`` others. Where messages are sent one by one, or
    the number of participants is random, nobody is sure to be there. A zone below its threshold, or without a
    supernode, sends nothing. A supernode that fails has met the sum; the next takes over with probability
    ``supernode_failure_rate`` (f), and so on: at most 1/(1 - f) of them on average, each uniform among the
    devices.

    Args:
        faults: as declared.
        hop: how devices' messages travel.
        drawn: participants of each leaf, ``[leaves]``.
        by_chance: whether ``drawn`` is only expected, as the number is random; for all leaves, or for each.
    """
    if faults is None:
        return GuaranteedSurvivors()
    dropping = any(faults.drop_rates)
    least = None
    if dropping:
        in_session = np.broadcast_to((hop == "secure-aggregation") & ~np.asarray(by_chance), drawn.shape)
        sessions = zip(drawn, in_session, strict=True)
        least = np.array([threshold_of(faults, int(n)) if one else 0 for n, one in sessions], dtype=np.int64)
    aborts = hop == "secure-aggregation" and dropping
    repeated = faults.when_supernode_fails == "repeat"
    return GuaranteedSurvivors(
        least,
        not aborts and faults.supernode_failure_rate == 0,
        1.0 / (1.0 - faults.supernode_failure_rate) if repeated else 1.0,
    )

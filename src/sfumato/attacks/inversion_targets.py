"""The targets of inversion attacks: sums of devices' updates that an observer received in a round.

A single message is a target; of sums and averages, those of the fewest devices are. From an average the
observer subtracts the model that the devices started from, as far as it knows it, and the updates of its own
members. If it did not receive an aggregation in between, it treats the steps before and after as one update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.attacks.views import RoundVectors
from sfumato.data.partition import Partition
from sfumato.learning.batches import BatchPlan
from sfumato.privacy.observers import Party
from sfumato.protocols.tree.local_work import batches_of
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class InversionTarget:
    """A weighted sum of devices' updates.

    Attributes:
        description: as text.
        update: the sum as observed, noise included, ``[M]``.
        start: the model from which the observer assumes the devices to have started, ``[M]``.
        devices: in the sum, without members of the coalition.
        shares: weight of each device's update, ``[n]``.
        batches: their mini-batches; private, except their number and sizes.
        message_count: number of messages of each device in the sum.
    """

    description: str
    update: Tensor
    start: Tensor
    devices: IntArray
    shares: Tensor
    batches: BatchPlan
    message_count: int

    @property
    def rows(self) -> IntArray:
        """Numbers of the training rows that the target's devices used, each once, ascending, ``[n]``."""
        valid = torch.arange(self.batches.width) < self.batches.counts[:, :, None]
        return np.asarray(torch.unique(self.batches.rows[valid]).numpy(), dtype=np.int64)


def smallest_sum_targets(
    plan: TreePlan,
    partition: Partition,
    vectors: RoundVectors,
    model: Tensor,
    number: int,
    coalition: Sequence[Party],
) -> tuple[InversionTarget, ...]:
    """The sums of the fewest devices' updates that ``coalition`` knows in round ``number``.

    Args:
        plan: of the run.
        partition: the rows of each device; the targets' batches are used for scoring only.
        vectors: the vectors that the coalition received in the round.
        model: the global model at the beginning of the round ``[M]``.
        number: of the round, from 0.
        coalition: the colluding observers.
    """
    found = list(_all_targets(plan, partition, vectors, model, number, coalition))
    fewest = min((len(target.devices) for target in found), default=0)
    return tuple(target for target in found if len(target.devices) == fewest)


def _all_targets(
    plan: TreePlan,
    partition: Partition,
    vectors: RoundVectors,
    model: Tensor,
    number: int,
    coalition: Sequence[Party],
) -> Iterator[InversionTarget]:
    """Yield every vector that the coalition received in round ``number`` as a target."""
    tree, chosen = plan.tree, draw_participants(plan, number)
    if not len(chosen):
        return
    batches = batches_of(plan, partition, chosen, number)
    leaves = tree.leaves_of(chosen)
    members = {p.index for p in coalition if p.kind == "device"}
    own = np.isin(chosen, list(members))
    weights = plan.weights_of(chosen) / plan.denominators_of(chosen)[leaves]
    below = [  # the leaves' weights in the averages above them, by tier
        np.array([plan.releases.weight_below(path, tree.depth - 1, tier) for path in tree.paths])[leaves]
        for tier in range(tree.depth)
    ]
    known = dict.fromkeys(range(tree.leaf_count), (model, 0, 0))  # a model, its step, its aggregation
    for index, aggregation in enumerate(plan.aggregations):
        fresh, met = plan.releases.steps[index].resends, set[bytes]()
        for (step, kind, tier, party), vector in vectors.items():
            if step != index or (kind == "sent" and tier == tree.depth and party in members):
                continue
            if kind == "sent" and tier == tree.depth:
                inside = chosen == party
                shares = plan.weights_of(chosen)
            else:
                inside = (tree.paths[leaves, tier] == party) & (batches.steps.numpy() > 0)
                shares = weights * below[tier]
            others = np.flatnonzero(inside & ~own)
            if not len(others) or others.tobytes() in met:
                continue  # the same devices were in an earlier sum: this one adds no information
            met.add(others.tobytes())
            leaf = int(leaves[np.flatnonzero(inside)[0]])
            start, since, first = (model, 0, 0) if fresh[leaf] else known[leaf]
            update = vector if kind == "sent" and tier == tree.depth else vector - start
            for place in np.flatnonzero(inside & own):  # members subtract their own updates
                for piece in range(index if fresh[leaf] else first, index + 1):
                    mine = vectors.get((piece, "sent", tree.depth, int(chosen[place])))
                    if mine is not None:
                        update = update - mine * float(shares[place] / plan.weights_of(chosen)[place])
            yield InversionTarget(
                _describe_vector(plan, kind, tier, party),
                update,
                start,
                chosen[others],
                torch.from_numpy(shares[others]).float(),
                _steps_between(batches.of(torch.from_numpy(others)), since, aggregation.step, plan),
                1 if fresh[leaf] else sum(bool(plan.sends(i)[leaf]) for i in range(first, index + 1)),
            )
        for leaf in range(tree.leaf_count):
            told = vectors.get(
                (index, "broadcast", aggregation.tier, int(tree.paths[leaf][aggregation.tier]))
            )
            if told is not None:
                known[leaf] = (told, aggregation.step, index + 1)


def _steps_between(batches: BatchPlan, first: int, last: int, plan: TreePlan) -> BatchPlan:
    """The batches of the local steps from ``first`` up to, and without, ``last``."""
    if len(plan.aggregations) == 1:
        return batches
    return batches.between(first, last)


def _describe_vector(plan: TreePlan, kind: str, tier: int, party: int) -> str:
    """A received vector in words: a device's message, or a sum, average or model of a node.

    ``kind``: sent, received or broadcast; ``tier``, ``party``: of its sender or receiver.
    """
    if tier == plan.tree.depth:
        return f"message of device:{party}"
    node = plan.releases.party_name(Party("node", tier, party))
    return {"sent": "average sent by", "received": "sum received by", "broadcast": "model of"}[
        kind
    ] + f" {node}"

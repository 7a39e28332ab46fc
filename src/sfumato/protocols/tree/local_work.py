"""What devices do between two aggregations (batches, steps, clipping), and the server's optimizer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sfumato.data.partition import Partition
from sfumato.engine.base import LocalTask
from sfumato.learning.batches import BatchPlan
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.server_optimizer import ServerAdam, ServerOptimizer, ServerSGD
from sfumato.mechanisms.clipping import FlatClip
from sfumato.protocols.batch_draws import draw_batches
from sfumato.random import Stream
from sfumato.schedule.aggregation_schedule import Aggregation
from sfumato.schedule.learning_rate import learning_rate
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.training import Server

IntArray = npt.NDArray[np.int64]


def local_task(spec: Spec, number: int) -> LocalTask:
    """What every device does with its batches in round ``number``, clipping included."""
    clip = spec.privacy.clip
    step_clip = clip.norm if clip is not None and clip.kind == "step" else None
    sgd = LocalSGD(learning_rate(spec.training, number), spec.training.momentum, step_clip)
    if clip is None or clip.kind == "step":
        return LocalTask(sgd)
    if clip.per_layer is not None:
        return LocalTask(sgd, layer_norms=clip.per_layer)
    return LocalTask(sgd, FlatClip(clip.norm))


def batches_of(plan: TreePlan, partition: Partition, chosen: IntArray, number: int) -> BatchPlan:
    """The mini-batches of the devices chosen, in round ``number``."""
    stream = Stream.BATCHES if plan.spec.training.batches == "shuffled" else Stream.POISSON_BATCHES
    return batches_from(stream, plan, partition, chosen, number, plan.aggregations[-1].step)


def batches_from(
    stream: Stream, plan: TreePlan, partition: Partition, chosen: IntArray, number: int, steps: int
) -> BatchPlan:
    """So many steps for everybody chosen, or the epochs that the spec asks for instead."""
    return draw_batches(
        plan.spec.training,
        [partition.indices(int(device)) for device in chosen],
        [(int(device),) for device in chosen],
        steps=steps,
        seed=plan.spec.seed,
        stream=stream,
        address=(number,),
    )


def server_optimizer(server: Server) -> ServerOptimizer:
    """The optimizer that ``training.server`` asks for."""
    if server.optimizer == "adam":
        return ServerAdam(server.learning_rate, server.beta1, server.beta2, server.epsilon)
    return ServerSGD(server.learning_rate, server.momentum)


def steps_of(batches: BatchPlan, aggregation: Aggregation) -> BatchPlan:
    """The part of a round's batches that falls between two aggregations."""
    return batches.between(aggregation.step - aggregation.local_steps, aggregation.step)

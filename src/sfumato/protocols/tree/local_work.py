"""What devices do between two aggregations (batches, steps, clipping), and the server's optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from sfumato.data.partition import Partition
from sfumato.engine.base import LocalTask
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dropout import DropoutDraws
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.server_optimizer import ServerAdam, ServerOptimizer, ServerSGD
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.step_noise import StepNoise
from sfumato.protocols.batch_draws import draw_batches
from sfumato.random import Stream, generator, key_at
from sfumato.schedule.local_steps import Aggregation, learning_rate
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.training import Adam, FedProx, Server

IntArray = npt.NDArray[np.int64]


def local_task(spec: Spec, number: int) -> LocalTask:
    """What every device does with its batches in round ``number``, clipping included."""
    clip = spec.privacy.clip
    sgd = local_sgd(spec, number)
    if clip is None or clip.kind != "update":
        return LocalTask(sgd)
    if clip.per_layer is not None:
        return LocalTask(sgd, layer_norms=clip.per_layer)
    return LocalTask(sgd, FlatClip(clip.norm))


def local_sgd(spec: Spec, number: int) -> LocalSGD:
    """The steps of every device in round ``number``, with clips of steps or of examples."""
    clip = spec.privacy.clip
    norms = {} if clip is None else {clip.kind: clip.norm}
    return replace(
        unclipped_sgd(spec, number), step_clip=norms.get("step"), example_clip=norms.get("example")
    )


def unclipped_sgd(spec: Spec, number: int) -> LocalSGD:
    """The steps of every device in round ``number`` as they are without clips."""
    training = spec.training
    correction, optimizer = training.drift_correction, training.optimizer
    adam = None
    if isinstance(optimizer, Adam):
        adam = AdamMoments(optimizer.beta1, optimizer.beta2, optimizer.epsilon)
    return LocalSGD(
        learning_rate(training, number),
        training.momentum,
        proximal=correction.mu if isinstance(correction, FedProx) else 0.0,
        weight_decay=training.weight_decay,
        adam=adam,
    )


def step_noise(spec: Spec, addresses: Sequence[tuple[int, ...]]) -> StepNoise | None:
    """The noise that devices add at every local step, if the spec asks for it.

    Args:
        spec: of the run.
        addresses: in the stream of such noise, of each device that trains; a step's number comes after it.
    """
    multiplier, clip = spec.privacy.step_noise, spec.privacy.clip
    if not multiplier or clip is None:
        return None

    def key_of(device: int, step: int) -> bytes:
        return key_at(spec.seed, Stream.STEP_NOISE, *addresses[device], step)

    return StepNoise(multiplier * clip.norm, key_of)


def dropout_draws(spec: Spec, addresses: Sequence[tuple[int, ...]]) -> DropoutDraws:
    """What masks of dropout are drawn from, where a model has any.

    Args:
        spec: of the run.
        addresses: in the stream of such draws, of each device that trains; a step's number comes after it.
    """

    def generator_of(device: int, step: int) -> np.random.Generator:
        return generator(spec.seed, Stream.DROPOUT, *addresses[device], step)

    return DropoutDraws(generator_of)


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


def steps_of(batches: BatchPlan, aggregation: Aggregation, leaf_of: IntArray) -> BatchPlan:
    """The part of a round's batches between each device's last aggregation and this one.

    Args:
        batches: of the round, ``[P]``.
        aggregation: the next one.
        leaf_of: the leaf of every device, ``[P]``; none of a device whose leaf takes no part.
    """
    if not aggregation.of_edge:
        return batches.between(aggregation.step - aggregation.local_steps, aggregation.step)
    return batches.last_before(aggregation.step, torch.from_numpy(np.array(aggregation.of_edge)[leaf_of]))

"""What devices do between two aggregations (batches, steps, clipping), and the server's optimizer.

No message is sent that is longer than what the schedule declared to the accountant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.engine.base import LocalTask
from sfumato.errors import EnvelopeError
from sfumato.learning.batches import (
    BatchDraws,
    BatchPlan,
    Rows,
    plan_epochs,
    plan_poisson,
    plan_steps,
)
from sfumato.learning.dropout import DropoutDraws
from sfumato.learning.local_training import AdamMoments, LocalSGD
from sfumato.learning.norms import row_norms, scale_factors
from sfumato.learning.server_optimizer import ServerAdam, ServerOptimizer, ServerSGD
from sfumato.mechanisms.clipping import FlatClip
from sfumato.mechanisms.step_noise import StepNoise
from sfumato.random import Stream, generator, key_at
from sfumato.schedule.local_steps import Aggregation, learning_rate
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec
from sfumato.spec.training import Adam, FedProx, Server, Training

IntArray = npt.NDArray[np.int64]
_ROUNDING = 1e-5


def local_task(spec: Spec, number: int) -> LocalTask:
    """The work of every device in round ``number`` (from 0): local SGD with clipping, without noise."""
    clip = spec.privacy.clip
    sgd = local_sgd(spec, number)
    if clip is None or clip.kind != "update":
        return LocalTask(sgd)
    if clip.per_layer is not None:
        return LocalTask(sgd, layer_norms=clip.per_layer)
    return LocalTask(sgd, FlatClip(clip.norm))


def local_sgd(spec: Spec, number: int) -> LocalSGD:
    """The local SGD of every device in round ``number`` (from 0), with clipped steps or examples, if any."""
    clip = spec.privacy.clip
    norms = {} if clip is None else {clip.kind: clip.norm}
    return replace(
        unclipped_sgd(spec, number), step_clip=norms.get("step"), example_clip=norms.get("example")
    )


def unclipped_sgd(spec: Spec, number: int) -> LocalSGD:
    """The local SGD of every device in round ``number`` (from 0), without clipping."""
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
    """Gaussian noise at every local step, of std multiplier times clip norm; ``None`` if the spec has none.

    Args:
        spec: of the run.
        addresses: for each device that trains, in their order, where its draws lie in the stream of such
            noise; the number of the step is appended.
    """
    multiplier, clip = spec.privacy.step_noise, spec.privacy.clip
    if not multiplier or clip is None:
        return None

    def key_of(device: int, step: int) -> bytes:
        """The key of the noise of ``device``, a place in ``addresses``, at ``step`` (from 0)."""
        return key_at(spec.seed, Stream.STEP_NOISE, *addresses[device], step)

    return StepNoise(multiplier * clip.norm, key_of)


def dropout_draws(spec: Spec, addresses: Sequence[tuple[int, ...]]) -> DropoutDraws:
    """The random draws of dropout masks, for models that have dropout layers.

    Args:
        spec: of the run.
        addresses: for each device that trains, in their order, where its draws lie in the stream of such
            draws; the number of the step is appended.
    """

    def generator_of(device: int, step: int) -> np.random.Generator:
        """The generator of the masks of ``device``, a place in ``addresses``, at ``step`` (from 0)."""
        return generator(spec.seed, Stream.DROPOUT, *addresses[device], step)

    return DropoutDraws(generator_of)


def batches_of(plan: TreePlan, partition: Partition, chosen: IntArray, number: int) -> BatchPlan:
    """Draw the mini-batches of the devices ``chosen`` ``[P]`` for all local steps of round ``number``.

    ``partition``: who holds which rows.
    """
    stream = Stream.BATCHES if plan.spec.training.batches == "shuffled" else Stream.POISSON_BATCHES
    return batches_from(stream, plan, partition, chosen, number, plan.aggregations[-1].step)


def batches_from(
    stream: Stream, plan: TreePlan, partition: Partition, chosen: IntArray, number: int, steps: int
) -> BatchPlan:
    """Draw the mini-batches of ``steps`` steps for each of ``chosen``, or of the epochs that the spec counts.

    Args:
        stream: of random numbers.
        plan: has the spec: batch size, and shuffled or Poisson batches.
        partition: who holds which rows.
        chosen: the devices, ``[P]``.
        number: of the round.
        steps: of each device; not used where epochs are counted.
    """
    return draw_batches(
        plan.spec.training,
        [partition.indices(int(device)) for device in chosen],
        [(int(device),) for device in chosen],
        persons=partition.persons_of(chosen.tolist()),
        steps=steps,
        seed=plan.spec.seed,
        stream=stream,
        address=(number,),
    )


def draw_batches(
    training: Training,
    rows: Sequence[Rows],
    parties: Sequence[tuple[int, ...]],
    *,
    persons: Sequence[Rows] | None = None,
    steps: int,
    passes: int = 1,
    seed: int,
    stream: Stream,
    address: tuple[int, ...],
) -> BatchPlan:
    """Draw the mini-batches of ``steps`` steps for every device, or of the epochs that ``training`` counts.

    Shuffled batches of all devices come from one stream, at ``address``. With Poisson mini-batches every
    device has a stream of its own there, so that its draws do not depend on who else takes part.

    Args:
        training: says which batches, and how large.
        rows: for each device, the rows of the data set that it holds.
        parties: what each device's stream is addressed by, after ``address``; different for each.
        persons: for each device, where the rows of each of its persons begin among its own (`plan_poisson`);
            ``None``: rows are drawn, and not persons.
        steps: of each device, where steps are counted.
        passes: how many times the epochs of a round are done, where epochs are counted.
        seed: of the run.
        stream: of random numbers.
        address: in that stream.
    """
    if training.batches == "poisson":
        each = [generator(seed, stream, *address, *party) for party in parties]
        return plan_batches(training, rows, persons=persons, steps=steps, passes=passes, draws_of_each=each)
    draws = generator(seed, stream, *address)
    return plan_batches(training, rows, steps=steps, passes=passes, draws=draws)


def plan_batches(
    training: Training,
    rows: Sequence[Rows],
    *,
    persons: Sequence[Rows] | None = None,
    steps: int,
    passes: int = 1,
    draws: BatchDraws | None = None,
    draws_of_each: Sequence[BatchDraws] = (),
) -> BatchPlan:
    """The mini-batches of every device from given random draws.

    Args:
        training: says which batches, and how large.
        rows: for each device, the rows of the data set that it holds.
        persons: as in `draw_batches`.
        steps: of each device, where steps are counted.
        passes: how many times the epochs of a round are done, where epochs are counted.
        draws: for shuffled batches of all devices.
        draws_of_each: for Poisson mini-batches, one for each device.
    """
    if training.batches == "poisson":
        assert training.batch_size != "all"  # the spec's own checks see to it
        return plan_poisson(
            rows, steps=steps, batch_size=training.batch_size, rngs=draws_of_each, persons=persons
        )
    assert draws is not None  # the other kind of batches
    if training.local_epochs is not None:
        epochs = training.local_epochs * passes
        return plan_epochs(rows, epochs=epochs, batch_size=training.batch_size, rng=draws)
    return plan_steps(rows, steps=steps, batch_size=training.batch_size, rng=draws)


def server_optimizer(server: Server) -> ServerOptimizer:
    """The optimizer by which the server applies averages, as ``training.server`` of the spec says."""
    if server.optimizer == "adam":
        return ServerAdam(server.learning_rate, server.beta1, server.beta2, server.epsilon)
    return ServerSGD(server.learning_rate, server.momentum)


def batches_before(batches: BatchPlan, aggregation: Aggregation, leaf_of: IntArray) -> BatchPlan:
    """Of a round's batches, those of the local steps between each device's previous aggregation and this one.

    Args:
        batches: of the whole round, of P devices.
        aggregation: the one that comes next.
        leaf_of: the leaf (edge) of every device, ``[P]``.
    """
    if not aggregation.of_edge:
        return batches.between(aggregation.step - aggregation.local_steps, aggregation.step)
    return batches.last_before(aggregation.step, torch.from_numpy(np.array(aggregation.of_edge)[leaf_of]))


def keep_within_(
    plan: TreePlan,
    messages: Tensor,
    bounds: npt.NDArray[np.float64],
    number: int,
    index: int,
) -> None:
    """Refuse messages longer than their bounds; scale down, in place, those that are so by rounding only.

    Afterwards every message is within its bound, on which sensitivities rest.

    Args:
        plan: resolved and calibrated.
        messages: float32 ``[p, M]``.
        bounds: l2 bounds that the schedule declared, ``[p]``.
        number: of the round, from 0.
        index: of the aggregation.

    Raises:
        EnvelopeError: a message is longer than declared by more than rounding, or not finite.
    """
    clip = plan.spec.privacy.clip
    if clip is None or not len(messages):
        return
    norms = row_norms(messages)
    allowed = torch.as_tensor(bounds, dtype=torch.float32, device=messages.device)
    if bool((norms <= allowed).all()):
        return
    if not bool((norms <= allowed * (1 + _ROUNDING)).all()):
        worst = int((norms / allowed).nan_to_num(nan=math.inf).argmax())
        raise EnvelopeError(
            f"round {number + 1}, {plan.releases.steps[index].name}: a message has norm "
            f"{float(norms[worst]):.6g}, but the schedule declared at most {float(allowed[worst]):.6g}; "
            "nothing of this round was sent"
        )
    messages.mul_(scale_factors(norms / allowed, 1.0)[:, None])

"""How devices draw their batches, as facts for the accountant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sfumato.data.dataset_sizes import known_examples
from sfumato.errors import DataError
from sfumato.privacy.batches import SHUFFLED, BatchFacts
from sfumato.schedule.learning_rate import momentum_gain
from sfumato.spec.document import Spec

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_BEYOND = 1e-15
"""Probability that a local step adds up more gradients than are charged, where other records answer."""


def batch_facts(
    spec: Spec, places: IntArray, pieces: Sequence[Sequence[int]], *, starts_from_hidden: bool = False
) -> BatchFacts:
    """The draws of batches behind the messages of a round.

    Args:
        spec: of the protocol.
        places: how many devices each place has that data are divided among.
        pieces: local steps behind each message of a round; where places differ, for each of them.
        starts_from_hidden: whether devices may start from models that no release determines.
    """
    training, compression = spec.training, spec.compression
    if training.batches != "poisson":
        return SHUFFLED
    at_steps = spec.privacy.step_noise
    if compression is not None and compression.error_feedback and not at_steps:
        return BatchFacts(why_not_drawn="devices remember what earlier messages left out (error feedback)")
    if training.keeps_variates:
        return BatchFacts(why_not_drawn="devices remember earlier messages (control variates)")
    sizes = _sizes(spec, places)
    if sizes is None:
        return BatchFacts(why_not_drawn="how many records a device has is not known before they are read")
    rates = np.where(sizes > 0, np.minimum(1.0, _divisor(spec) / np.maximum(sizes, 1)), 0.0)
    answered = starts_from_hidden or training.global_update == "resend" or np.max(np.concatenate(pieces)) > 1
    most = int(sizes.max())
    answering = (most, 0.0) if at_steps else _answering(spec, most) if answered else (0, 0.0)
    known = {tuple(own): _with_moves(spec, rates, own, answering) for own in pieces}
    each = tuple(known[tuple(own)] for own in pieces)
    return each[0] if len(known) == 1 else replace(each[0], moves=(), replaced_moves=(), of_leaf=each)


def _answering(spec: Spec, most: int) -> tuple[int, float]:
    """The most gradients that a step adds up where other records answer, and how likely it adds up more.

    That is the gradients of all ``most`` records of the largest device. At least k of the others are drawn
    with probability at most exp(k - b) (b/k)^k, for k above their expected number, which is at most b, the
    batch size (Chernoff); the record itself is one more.
    """
    expected = float(_divisor(spec))
    count = math.ceil(expected) + 1
    while count < most and count - expected + count * math.log(expected / count) > math.log(_BEYOND):
        count += 1
    return (count, _BEYOND) if count < most else (most, 0.0)


def _with_moves(
    spec: Spec, rates: FloatArray, pieces: Sequence[int], answering: tuple[int, float]
) -> BatchFacts:
    """The facts of devices whose messages of a round hold so many local steps each."""
    rounded = spec.compression is not None and spec.compression.bits is not None
    if not spec.privacy.clips_examples:
        return BatchFacts(rates, tuple(_moves(spec, steps) for steps in pieces), rounded=rounded)
    zeroed, replaced = (
        tuple(_example_moves(spec, steps, answering[0], gradients) for steps in pieces)
        for gradients in (1, 2)
    )
    at_steps = spec.privacy.step_noise
    if at_steps:
        return BatchFacts(rates, zeroed, replaced, clips_examples=True, step_multiplier=at_steps)
    return BatchFacts(rates, zeroed, replaced, True, *answering, rounded=rounded)


def _sizes(spec: Spec, places: IntArray) -> IntArray | None:
    try:
        return known_examples(spec, places)
    except DataError:
        return None


def _divisor(spec: Spec) -> int:
    assert spec.training.batch_size != "all"  # the spec's own checks see to it
    return spec.training.batch_size


def _moves(spec: Spec, steps: int) -> tuple[float, ...]:
    """Share of a message that moves if a record is first drawn at each of its local steps.

    Of a clipped update, all of it; of a sum of clipped steps, what the steps from there on weigh in it.
    """
    clip, momentum = spec.privacy.clip, spec.training.momentum
    if clip is None or clip.kind == "update":
        return (1.0,) * steps
    whole = momentum_gain(steps, momentum)
    return tuple(momentum_gain(steps - before, momentum) / whole for before in range(steps))


def _example_moves(spec: Spec, steps: int, most: int, gradients: int) -> tuple[float, ...]:
    """`_moves` with clipped examples, over twice what one example alone can move a message by.

    One or two gradients at the first draw; after it whole batches, of at most ``most`` gradients, may answer:
    the others of a batch turn round, and the record's own is added, or exchanged.
    """
    gain = [momentum_gain(left, spec.training.momentum) for left in range(steps, -1, -1)]
    return tuple(
        (gradients * (gain[j] - gain[j + 1]) + 2 * most * gain[j + 1]) / (2 * gain[0]) for j in range(steps)
    )

"""How devices draw their batches, as facts for the accountant."""

from __future__ import annotations

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


def batch_facts(spec: Spec, places: IntArray, pieces: Sequence[Sequence[int]]) -> BatchFacts:
    """The draws of batches behind the messages of a round.

    Args:
        spec: of the protocol.
        places: how many devices each place has that data are divided among.
        pieces: local steps behind each message of a round; where places differ, for each of them.
    """
    training, compression = spec.training, spec.compression
    if training.batches != "poisson":
        return SHUFFLED
    at_steps = spec.privacy.step_noise
    if compression is not None and compression.error_feedback and not at_steps:
        return BatchFacts(why_not_drawn="devices remember what earlier messages left out (error feedback)")
    sizes = _sizes(spec, places)
    if sizes is None:
        return BatchFacts(why_not_drawn="how many records a device has is not known before they are read")
    rates = np.where(sizes > 0, np.minimum(1.0, _divisor(spec) / np.maximum(sizes, 1)), 0.0)
    most = int(sizes.max())
    known = {tuple(own): _with_moves(spec, rates, own, most) for own in pieces}
    each = tuple(known[tuple(own)] for own in pieces)
    return each[0] if len(known) == 1 else replace(each[0], moves=(), replaced_moves=(), of_leaf=each)


def _with_moves(spec: Spec, rates: FloatArray, pieces: Sequence[int], most: int) -> BatchFacts:
    """The facts of devices whose messages of a round hold so many local steps each."""
    if not spec.privacy.clips_examples:
        return BatchFacts(rates, tuple(_moves(spec, steps) for steps in pieces))
    zeroed, replaced = (
        tuple(_example_moves(spec, steps, most, gradients) for steps in pieces) for gradients in (1, 2)
    )
    at_steps = spec.privacy.step_noise
    return BatchFacts(rates, zeroed, replaced, clips_examples=True, step_multiplier=at_steps)


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

    One or two gradients at the first draw; after it whole batches, of at most ``most`` gradients, may answer.
    """
    gain = [momentum_gain(left, spec.training.momentum) for left in range(steps, -1, -1)]
    return tuple(
        (gradients * (gain[j] - gain[j + 1]) + 2 * most * gain[j + 1]) / (2 * gain[0]) for j in range(steps)
    )

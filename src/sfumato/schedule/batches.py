"""How devices draw their batches, as facts for the accountant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sfumato.data.dataset_sizes import known_examples
from sfumato.errors import DataError
from sfumato.privacy.batches import SHUFFLED, BatchFacts
from sfumato.schedule.learning_rate import momentum_gain
from sfumato.spec.document import Spec


def batch_facts(spec: Spec, places: npt.NDArray[np.int64], pieces: Sequence[int]) -> BatchFacts:
    """The draws of batches behind the messages of a round.

    Args:
        spec: of the protocol.
        places: how many devices each place has that data are divided among.
        pieces: local steps behind each message of a round.
    """
    training, compression = spec.training, spec.compression
    if training.batches != "poisson":
        return SHUFFLED
    if compression is not None and compression.error_feedback:
        return BatchFacts(why_not_drawn="devices remember what earlier messages left out (error feedback)")
    if spec.privacy.clip is not None and spec.privacy.clip.kind == "example":
        return BatchFacts(why_not_drawn="clips of examples are not accounted for in this version")
    try:
        sizes = known_examples(spec, places)
    except DataError:
        sizes = None
    if sizes is None:
        return BatchFacts(why_not_drawn="how many records a device has is not known before they are read")
    assert training.batch_size != "all"  # the spec's own checks see to it
    rates = np.minimum(1.0, training.batch_size / np.maximum(sizes, 1))
    return BatchFacts(rates, tuple(_moves(spec, steps) for steps in pieces))


def _moves(spec: Spec, steps: int) -> tuple[float, ...]:
    """Share of a message that moves if a record is first drawn at each of its local steps.

    Of a clipped update, all of it; of a sum of clipped steps, what the steps from there on weigh in it.
    """
    clip, momentum = spec.privacy.clip, spec.training.momentum
    if clip is None or clip.kind == "update":
        return (1.0,) * steps
    whole = momentum_gain(steps, momentum)
    return tuple(momentum_gain(steps - before, momentum) / whole for before in range(steps))

"""How devices draw their batches, as facts for the accountant.

With ``privacy.unit: person`` devices draw persons, each of whom brings one of its rows to the step. All that
is said here of records then holds of persons (docs/accounting.md, *One person as the unit*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sfumato.data.dataset_sizes import known_examples
from sfumato.errors import DataError, SpecError
from sfumato.privacy.records import SHUFFLED, BatchFacts
from sfumato.schedule.local_steps import momentum_gain
from sfumato.spec.document import Spec

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_BEYOND = 1e-15
"""Probability that a local step adds up more gradients than are charged, where other records answer."""


def batch_facts(
    spec: Spec, places: IntArray, pieces: Sequence[Sequence[int]], *, starts_from_hidden: bool = False
) -> BatchFacts:
    """The accountant's facts on how devices draw the batches that the messages of a round are trained on.

    Args:
        spec: of the protocol.
        places: number of devices at each place that data are divided among, ``[places]``.
        pieces: number of local steps behind each message of a round; one list for each place where they
            differ.
        starts_from_hidden: whether devices may start from models that no release determines.

    Returns:
        The facts. They have no rates, and say why, where records are not drawn one by one, devices remember
        earlier messages, or the number of records is not known before the data are read.
    """
    training, compression = spec.training, spec.compression
    if training.batches != "poisson":
        return SHUFFLED
    at_steps = spec.privacy.step_noise
    if compression is not None and compression.error_feedback and not at_steps:
        return BatchFacts(why_not_drawn="devices remember what earlier messages left out (error feedback)")
    if training.keeps_variates:
        return BatchFacts(why_not_drawn="devices remember earlier messages (control variates)")
    sizes = _known_record_counts(spec, places)
    if sizes is None:
        what = f"how many {_units(spec)} a device has is not known before they are read"
        return BatchFacts(why_not_drawn=what)
    rates = np.where(sizes > 0, np.minimum(1.0, _expected_batch_size(spec) / np.maximum(sizes, 1)), 0.0)
    answered = starts_from_hidden or training.global_update == "resend" or np.max(np.concatenate(pieces)) > 1
    most = int(sizes.max())
    answering = (most, 0.0) if at_steps else _most_answering(spec, most) if answered else (0, 0.0)
    known = {tuple(own): _facts_of_messages(spec, rates, own, answering) for own in pieces}
    each = tuple(known[tuple(own)] for own in pieces)
    return each[0] if len(known) == 1 else replace(each[0], moves=(), replaced_moves=(), of_leaf=each)


def require_record_rates(spec: Spec, places: IntArray, batches: BatchFacts) -> None:
    """Refuse a target of ε for records or persons, if examples are clipped and sampling rates are not known.

    A clip of examples bounds only what one example adds to a batch: no ε follows without the probability that
    the example is drawn.

    Args:
        spec: of the protocol.
        places: number of devices at each place that data are divided among, ``[places]``.
        batches: how devices draw their batches.

    Raises:
        SpecError: the message says why no rates are known.
    """
    privacy = spec.privacy
    if batches.rates is not None or not (privacy.unit_within_device and privacy.clips_examples):
        return
    units = _units(spec)
    why = f"a target of ε for {units} with privacy.clip.kind: example needs every device's number of {units}"
    instead = "or clip whole updates (privacy.clip.kind: update)"
    try:
        sizes = known_examples(spec, places)
    except DataError as error:
        allowed = (
            f"must be data whose sizes are known before training: {why} ({error}); name a built-in set, a "
            f"file or a folder, give the data in Python (data=...), {instead}"
        )
        raise SpecError("data.source", spec.data.source, allowed) from None
    if sizes is None:
        allowed = f"leaves open how many {units} a device has: {why}; use another partition, {instead}"
        raise SpecError("data.partition.kind", spec.data.partition.kind, allowed)
    allowed = f"must be update or step with a target of ε for {units}: {batches.why_not_drawn}"
    raise SpecError("privacy.clip.kind", "example", allowed)


def _most_answering(spec: Spec, most: int) -> tuple[int, float]:
    """Bound how many gradients a step adds up where other records answer.

    At most those of all ``most`` records of the largest device. At least k of the others are drawn
    with probability at most exp(k - b) (b/k)^k, for k above their expected number, which is at most b, the
    batch size (Chernoff); the record itself is one more.

    Returns:
        The bound, and the probability that one step exceeds it; 0.0 where the bound is ``most``.
    """
    expected = float(_expected_batch_size(spec))
    count = math.ceil(expected) + 1
    while count < most and count - expected + count * math.log(expected / count) > math.log(_BEYOND):
        count += 1
    return (count, _BEYOND) if count < most else (most, 0.0)


def _facts_of_messages(
    spec: Spec, rates: FloatArray, pieces: Sequence[int], answering: tuple[int, float]
) -> BatchFacts:
    """The facts of devices whose messages of a round are trained in ``pieces`` local steps each.

    Args:
        spec: of the protocol.
        rates: of every device, the probability that a record is in a step, ``[devices]``.
        pieces: local steps behind each message.
        answering: the most gradients that a step adds up, and the probability of more; (0, 0.0) where other
            records do not answer.
    """
    rounded = spec.compression is not None and spec.compression.bits is not None
    if not spec.privacy.clips_examples:
        return BatchFacts(rates, tuple(_moved_shares(spec, steps) for steps in pieces), rounded=rounded)
    zeroed, replaced = (
        tuple(_moved_shares_of_example(spec, steps, answering[0], gradients) for steps in pieces)
        for gradients in (1, 2)
    )
    at_steps = spec.privacy.step_noise
    if at_steps:
        return BatchFacts(rates, zeroed, replaced, clips_examples=True, step_multiplier=at_steps)
    return BatchFacts(rates, zeroed, replaced, True, *answering, rounded=rounded)


def _known_record_counts(spec: Spec, places: IntArray) -> IntArray | None:
    """The number of records of every device, ``[devices]``; ``None`` where only reading the data tells.

    ``places``: number of devices at each place that data are divided among.
    """
    try:
        return known_examples(spec, places)
    except DataError:
        return None


def _units(spec: Spec) -> str:
    """What devices draw for a local step, in words."""
    return "persons" if spec.privacy.unit == "person" else "records"


def _expected_batch_size(spec: Spec) -> int:
    """The number of records that a Poisson mini-batch has in expectation."""
    assert spec.training.batch_size != "all"  # the spec's own checks see to it
    return spec.training.batch_size


def _moved_shares(spec: Spec, steps: int) -> tuple[float, ...]:
    """Shares of a message that move if a record is first drawn at each of its ``steps`` local steps.

    Of a clipped update it is 1; of a sum of clipped steps, what the steps from there on weigh in it.
    """
    clip, momentum = spec.privacy.clip, spec.training.momentum
    if clip is None or clip.kind == "update":
        return (1.0,) * steps
    whole = momentum_gain(steps, momentum)
    return tuple(momentum_gain(steps - before, momentum) / whole for before in range(steps))


def _moved_shares_of_example(spec: Spec, steps: int, most: int, gradients: int) -> tuple[float, ...]:
    """How far a record moves a message that is first drawn at each of ``steps`` local steps, one a step.

    In units of twice what one example alone can move it by. One or two ``gradients`` at the first draw; after
    it whole batches, of at most ``most`` gradients, may answer: the others of a batch turn round, and the
    record's own is added (1), or exchanged (2).
    """
    gain = [momentum_gain(left, spec.training.momentum) for left in range(steps, -1, -1)]
    return tuple(
        (gradients * (gain[j] - gain[j + 1]) + 2 * most * gain[j + 1]) / (2 * gain[0]) for j in range(steps)
    )

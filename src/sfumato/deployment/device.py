"""A device: asked with a model, it answers with whole numbers, rounded and noised. Bytes in, bytes out.

In a round in which it takes no part it answers with zeros, without noise. It does all of its work all the
same, so that neither time nor a failure tells which it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.consent import Agreement
from sfumato.deployment.memory import COIN, PartyMemory
from sfumato.deployment.messages import IntArray, Model, RoundPosition, question_hash
from sfumato.deployment.parent_hop import ParentHop
from sfumato.deployment.randomness import Randomness, answer_context, round_context
from sfumato.deployment.terms import DeploymentTerms
from sfumato.secure_aggregation.encoding import encode
from sfumato.wire.errors import UnsafeTermsError
from sfumato.wire.keys import Identity

if TYPE_CHECKING:
    from sfumato.deployment.local_data import LocalData
    from sfumato.learning.batches import BatchPlan


class DeviceParty:
    """The state machine of one device.

    Args:
        agreement: of this device to the terms of the run.
        data: its own.
        identity: its signing key.
        memory: of its answers, on disk.
        randomness: its secret choices.

    Raises:
        UnsafeTermsError: the identity is not the one that the terms name.
    """

    def __init__(
        self,
        agreement: Agreement,
        data: LocalData,
        identity: Identity,
        memory: PartyMemory,
        randomness: Randomness,
    ) -> None:
        self.number, terms, self._agreement = agreement.device, agreement.terms, agreement
        require_own_key(terms, self.number, identity)
        assert isinstance(terms, DeploymentTerms)  # workers of groups are `worker.WorkerParty`
        self._terms = terms
        self._data, self._identity, self._memory = data, identity, memory
        self._randomness = randomness
        self._batches: tuple[int, BatchPlan] | None = None
        noted = agreement.notes.survivors
        self._parent = ParentHop(self.number, terms.parent(self.number), terms, identity, memory, noted)

    def receive(self, data: bytes) -> list[bytes]:
        """Answer ``data``, a frame of the parent; returns the frames to send.

        A question that was answered before gets the same whole numbers again.

        Raises:
            TransportError: the frame is rejected; nothing is sent, and no answer has changed.
            ConsentRefusedError: other runs have used up the total meanwhile; nothing is sent.
            SessionMemoryError: the answer cannot be recorded, or a copy of this device gave another one;
                nothing is sent.
        """
        terms, memory, parent = self._terms, self._memory, self._parent
        if (sent := parent.masks(data)) is not None:
            return sent
        position, attempt, model = parent.question(data)
        question = question_hash(position, model)
        kept = memory.answer(terms.session, position, question)
        if kept is None:
            terms.require_turn(position, memory.last(terms.session), skips=terms.devices_may_be_lost)
            self._agreement.book()  # does nothing where this run is booked
            steps = self._steps(position, model, question)
            kept = parent.kept(position, question, steps)
            memory.record(terms.session, position, question, kept)
        self._agreement.notes.answer(position, memory.commitment(terms.session, position))
        return parent.answered(position, question, attempt, kept)

    def _steps(self, position: RoundPosition, model: Model, question: bytes) -> IntArray:
        """The message as sent, clipped, rounded at random and noised, in grid steps, int64 ``[M]``.

        Zeros if the device takes no part in the round.

        Args:
            position: of the aggregation.
            model: to start from, ``[M]``.
            question: hash of the question.
        """
        terms, own, number = self._terms, self._identity, position.round
        if self._batches is None or self._batches[0] != number:
            context = round_context(own, terms.session, self.number, number)
            size, persons = self._data.size, self._data.persons
            drawn = self._randomness.batches(terms.plan, number, size, 1, context, persons)
            self._batches = number, drawn
        message = self._data.message(position, model, self._batches[1])
        context = answer_context(own, terms.session, self.number, position, question)
        key = self._randomness.noise_key(position, context)
        steps = noised_message(terms, self.number, position, message, key)
        return steps if self._takes_part(number) else np.zeros_like(steps)

    def _takes_part(self, number: int) -> bool:
        """Whether this device takes part in round ``number``: one draw for all of its aggregations.

        The memory keeps it over restarts.
        """
        plan, session = self._terms.plan, self._terms.session
        if not self._terms.devices_draw:
            return True
        context = round_context(self._identity, session, self.number, number)
        drawn = self._randomness.takes_part(plan, number, context)
        kept = self._memory.keep_draw(session, number, bytes([drawn]))
        coin = self._memory.commitment(session, RoundPosition(number, COIN))
        self._agreement.notes.coin(number, coin)
        return kept == b"\x01"


def noised_message(
    terms: CommonTerms, device: int, position: RoundPosition, message: Model, key: bytes
) -> IntArray:
    """A message with rounding and noise, as a device sends it, in steps of the grid ``[M]``.

    Args:
        terms: of the run.
        device: its number.
        position: of the aggregation.
        message: clipped and weighted ``[M]``; private.
        key: 32 bytes; private, used once.
    """
    encoding = terms.encoding(device, position)
    if encoding is None:
        return np.zeros(terms.parameters, np.int64)
    share, how = encoding
    return encode(message.astype(np.float64) * share, how, key).view(np.int64)


def require_own_key(terms: CommonTerms, number: int, identity: Identity) -> None:
    """Check that ``identity`` is the one that the terms have for party ``number``.

    Raises:
        UnsafeTermsError: it is another one.
    """
    if terms.keys[number] != identity.public:
        raise UnsafeTermsError(f"{terms.name(number)}: its key is not the one that the terms name")

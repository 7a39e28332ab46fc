"""An edge: one process with a face to its parent and one to its devices. Bytes in, bytes out.

The cloud asks it once a round. It then asks its devices for one aggregation after the other. After each but
the last it adds its noise, if the plan says so, and asks on with the model that its sums lead to. The sums of
the whole round, whole numbers on one grid, are its answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.deployment.collecting import Collection, with_own_noise, without_child
from sfumato.deployment.device import require_own_key
from sfumato.deployment.masked_sums import collection_of
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import (
    IntArray,
    Model,
    RoundPosition,
    question_hash,
    steps_as_bytes,
    steps_from_bytes,
)
from sfumato.deployment.parent_hop import ParentHop
from sfumato.deployment.randomness import Randomness, answer_context
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import SfumatoError
from sfumato.wire.errors import OutOfOrderMessageError, UnsafeTermsError
from sfumato.wire.frames import parse_frame
from sfumato.wire.keys import Identity


@dataclass
class _Round:
    """The round that an edge is in.

    Attributes:
        number: from 0.
        question: a hash of the cloud's.
        attempt: of the cloud, where its hop is masked.
        model: that the round began with ``[M]``.
        offset: what the edge's average has added to it so far, float64 ``[M]``.
        total: the same, in steps of the grid ``[M]``.
    """

    number: int
    question: bytes
    attempt: bytes
    model: Model
    offset: npt.NDArray[np.float64]
    total: IntArray


class EdgeParty:
    """The state machine of one edge.

    Args:
        number: its number in the terms.
        terms: of the run.
        identity: its signing key.
        memory: of its answers, on disk.
        randomness: its secret choices.

    Raises:
        UnsafeTermsError: the identity is not the one that the terms name.
    """

    def __init__(
        self,
        number: int,
        terms: DeploymentTerms,
        identity: Identity,
        memory: PartyMemory,
        randomness: Randomness,
    ) -> None:
        require_own_key(terms, number, identity)
        self.number, self._terms, self._identity = number, terms, identity
        self._memory, self._randomness = memory, randomness
        self._round: _Round | None = None
        self._collection: Collection | None = None
        self._parent = ParentHop(number, terms.cloud, terms, identity, memory, on_survivors=None)

    def receive(self, data: bytes) -> list[bytes]:
        """Take ``data``, a frame of the cloud or of a device; returns the frames to send.

        A repeated question gets the same whole numbers again if it was answered. Else the round begins again,
        in which devices repeat their own answers.

        Raises:
            TransportError: the frame is rejected; nothing is sent, and no answer has changed.
            SessionMemoryError: an answer cannot be recorded; nothing is sent.
        """
        if parse_frame(data).sender == self._terms.cloud:
            sent = self._parent.masks(data)
            return self._asked(data) if sent is None else sent
        if self._collection is None:
            raise OutOfOrderMessageError(f"{self._terms.name(self.number)}: an answer to no question")
        following = self._collection.add(data)
        return following if self._collection.missing else self._aggregated(self._collection)

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without device ``child``, which does not answer because of ``error``; returns frames to send.

        Raises:
            SfumatoError: ``error``, if no device may be lost; or too few are left, or an answer cannot be
                recorded.
        """
        done = self._collection
        following = without_child(done, self._terms, self.number, child, error)
        return following if done is None or done.missing else self._aggregated(done)

    def _asked(self, data: bytes) -> list[bytes]:
        """Begin the round that the cloud asks for in frame ``data``; returns the frames to send.

        Raises:
            OutOfOrderMessageError: the position is not the cloud's, or it is not its turn.
        """
        terms, memory = self._terms, self._memory
        position, attempt, model = self._parent.question(data)
        if position.aggregation != terms.last:  # others are recorded too, and are the edge's own business
            raise OutOfOrderMessageError(f"{position}: is not the cloud's")
        question = question_hash(position, model)
        earlier = memory.answer(terms.session, position, question)
        if earlier is not None:
            return self._parent.answered(position, question, attempt, earlier)
        if memory.answer(terms.session, RoundPosition(position.round, 0), question) is None:
            terms.require_turn(RoundPosition(position.round, 0), memory.last(terms.session))
        nothing = np.zeros(terms.parameters, np.int64)
        self._round = _Round(position.round, question, attempt, model, nothing.astype(np.float64), nothing)
        return self._ask(RoundPosition(position.round, 0))

    def _ask(self, position: RoundPosition) -> list[bytes]:
        """Frames that ask the devices about the next unanswered aggregation, from ``position`` on.

        Sums of earlier aggregations are read from the memory, as after a restart.
        """
        terms, now = self._terms, self._round
        assert now is not None  # the callers have set it
        while position.aggregation < terms.last:
            earlier = self._memory.answer(terms.session, position, now.question)
            if earlier is None:
                break
            self._advance(position, steps_from_bytes(earlier))
            position = RoundPosition(position.round, position.aggregation + 1)
        start = (now.model.astype(np.float64) + now.offset).astype(np.float32)
        self._collection = collection_of(
            terms, self.number, position, start, self._identity, self._memory, self._randomness
        )
        return self._collection.questions()

    def _advance(self, position: RoundPosition, steps: IntArray) -> None:
        """Add the released sum ``steps`` ``[M]`` of aggregation ``position`` to the edge's model and total.

        Raises:
            UnsafeTermsError: it is on another grid than the sum of the round, so that they cannot be added.
        """
        now, grid = self._round, self._terms.grid(position)
        assert now is not None  # the callers have set it
        if grid.scale != self._terms.grid(self._terms.at(position.round)).scale:
            raise UnsafeTermsError(f"{position}: is on another grid than the sum of its round")
        tier, index = self._terms.place(self.number)
        now.offset = now.offset + steps / (grid.scale * grid.weights[tier][index])
        now.total = now.total + steps

    def _aggregated(self, done: Collection) -> list[bytes]:
        """Record the edge's own aggregate once all devices have answered in ``done``.

        Returns:
            The frames to send: the next questions, or the answer to the cloud.
        """
        terms, position, now = self._terms, done.position, self._round
        assert now is not None  # there was a question
        context = answer_context(self._identity, terms.session, self.number, position, now.question)
        key = self._randomness.noise_key(position, context)
        steps = with_own_noise(terms, self.number, position, done.total, key)
        self._collection = None
        if position.aggregation < terms.last:
            self._memory.record(terms.session, position, now.question, steps_as_bytes(steps))
            return self._ask(position)
        total = now.total + steps
        kept = self._parent.kept(position, now.question, total)
        self._memory.record(terms.session, position, now.question, kept)
        self._round = None
        return self._parent.answered(position, now.question, now.attempt, kept)

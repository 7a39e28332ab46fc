"""An aggregator's side of a masked hop: it forwards what it cannot read, and learns one sum."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from sfumato.deployment.collecting import (
    Collection,
    PlainCollection,
    lost_party,
    questions_for,
    require_position,
)
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.fixed_draws import counted_children
from sfumato.deployment.masked_hops import masked_terms
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import (
    ATTEMPT_BYTES,
    FrameKind,
    IntArray,
    Model,
    RoundPosition,
    decode_masking,
    encode_masking,
    encode_question,
    question_hash,
)
from sfumato.deployment.randomness import Randomness
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import SfumatoError
from sfumato.secure_aggregation.messages import decode_parties
from sfumato.secure_aggregation.server import AggregationServer, Phase
from sfumato.wire.errors import (
    BelowThresholdError,
    InconsistentSurvivorsError,
    MessageError,
    MisroutedMessageError,
    OutOfOrderMessageError,
    ReplayedMessageError,
)
from sfumato.wire.frames import Frame, open_frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity


class MaskedCollection:
    """The sum of masked answers, by one session of secure aggregation; see `Collection` and `masked_hops`.

    A phase of the session ends when all remaining children have sent their message of it. The list of
    survivors is recorded before it is sent; if one was recorded before a crash, only those on it are asked.

    Args:
        terms: of the run.
        node: number of the aggregator.
        position: of the aggregation.
        model: that children start from ``[M]``.
        identity: of the aggregator, which remembers its sessions.
        memory: of the aggregator.

    Raises:
        SessionMemoryError: the session cannot be recorded.
    """

    def __init__(
        self,
        terms: DeploymentTerms,
        node: int,
        position: RoundPosition,
        model: Model,
        identity: Identity,
        memory: PartyMemory,
    ) -> None:
        self._terms, self._node, self.position = terms, node, position
        self._model, self._identity, self._memory = model, identity, memory
        self._attempt = os.urandom(ATTEMPT_BYTES)
        question = question_hash(position, model)
        session = masked_terms(terms, node, position, question, self._attempt)
        self._server = AggregationServer(session, identity)
        self._children = list(terms.children(node))
        listed = memory.survivors(terms.session, node, position)
        self._needed = None if listed is None else {self._children[place] for place in decode_parties(listed)}
        self._lost: list[str] = []
        self._place = f"{terms.name(node)}: {position}"
        self._waiting = set(self._children if self._needed is None else self._needed)

    @property
    def missing(self) -> list[int]:
        """Numbers of the children whose message of the present phase is missing."""
        return sorted(self._waiting)

    @property
    def total(self) -> IntArray:
        """The sum of all answers, in steps of the grid ``[M]``.

        Raises:
            OutOfOrderMessageError: somebody is still missing.
        """
        total = self._server.result[0].astype(np.int64)
        tier, _ = self._terms.place(self._node)
        return self._terms.grid(self.position).received(tier).wrapped(total)

    def questions(self) -> list[bytes]:
        """The frames that ask children to begin the session."""
        payload = encode_question(self.position, self._model, self._attempt)
        return questions_for(sorted(self._waiting), self._terms, self._node, payload, self._identity)

    def add(self, data: bytes) -> list[bytes]:
        """Take ``data``, a message of the session.

        Returns:
            The messages of the next phase if this was the last one that was awaited; else [].

        Raises:
            MessageError: the message is rejected; the session is unchanged.
            AbortError: the session has ended without a sum.
            SessionMemoryError: the list of survivors cannot be recorded.
        """
        terms = self._terms
        frame = open_frame(
            data,
            session=terms.session,
            keys=terms.children(self._node),
            recipient=self._node,
            expected=FrameKind.MASKING,
        )
        name = terms.name(frame.sender)
        position, attempt, message = decode_masking(frame.payload)
        require_position(name, position, self.position)
        if attempt != self._attempt:
            raise ReplayedMessageError(f"{name}: a message of another session about {position}")
        if self._needed is not None and frame.sender not in self._needed:
            raise OutOfOrderMessageError(f"{name}: is not on the list of survivors of {position}")
        if parse_frame(message).sender != self._children.index(frame.sender):
            raise MisroutedMessageError(f"{name}: a message of another party of the session")
        try:
            self._server.receive(message)
        except InconsistentSurvivorsError:  # as good as no signature: the session can do without it
            raise MessageError(f"{name}: signed another list of survivors") from None
        self._waiting.discard(frame.sender)
        return [] if self._waiting else self._closed()

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without a child; returns the messages of the next phase if only its message was missing.

        Raises:
            AbortError: too few are left, or one is lost that is needed: there is no sum.
        """
        lost = lost_party(self._terms, child, error)
        if self._needed is not None and self._server.phase <= Phase.MASK:
            told = "others may have been told before a crash that its message is in the sum"
            raise BelowThresholdError(f"{self._place}: {lost} is needed: {told}")
        self._waiting.discard(child)
        self._lost.append(lost)
        return [] if self._waiting else self._closed()

    def _closed(self) -> list[bytes]:
        """End the phase that is open; returns the frames of the next one.

        Raises:
            BelowThresholdError: too few children are left to go on.
        """
        ended = self._server.phase
        try:
            messages = self._server.close()
        except BelowThresholdError as below:
            raise BelowThresholdError(f"{self._place}: {below}; lost: {', '.join(self._lost)}") from None
        if ended is Phase.MASK:
            listed = parse_frame(next(iter(messages.values()))).payload
            kept = self._memory.keep_survivors(self._terms.session, self._node, self.position, listed)
            assert kept == listed  # only those on a list that was kept were asked, and all of them came
        return self._sent(messages)

    def _sent(self, messages: Mapping[int, bytes]) -> list[bytes]:
        """Frames with the ``messages`` of a new phase, by number of a child; all have to answer them."""
        if self._server.phase is not Phase.DONE:
            self._waiting = {self._children[place] for place in messages}
        frames = []
        for place, message in messages.items():
            payload = encode_masking(self.position, self._attempt, message)
            child = self._children[place]
            frame = Frame(FrameKind.MASKING, self._terms.session, self._node, child, payload)
            frames.append(seal_frame(frame, self._identity))
        return frames


def collection_of(
    terms: CommonTerms,
    node: int,
    position: RoundPosition,
    model: Model,
    identity: Identity,
    memory: PartyMemory,
    randomness: Randomness,
) -> Collection:
    """A new collection of answers for aggregator ``node``: masked if its hop is, else plain.

    ``randomness``: its secret choices, by which it may draw whose answers it adds up; the other arguments are
    those of `MaskedCollection`.
    """
    if isinstance(terms, DeploymentTerms) and terms.is_masked(node):  # others have no masks
        return MaskedCollection(terms, node, position, model, identity, memory)
    counted = counted_children(terms, node, position.round, identity, memory, randomness)
    return PlainCollection(terms, node, position, model, identity, counted)

"""An aggregator's side of a masked hop: it forwards what it cannot read, and learns one sum."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from sfumato.deployment.collecting import Collection, PlainCollection, asked_of_all, require_position
from sfumato.deployment.masked_hops import masked_terms
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
from sfumato.deployment.terms import DeploymentTerms
from sfumato.secure_aggregation.server import AggregationServer, Phase
from sfumato.wire.errors import MisroutedMessageError, ReplayedMessageError
from sfumato.wire.frames import Frame, open_frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity


class MaskedCollection:
    """Answers under masks, by one session of `secure_aggregation`; see `Collection` and `masked_hops`.

    A phase of the session ends when all children have sent their message of it: nobody may be missing.

    Args:
        terms: of the run.
        node: the aggregator.
        position: what is asked about.
        model: that children start from ``[M]``.
        identity: of the aggregator, which remembers its sessions.
    """

    def __init__(
        self, terms: DeploymentTerms, node: int, position: RoundPosition, model: Model, identity: Identity
    ) -> None:
        self._terms, self._node, self.position = terms, node, position
        self._model, self._identity = model, identity
        self._attempt = os.urandom(ATTEMPT_BYTES)
        question = question_hash(position, model)
        session = masked_terms(terms, node, position, question, self._attempt)
        self._server = AggregationServer(session, identity)
        self._children = list(terms.children(node))
        self._waiting = set(self._children)

    @property
    def missing(self) -> list[int]:
        """Who has not sent its message of the phase that is open."""
        return sorted(self._waiting)

    @property
    def total(self) -> IntArray:
        """The sum of the session, in steps of the grid ``[M]``.

        Raises:
            OutOfOrderMessageError: somebody is missing yet.
        """
        total = self._server.result[0].astype(np.int64)
        tier, _ = self._terms.place(self._node)
        return self._terms.grid(self.position).received(tier).wrapped(total)

    def questions(self) -> list[bytes]:
        """The frames that ask every child to begin the session."""
        payload = encode_question(self.position, self._model, self._attempt)
        return asked_of_all(self._terms, self._node, payload, self._identity)

    def add(self, data: bytes) -> list[bytes]:
        """Take a message of the session; when all have sent theirs, the messages of the next phase.

        Raises:
            MessageError: rejected; the session is as before.
            AbortError: the session has ended without a sum.
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
        if parse_frame(message).sender != self._children.index(frame.sender):
            raise MisroutedMessageError(f"{name}: a message of another party of the session")
        self._server.receive(message)
        self._waiting.discard(frame.sender)
        return [] if self._waiting else self._sent(self._server.close())

    def _sent(self, messages: Mapping[int, bytes]) -> list[bytes]:
        """The messages of a new phase as frames; all have to answer them."""
        if self._server.phase is not Phase.DONE:
            self._waiting = set(self._children)
        frames = []
        for place, message in messages.items():
            payload = encode_masking(self.position, self._attempt, message)
            child = self._children[place]
            frame = Frame(FrameKind.MASKING, self._terms.session, self._node, child, payload)
            frames.append(seal_frame(frame, self._identity))
        return frames


def collection_of(
    terms: DeploymentTerms, node: int, position: RoundPosition, model: Model, identity: Identity
) -> Collection:
    """The collection of an aggregator, over the hop that it has; arguments as of both kinds."""
    kind = MaskedCollection if terms.is_masked(node) else PlainCollection
    return kind(terms, node, position, model, identity)

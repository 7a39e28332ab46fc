"""A child's side of the hop to its parent, plain or masked: what it is asked, and how an answer is sent."""

from __future__ import annotations

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.masked_hops import MaskedChild, SurvivorsNoted
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import (
    FrameKind,
    IntArray,
    Model,
    RoundPosition,
    decode_question,
    encode_answer,
    steps_as_bytes,
)
from sfumato.deployment.terms import DeploymentTerms
from sfumato.wire.frames import Frame, open_frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity


class ParentHop:
    """The side of a device, or of an edge, of the hop to a parent.

    Args:
        number: of the party.
        parent: number of the parent.
        terms: of the run.
        identity: its signing key.
        memory: of its answers.
        on_survivors: see `MaskedChild`.
    """

    def __init__(
        self,
        number: int,
        parent: int,
        terms: CommonTerms,
        identity: Identity,
        memory: PartyMemory,
        on_survivors: SurvivorsNoted | None,
    ) -> None:
        self._number, self._terms, self._identity = number, terms, identity
        self._parent = parent
        self._masked: MaskedChild | None = None
        if isinstance(terms, DeploymentTerms) and terms.is_masked(parent):  # others have no masks
            self._masked = MaskedChild(number, terms, identity, memory, on_survivors)

    def masks(self, data: bytes) -> list[bytes] | None:
        """Answer ``data`` if the hop is masked and it is a frame of secure aggregation; else ``None``.

        Returns the frames to send. On a plain hop always ``None``, whatever ``data`` is.

        Raises:
            TransportError: the frame is rejected; nothing is sent.
        """
        if self._masked is None or parse_frame(data).kind != FrameKind.MASKING:
            return None
        return self._masked.receive(data)

    def question(self, data: bytes) -> tuple[RoundPosition, bytes, Model]:
        """Open ``data``, a question of the parent: its position, its attempt and its model ``[M]``.

        Raises:
            TransportError: the frame is rejected.
        """
        terms, parent = self._terms, self._parent
        frame = open_frame(
            data,
            session=terms.session,
            keys={parent: terms.keys[parent]},
            recipient=self._number,
            expected=FrameKind.QUESTION,
        )
        return decode_question(frame.payload, terms.parameters)

    def kept(self, position: RoundPosition, question: bytes, steps: IntArray) -> bytes:
        """The bytes to record of an answer ``steps``, int64 ``[M]``: its frame; on a masked hop the numbers.

        ``question``: hash of the question that is answered.
        """
        if self._masked is not None:
            return steps_as_bytes(steps)
        payload = encode_answer(position, question, steps)
        frame = Frame(FrameKind.ANSWER, self._terms.session, self._number, self._parent, payload)
        return seal_frame(frame, self._identity)

    def answered(self, position: RoundPosition, question: bytes, attempt: bytes, kept: bytes) -> list[bytes]:
        """The frames to send once an answer is recorded: the answer, or the first of its secure aggregation.

        ``question``: its hash; ``attempt``: of the parent; ``kept``: the record, from `kept`.

        Raises:
            RepeatedSessionError: this attempt was begun before.
            SessionMemoryError: the attempt cannot be recorded.
        """
        return [kept] if self._masked is None else self._masked.begin(position, question, attempt)

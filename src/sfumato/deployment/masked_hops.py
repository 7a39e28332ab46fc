"""Secure aggregation over a masked hop: which terms, and the child's side.

For every aggregation and every time that it is asked for (an *attempt*) there is one session of
`secure_aggregation`, over the complete graph, towards a malicious aggregator. Its label is a hash of the
deployment's session, the question, the aggregator and the attempt: no two attempts have a mask in common.

*Everybody or nobody.* Faults are not deployed yet, so the account counts the noise of all children in every
sum. So the threshold is the number n of children, of survivors as of shares: there is the sum of all of them,
or none. It follows that an attempt may be repeated. A child records its vector, noise included, before its
first attempt, and masks the same one in every further attempt; so whatever the aggregator does, it learns the
sum of these n vectors, or nothing. (With a threshold below n it could let one child fall out of the second
attempt, and would have the message of that child as the difference of two sums.) With n shares needed to
rebuild a secret, up to n − 2 children may side with the aggregator: it then knows the sum of the two others
(`secure_aggregation.threats`, with t = s = n and c = n − 2: 2t > n + c, 2s > n + c and t − c = 2).
"""

from __future__ import annotations

import os

from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import (
    FrameKind,
    RoundPosition,
    decode_masking,
    encode_masking,
    steps_from_bytes,
)
from sfumato.deployment.terms import DeploymentTerms
from sfumato.radio.secagg_traffic import RING_BITS
from sfumato.secure_aggregation.client import Client
from sfumato.secure_aggregation.masks import RingVector, ring_type
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.terms import SessionTerms, complete_terms
from sfumato.wire.errors import OutOfOrderMessageError
from sfumato.wire.frames import Frame, open_frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity, digest


def masked_terms(
    terms: DeploymentTerms, node: int, position: RoundPosition, question: bytes, attempt: bytes
) -> SessionTerms:
    """The terms of the session of one attempt.

    Args:
        terms: of the run.
        node: the aggregator.
        position: of the aggregation.
        question: hash of the question.
        attempt: drawn by the aggregator.
    """
    keys = tuple(terms.children(node).values())
    where = (number.to_bytes(8, "big") for number in (node, *position))
    label = digest(b"masked", terms.session, *where, question, attempt).hex()
    return complete_terms(
        label,
        keys,
        terms.keys[node],
        length=terms.parameters,
        threshold=len(keys),
        threat_model="malicious",
        colluders=len(keys) - 2,
        bits=RING_BITS,
    )


class MaskedChild:
    """The side of a device, or of an edge, of the masked hop to its parent.

    It masks what the memory has recorded as the answer, whole numbers of 64 bits, and nothing else.

    Args:
        number: of the party.
        terms: of the run.
        identity: its signing key, which remembers its sessions.
        memory: of its answers.
    """

    def __init__(self, number: int, terms: DeploymentTerms, identity: Identity, memory: PartyMemory) -> None:
        self._number, self._terms, self._identity = number, terms, identity
        self._memory, self._parent = memory, terms.parent(number)
        self._client: Client | None = None
        self._position, self._question, self._attempt = RoundPosition(0, 0), b"", b""

    def begin(self, position: RoundPosition, question: bytes, attempt: bytes) -> list[bytes]:
        """Begin a session for an answer that is recorded: the frame that advertises its keys.

        Raises:
            RepeatedSessionError: this attempt was begun before.
            SessionMemoryError: that cannot be recorded.
        """
        session = masked_terms(self._terms, self._parent, position, question, attempt)
        place = list(self._terms.children(self._parent)).index(self._number)
        client = Client(place, session, self._identity, os.urandom)
        self._client, self._position = client, position
        self._question, self._attempt = question, attempt
        return self._sent(client.advertise())

    def receive(self, data: bytes) -> list[bytes]:
        """Answer a frame of the session that was begun last.

        Raises:
            TransportError: rejected; nothing is sent.
        """
        terms, parent = self._terms, self._parent
        frame = open_frame(
            data,
            session=terms.session,
            keys={parent: terms.keys[parent]},
            recipient=self._number,
            expected=FrameKind.MASKING,
        )
        position, attempt, message = decode_masking(frame.payload)
        if self._client is None or (position, attempt) != (self._position, self._attempt):
            raise OutOfOrderMessageError(f"{position}: a message of a session that is not under way")
        return self._sent(self._reply(self._client, message))

    def _reply(self, client: Client, message: bytes) -> bytes:
        """What the session has this party say to ``message``."""
        kind = parse_frame(message).kind
        if kind == MessageKind.ROSTER:
            return client.share_keys(message)
        if kind == MessageKind.DELIVERY:
            return client.masked_input(message, self._vector())
        return client.consent(message) if kind == MessageKind.SURVIVORS else client.unmask(message)

    def _vector(self) -> RingVector:
        """The recorded answer, in the ring ``[M]``."""
        recorded = self._memory.answer(self._terms.session, self._position, self._question)
        if recorded is None:
            raise OutOfOrderMessageError(f"{self._position}: there is no answer to mask")
        return steps_from_bytes(recorded).astype(ring_type(RING_BITS))  # modulo 2^32

    def _sent(self, message: bytes) -> list[bytes]:
        payload = encode_masking(self._position, self._attempt, message)
        frame = Frame(FrameKind.MASKING, self._terms.session, self._number, self._parent, payload)
        return [seal_frame(frame, self._identity)]

"""Secure aggregation over a masked hop: which terms, and the child's side.

For every aggregation and every time that it is asked for (an *attempt*) there is one session of
`secure_aggregation`, over the complete graph, towards a malicious aggregator. Its label is a hash of the
deployment's session, the question, the aggregator and the attempt: no two attempts have a mask in common.

*The threshold* t, of survivors as of shares, is how many of the n children the account counts in every sum
that is released (`DeploymentTerms.fewest`): all of them, unless the spec declares that devices drop out. With
fewer there is no sum, and nothing is learnt. Up to c = min(2t − n − 1, t − 2) children may do anything
together with the aggregator, for all three hold then that `secure_aggregation.threats` asks for: 2t > n + c,
2s > n + c (s = t) and t − c ≥ 2. There is such a c ≥ 0, as t > n/2 and n ≥ 2.

*An attempt may be repeated.* A child records its vector, noise included, before its first attempt, and masks
the same one in every further attempt. Two sums of two lists of survivors would tell a message as their
difference. So a child signs one list of survivors an aggregation, in whichever attempt: it keeps the first
one (`PartyMemory.keep_survivors`), and refuses to sign another. A sum over a list needs t signatures of it in
its attempt, t − c of honest children. Two lists would need 2(t − c) honest children, each of whom signs one
of them; there are n − c, and 2(t − c) > n − c by 2t > n + c. So in all attempts together the aggregator
learns at most the sum of the vectors of one list, which every attempt that ends well comes to again.

A memory does not notice that an older copy of it was put back. So a device also notes the list in its owner's
ledger (`ledger`), outside the folder, before it signs, and signs no other one. Edges have no ledger and need
none: they are never lost (t = n), so every edge refuses a list that leaves somebody out.

An honest aggregator keeps its list too, before it tells it to anybody, and asks only those on it when the
aggregation is repeated after a crash. All of them are needed then.
"""

from __future__ import annotations

import os
from collections.abc import Callable

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
from sfumato.wire.errors import OutOfOrderMessageError, RevealRefusedError
from sfumato.wire.frames import Frame, open_frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity, digest

SurvivorsNoted = Callable[[RoundPosition, bytes], None]
"""Notes outside the folder that a list of survivors is signed; with a SessionMemoryError it is not signed."""


def masked_terms(
    terms: DeploymentTerms, node: int, position: RoundPosition, question: bytes, attempt: bytes
) -> SessionTerms:
    """The terms of the secure aggregation of one attempt.

    Args:
        terms: of the run.
        node: number of the aggregator.
        position: of the aggregation.
        question: hash of the question.
        attempt: 16 bytes that the aggregator drew.
    """
    keys, fewest = tuple(terms.children(node).values()), terms.fewest(node)
    where = (number.to_bytes(8, "big") for number in (node, *position))
    label = digest(b"masked", terms.session, *where, question, attempt).hex()
    return complete_terms(
        label,
        keys,
        terms.keys[node],
        length=terms.parameters,
        threshold=fewest,
        threat_model="malicious",
        colluders=terms.colluders(node),
        bits=RING_BITS,
    )


class MaskedChild:
    """A child's side of secure aggregation with its parent: that of a device or an edge.

    It masks only what the memory has recorded as the answer: whole numbers of 64 bits.

    Args:
        number: of the party.
        terms: of the run.
        identity: its signing key, which remembers its sessions.
        memory: of its answers.
        on_survivors: called before a list of survivors is signed; ``None`` for an edge, which signs only the
            list of all.
    """

    def __init__(
        self,
        number: int,
        terms: DeploymentTerms,
        identity: Identity,
        memory: PartyMemory,
        on_survivors: SurvivorsNoted | None,
    ) -> None:
        self._number, self._terms, self._identity = number, terms, identity
        self._memory, self._parent, self._on_survivors = memory, terms.parent(number), on_survivors
        assert on_survivors is not None or not terms.may_lose_children(self._parent)
        self._client: Client | None = None
        self._position, self._question, self._attempt = RoundPosition(0, 0), b"", b""

    def begin(self, position: RoundPosition, question: bytes, attempt: bytes) -> list[bytes]:
        """Begin a session for a recorded answer; returns the frame that advertises its keys, as a list.

        ``question``: hash of the question; ``attempt``: 16 bytes that the parent drew.

        Raises:
            RepeatedSessionError: this attempt was begun before.
            SessionMemoryError: the attempt cannot be recorded.
        """
        session = masked_terms(self._terms, self._parent, position, question, attempt)
        place = list(self._terms.children(self._parent)).index(self._number)
        client = Client(place, session, self._identity, os.urandom)
        self._client, self._position = client, position
        self._question, self._attempt = question, attempt
        return self._sent(client.advertise())

    def receive(self, data: bytes) -> list[bytes]:
        """Answer ``data``, a frame of the session that was begun last; returns the frames to send.

        Raises:
            TransportError: the frame is rejected; nothing is sent.
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
        """This party's message of secure aggregation in answer to ``message``, by the phase of that."""
        kind = parse_frame(message).kind
        if kind == MessageKind.ROSTER:
            return client.share_keys(message)
        if kind == MessageKind.DELIVERY:
            return client.masked_input(message, self._vector())
        return self._signed(client, message) if kind == MessageKind.SURVIVORS else client.unmask(message)

    def _signed(self, client: Client, survivors: bytes) -> bytes:
        """The signature of a list of survivors, if it is the one of the aggregation in all attempts.

        Raises:
            RevealRefusedError: it is another one; the session has ended for this party.
            SessionMemoryError: it cannot be kept, or the owner's ledger has another one; the session has
                ended for this party.
        """
        signed, listed = client.consent(survivors), parse_frame(survivors).payload
        self._client = None  # unless the list is kept, no share is revealed either
        kept = self._memory.keep_survivors(self._terms.session, self._parent, self._position, listed)
        if kept != listed:
            raise RevealRefusedError(f"{self._position}: another list of survivors was signed before")
        if self._on_survivors is not None:
            self._on_survivors(self._position, listed)
        self._client = client
        return signed

    def _vector(self) -> RingVector:
        """The recorded answer, in the ring ``[M]``.

        Raises:
            OutOfOrderMessageError: none is recorded.
        """
        recorded = self._memory.answer(self._terms.session, self._position, self._question)
        if recorded is None:
            raise OutOfOrderMessageError(f"{self._position}: there is no answer to mask")
        return steps_from_bytes(recorded).astype(ring_type(RING_BITS))  # modulo 2^32

    def _sent(self, message: bytes) -> list[bytes]:
        payload = encode_masking(self._position, self._attempt, message)
        frame = Frame(FrameKind.MASKING, self._terms.session, self._number, self._parent, payload)
        return [seal_frame(frame, self._identity)]

"""A party with a vector. It hands out bytes and takes bytes; its secrets never leave it but as shares.

A message that is rejected, with whatever error, leaves the state as it was: a party then sends nothing, and
is to the others as one that dropped out. It never answers a second message of a kind, not even after a
restart: answers are claimed before they are sent (`session_memory`). Its keys end with the process; a party
that is started again has dropped out of the sessions it was in.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import numpy as np

from sfumato.secure_aggregation import messages, shares
from sfumato.secure_aggregation.masks import Masker, RingVector, ring_type
from sfumato.secure_aggregation.messages import Advertisement, MessageKind
from sfumato.secure_aggregation.terms import SessionTerms
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY, SERVER, Frame, open_frame, parse_frame, seal_frame
from sfumato.wire.keys import (
    KEY_BYTES,
    Entropy,
    Identity,
    KeyPair,
    agreement_point,
    derive,
    digest,
    pair_key,
    seal,
    session_entropy,
    unseal,
)


class Client:
    """One party of one session.

    Args:
        number: its place in ``terms.public_keys``.
        terms: of the session.
        identity: its signing key; joins the session.
        entropy: for its keys and shares.

    Raises:
        RepeatedSessionError: the identity was in this session before.
        ChangedTermsError: it was in another session under the same label.
        SessionMemoryError: that it takes part cannot be recorded.
        ValueError: the identity is not the one in the terms.
    """

    def __init__(
        self, number: int, terms: SessionTerms, identity: Identity, entropy: Entropy = os.urandom
    ) -> None:
        """Join the session as party ``number`` and draw fresh keys and a seed for it."""
        if terms.public_keys[number] != identity.public:
            raise ValueError(f"identity: is not that of party {number} in the terms")
        identity.join(b"party", terms.label, terms.session)
        self.number = number
        self._terms, self._identity = terms, identity
        self._entropy = session_entropy(entropy, identity, terms.session, number)
        self._sealing, self._masking = KeyPair(self._entropy(KEY_BYTES)), KeyPair(self._entropy(KEY_BYTES))
        self._seed = self._entropy(KEY_BYTES)
        self._keys: dict[int, Advertisement] = {}
        self._shares: dict[int, tuple[int, int]] = {}
        self._survivors: tuple[int, ...] | None = None
        self._seen: set[tuple[int, int]] = set()
        self._expected: MessageKind | None = None

    def advertise(self) -> bytes:
        """First phase: returns a signed message with this session's public keys, for everybody.

        Raises:
            MessageError: keys were advertised before, by this object or, as the identity remembers, another
                one.
        """
        if self._expected is not None:
            raise errors.OutOfOrderMessageError("keys are advertised once")
        self._claim(MessageKind.ADVERTISE, b"")
        self._expected = MessageKind.ROSTER
        advertisement = Advertisement(
            self._sealing.public,
            self._masking.public,
            seed_commitment(self._terms.session, self.number, self._seed),
        )
        return self._send(MessageKind.ADVERTISE, advertisement.encode(), EVERYBODY)

    def share_keys(self, roster: bytes) -> bytes:
        """Second phase: read the neighbours' keys; returns this party's shares of both its secrets.

        The shares are sealed, one box for each neighbour.

        Args:
            roster: the server's message with the neighbours' keys.

        Raises:
            MessageError: it is rejected.
            BelowThresholdError: too few neighbours are there.
        """
        frame = self._open(roster, MessageKind.ROSTER)
        keys: dict[int, Advertisement] = {}
        allowed = {j: self._terms.public_keys[j] for j in self._terms.neighbours[self.number]}
        for data in messages.decode_blobs(frame.payload):
            advert = open_frame(
                data,
                session=self._terms.session,
                keys=allowed,
                recipient=EVERYBODY,
                expected=MessageKind.ADVERTISE,
                seen={(int(MessageKind.ADVERTISE), j) for j in keys},
                authenticate=self._is_server_malicious,
            )
            keys[advert.sender] = messages.decode_advertisement(advert.payload)
        every = [self._sealing.public, self._masking.public]
        every += [key for advert in keys.values() for key in (advert.sealing, advert.masking)]
        distinct = set(map(agreement_point, every))
        messages.require(len(distinct) == len(every), "a public key was advertised twice")
        for other in keys.values():
            self._masking.agree(other.masking)  # a useless key is refused now, not when a vector is masked
        self._require_shares(len(keys) + 1)
        threshold, points = self._terms.share_threshold, [j + 1 for j in (self.number, *keys)]
        mask_shares = shares.split(self._masking.secret, threshold, points, self._entropy)
        seed_shares = shares.split(self._seed, threshold, points, self._entropy)
        boxes = {}
        for j in keys:
            plain = messages.encode_pair(mask_shares[j + 1], seed_shares[j + 1])
            boxes[j] = seal(
                self._sealing_key(keys[j], self.number, j),
                plain,
                self._associated_data(self.number, j),
                self._entropy,
            )
        own = self.number + 1
        self._accept(frame, MessageKind.DELIVERY)
        self._keys = keys
        self._shares = {self.number: (mask_shares[own], seed_shares[own])}
        return self._send(MessageKind.SHARES, messages.encode_boxes(boxes))

    def masked_input(self, delivery: bytes, vector: RingVector) -> bytes:
        """Third phase: open the neighbours' shares; returns a message with ``vector`` under all masks.

        Args:
            delivery: the server's message.
            vector: ring elements ``[length]``; private.

        Raises:
            MessageError: the server's message is rejected.
            BelowThresholdError: too few neighbours are left.
            ValueError: the vector is not of the ring or the length agreed.
        """
        terms = self._terms
        if vector.shape != (terms.length,) or vector.dtype != ring_type(terms.bits):
            raise ValueError(
                f"vector: got {vector.dtype}{list(vector.shape)}; must be uint{terms.bits}[{terms.length}]"
            )
        frame = self._open(delivery, MessageKind.DELIVERY)
        held: dict[int, tuple[int, int]] = {}
        for j, box in messages.decode_boxes(frame.payload).items():
            messages.require(j in self._keys, f"shares from party {j}, whose keys are unknown")
            key = self._sealing_key(self._keys[j], j, self.number)
            try:
                held[j] = messages.decode_pair(unseal(key, box, self._associated_data(j, self.number)))
            except errors.MessageError as error:
                raise type(error)(f"what party {j} sealed for party {self.number}: {error}") from None
        self._require_shares(len(held) + 1)
        masked = np.array(vector)
        masker = Masker(terms.length, terms.bits)
        masker.add(masked, self_mask_key(terms.session, self.number, self._seed))
        for j in held:
            key = pair_mask_key(terms.session, self._masking, self.number, j, self._keys[j].masking)
            (masker.add if self.number < j else masker.subtract)(masked, key)
        self._accept(frame, MessageKind.SURVIVORS)
        self._shares.update(held)
        return self._send(MessageKind.MASKED, messages.encode_vector(masked))

    def consent(self, survivors: bytes) -> bytes:
        """Fourth phase, with a malicious server: sign the list of survivors that it sent.

        Raises:
            MessageError: the list is rejected.
            RevealRefusedError: it is a second list, other than the first.
            InconsistentSurvivorsError: the list contradicts what this party knows.
            BelowThresholdError: too few survivors.
        """
        if not self._is_server_malicious:
            raise errors.OutOfOrderMessageError("a semi-honest server's list is not signed")
        listed = self._read_survivors(survivors, MessageKind.CONSENTS)
        return self._send(MessageKind.CONSENT, survivors_digest(self._terms.session, listed), EVERYBODY)

    def unmask(self, data: bytes) -> bytes:
        """Last phase: returns a message with one share of a secret of every neighbour.

        The secret is the seed of its own mask if it survived, its masking key if it dropped out; never both.

        Args:
            data: the others' consents (malicious server), or the list of survivors (semi-honest).

        Raises:
            MessageError: the server's message is rejected.
            RevealRefusedError: it is a second list of survivors, other than the first.
            InconsistentSurvivorsError: the list contradicts what this party knows, or others signed another.
            BelowThresholdError: too few survivors, or too few who signed.
        """
        if self._is_server_malicious:
            frame = self._open(data, MessageKind.CONSENTS)
            self._check_consents(messages.decode_blobs(frame.payload))
            self._accept(frame, None)
        else:
            self._read_survivors(data, None)
        survivors = set(self._survivors or ())
        mask_shares = {j: pair[0] for j, pair in self._shares.items() if j not in survivors}
        seed_shares = {j: pair[1] for j, pair in self._shares.items() if j in survivors}
        self._shares = {}
        return self._send(MessageKind.UNMASK, messages.encode_reveal(mask_shares, seed_shares))

    @property
    def _is_server_malicious(self) -> bool:
        """Whether the server may be malicious, so that consents are asked for."""
        return self._terms.threat_model == "malicious"

    def _open(self, data: bytes, expected: MessageKind) -> Frame:
        """Parse and check ``data``, a message of the server, which must be of the kind ``expected``.

        Raises:
            MessageError: rejected.
        """
        frame = open_frame(
            data,
            session=self._terms.session,
            keys={SERVER: self._terms.server_key},
            recipient=self.number,
            expected=expected,
            seen=self._seen,
        )
        if expected is not self._expected:
            raise errors.OutOfOrderMessageError(f"a message of kind {frame.kind}; this party is elsewhere")
        return frame

    def _accept(self, frame: Frame, following: MessageKind | None) -> None:
        """Record that ``frame`` was taken in; ``following`` is the kind of message that may come next."""
        self._claim(frame.kind, frame.payload)
        self._seen.add((frame.kind, frame.sender))
        self._expected = following

    def _claim(self, kind: int, content: bytes) -> None:
        """Claim the one answer to a message of number ``kind``; ``content``: the bytes that are answered.

        Raises:
            RevealRefusedError: another list of survivors was answered before.
            DuplicateMessageError: a message of the kind was answered before.
        """
        same = self._identity.answer(self._terms.session, kind, content)
        if same is None:
            return
        if kind == MessageKind.SURVIVORS and not same:
            raise errors.RevealRefusedError(
                f"party {self.number}: another list of survivors asks for both secrets of somebody"
            )
        raise errors.DuplicateMessageError(
            f"party {self.number} answered a message of kind {kind} in this session before"
        )

    def _send(self, kind: MessageKind, payload: bytes, recipient: int = SERVER) -> bytes:
        """The signed bytes of a message with ``payload`` from this party to ``recipient``.

        ``recipient``: number of a party, or of the server.
        """
        return seal_frame(Frame(kind, self._terms.session, self.number, recipient, payload), self._identity)

    def _require_shares(self, count: int) -> None:
        """Raise `BelowThresholdError` if ``count`` neighbours are fewer than the share threshold."""
        if count < self._terms.share_threshold:
            raise errors.BelowThresholdError(
                f"party {self.number}: {count} of its neighbourhood are there;"
                f" {self._terms.share_threshold} needed"
            )

    def _sealing_key(self, other: Advertisement, sender: int, recipient: int) -> bytes:
        """The AES key of the box that ``sender`` seals for ``recipient`` in the round of shares, 32 bytes.

        ``other``: the keys that the other party advertised.
        """
        return pair_key(
            self._sealing,
            other.sealing,
            session=self._terms.session,
            purpose=b"seal/round 1",
            first=sender,
            second=recipient,
            own_first=sender == self.number,
        )

    def _associated_data(self, sender: int, recipient: int) -> bytes:
        """The bytes that a box from ``sender`` to ``recipient`` is bound to: session, kind, both parties."""
        return (
            self._terms.session
            + bytes([MessageKind.SHARES])
            + sender.to_bytes(4, "big")
            + recipient.to_bytes(4, "big")
        )

    def _read_survivors(self, data: bytes, following: MessageKind | None) -> tuple[int, ...]:
        """Read the server's list of survivors from ``data``; it must hold enough parties and this one.

        ``following``: the kind of message that may come next.

        Raises:
            MessageError: rejected.
            InconsistentSurvivorsError: a list that cannot be.
            BelowThresholdError: too few survivors.
        """
        try:
            frame = self._open(data, MessageKind.SURVIVORS)
        except errors.DuplicateMessageError:
            self._claim(MessageKind.SURVIVORS, parse_frame(data).payload)  # says whether it is another list
            raise
        survivors = messages.decode_parties(frame.payload)
        if survivors and survivors[-1] >= self._terms.parties:
            raise errors.MalformedMessageError(f"party {survivors[-1]} survived, who was never there")
        if self.number not in survivors:
            raise errors.InconsistentSurvivorsError(f"party {self.number}: counted as dropped out, but here")
        strangers = set(survivors) & set(self._terms.neighbours[self.number]) - self._shares.keys()
        if strangers:
            raise errors.InconsistentSurvivorsError(
                f"party {self.number}: {min(strangers)} survived but its shares never came"
            )
        if len(survivors) < self._terms.threshold:
            raise errors.BelowThresholdError(f"{len(survivors)} survivors; {self._terms.threshold} needed")
        self._accept(frame, following)
        self._survivors = survivors
        return survivors

    def _check_consents(self, consents: Collection[bytes]) -> None:
        """Check by ``consents`` that at least ``threshold`` survivors signed the list shown to this party.

        Raises:
            BelowThresholdError: too few did.
            InconsistentSurvivorsError: others signed another list.
        """
        survivors = self._survivors or ()
        allowed = {j: self._terms.public_keys[j] for j in survivors}
        listed = survivors_digest(self._terms.session, survivors)
        signed: set[tuple[int, int]] = set()
        for data in consents:
            frame = open_frame(
                data,
                session=self._terms.session,
                keys=allowed,
                recipient=EVERYBODY,
                expected=MessageKind.CONSENT,
                seen=signed,
            )
            if frame.payload != listed:
                raise errors.InconsistentSurvivorsError(
                    f"party {frame.sender} signed another list of survivors"
                )
            signed.add((frame.kind, frame.sender))
        if len(signed) < self._terms.threshold:
            raise errors.BelowThresholdError(
                f"{len(signed)} survivors signed the list; {self._terms.threshold} needed"
            )


def survivors_digest(session: bytes, survivors: Sequence[int]) -> bytes:
    """The hash of a list of survivors that parties sign; ``session``: its 32-byte identifier."""
    return digest(b"survivors", session, messages.encode_parties(survivors))


def seed_commitment(session: bytes, number: int, seed: bytes) -> bytes:
    """The hash by which party ``number`` of ``session`` commits to its seed: wrong shares are noticed."""
    return digest(b"seed", session, number.to_bytes(4, "big"), seed)


def self_mask_key(session: bytes, number: int, seed: bytes) -> bytes:
    """The 32-byte key of the mask that party ``number`` of ``session`` alone adds, from its 32-byte seed."""
    return derive(seed, session=session, purpose=b"self mask/round 2", context=number.to_bytes(4, "big"))


def pair_mask_key(session: bytes, own: KeyPair, number: int, other: int, other_key: bytes) -> bytes:
    """The 32-byte key of the mask that parties ``number`` and ``other`` of ``session`` share.

    The party with the lower number adds the mask, the other subtracts it. ``own``: masking keys of
    ``number``; ``other_key``: the other's public one.
    """
    return pair_key(
        own,
        other_key,
        session=session,
        purpose=b"pair mask/round 2",
        first=min(number, other),
        second=max(number, other),
        own_first=number < other,
    )

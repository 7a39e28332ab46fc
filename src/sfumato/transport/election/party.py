"""One candidate. It reads the public board and posts to it; its nonce stays its own until the board is
vouched for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from sfumato.transport import errors
from sfumato.transport.election import messages, transcript
from sfumato.transport.election.messages import Commitment, Kind
from sfumato.transport.election.transcript import ElectionTerms, Reading
from sfumato.transport.frames import EVERYBODY, Frame, seal_frame
from sfumato.transport.secure_aggregation.keys import (
    KEY_BYTES,
    Entropy,
    Identity,
    KeyPair,
    derive,
    pair_context,
    seal,
    unseal,
)
from sfumato.transport.secure_aggregation.shares import PRIME, SHARE_BYTES


class Candidate:
    """A party of one election.

    Args:
        number: its place in ``terms.public_keys``.
        terms: of the election.
        identity: its signing key; joins the election.
        entropy: for its key and nonce.

    Raises:
        ReplayedMessageError: the identity was in this election before.
    """

    def __init__(
        self, number: int, terms: ElectionTerms, identity: Identity, entropy: Entropy = os.urandom
    ) -> None:
        identity.join(terms.session)
        self.number = number
        self._terms, self._identity, self._entropy = terms, identity, entropy
        self._pair = KeyPair(entropy(KEY_BYTES))
        self._nonce = entropy(KEY_BYTES)
        self._posted: set[Kind] = set()
        self._vouched = b""
        self._checked: set[bytes] = set()

    def post(self, kind: Kind, board: Sequence[bytes]) -> bytes | None:
        """This party's message of a phase, given the board so far; ``None`` where it has none to send.

        Raises:
            OutOfOrderMessageError: it posted in this phase before.
            MessageError: the board is not authentic.
            NotAgreedError: asked to reveal before a quorum vouched for the board that this party saw.
        """
        if kind in self._posted:
            raise errors.OutOfOrderMessageError(f"party {self.number} posted its {kind.name.lower()} already")
        reading = transcript.read(self._terms, board, self._checked)
        payload = {
            Kind.KEY: self._key,
            Kind.COMMIT: self._commit,
            Kind.COMPLAINT: self._complain,
            Kind.ANSWER: self._answer,
            Kind.VOUCH: self._vouch,
            Kind.REVEAL: self._reveal,
            Kind.RECOVER: self._recover,
        }[kind](reading, board)
        self._posted.add(kind)
        if payload is None:
            return None
        return seal_frame(Frame(kind, self._terms.session, self.number, EVERYBODY, payload), self._identity)

    def _key(self, _: Reading, __: Sequence[bytes]) -> bytes:
        return self._pair.public

    def _commit(self, reading: Reading, _: Sequence[bytes]) -> bytes | None:
        if reading.keys.get(self.number) != self._pair.public:
            return None
        dealt = transcript.deal(
            self._terms, self.number, self._nonce, sorted(reading.keys.keys() - {self.number})
        )
        table = {}
        for holder, share in dealt.items():
            key = self._sealing_key(reading.keys[holder], self.number, holder)
            box = seal(key, share.to_bytes(SHARE_BYTES, "big"), self._terms.session, self._entropy)
            table[holder] = transcript.share_hash(self._terms, self.number, holder, share), box
        return Commitment(transcript.nonce_hash(self._terms, self.number, self._nonce), table).encode()

    def _complain(self, reading: Reading, _: Sequence[bytes]) -> bytes | None:
        wronged = {
            d: 0 for d in reading.commitments if d != self.number and self._share_of(reading, d) is None
        }
        return messages.encode_shares(wronged) if wronged else None

    def _answer(self, reading: Reading, _: Sequence[bytes]) -> bytes | None:
        by = [h for h, dealers in reading.complaints.items() if self.number in dealers and h in reading.keys]
        if not by or self.number not in reading.commitments:
            return None
        return messages.encode_shares(transcript.deal(self._terms, self.number, self._nonce, sorted(by)))

    def _vouch(self, _: Reading, board: Sequence[bytes]) -> bytes:
        self._vouched = transcript.board_digest(self._terms, board)
        return self._vouched

    def _reveal(self, reading: Reading, board: Sequence[bytes]) -> bytes | None:
        self._require_agreement(reading, board)
        return self._nonce if self.number in reading.commitments else None

    def _recover(self, reading: Reading, board: Sequence[bytes]) -> bytes | None:
        self._require_agreement(reading, board)
        held = {d: self._share_of(reading, d) for d in reading.silent(self._terms) if d != self.number}
        mine = {d: share for d, share in held.items() if share is not None}
        return messages.encode_shares(mine) if mine else None

    def _require_agreement(self, reading: Reading, board: Sequence[bytes]) -> None:
        if transcript.board_digest(self._terms, board) != self._vouched:
            raise errors.NotAgreedError(f"party {self.number}: not the board it vouched for")
        transcript.require_quorum(self._terms, reading, self._vouched)

    def _share_of(self, reading: Reading, dealer: int) -> int | None:
        """This party's share of a dealer's nonce, if it got the one that was hashed."""
        row = reading.commitments[dealer].shares.get(self.number)
        if row is None:
            return None
        try:
            key = self._sealing_key(reading.keys[dealer], dealer, self.number)
            share = int.from_bytes(unseal(key, row[1], self._terms.session), "big")
        except errors.MessageError:
            return None
        fits = share < PRIME and transcript.share_hash(self._terms, dealer, self.number, share) == row[0]
        return share if fits else None

    def _sealing_key(self, other: bytes, sender: int, recipient: int) -> bytes:
        first, second = (self._pair.public, other) if sender == self.number else (other, self._pair.public)
        return derive(
            self._pair.agree(other),
            session=self._terms.session,
            purpose=b"seal/election",
            context=pair_context(sender, first, recipient, second),
        )

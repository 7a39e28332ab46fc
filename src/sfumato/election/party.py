"""One candidate, whose nonce stays its own until the board is vouched for.

It reads the public board and posts to it once in a phase, not again even after a restart: posts are claimed
before they are sent (`session_memory`). Its nonce ends with the process; a party that is started again has
fallen silent in the elections it was in, and the others rebuild its nonce.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from sfumato.election.commitments import deal, nonce_hash, share_hash
from sfumato.election.messages import Commitment, ElectionMessageKind
from sfumato.election.reading import Reading, board_digest
from sfumato.election.terms import ElectionTerms
from sfumato.election.transcript import read_board
from sfumato.secure_aggregation.messages import encode_shares
from sfumato.secure_aggregation.shares import PRIME, SHARE_BYTES
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY, Frame, seal_frame
from sfumato.wire.keys import (
    KEY_BYTES,
    Entropy,
    Identity,
    KeyPair,
    pair_key,
    seal,
    session_entropy,
    unseal,
)


class Candidate:
    """A party of one election.

    Args:
        number: its place in ``terms.public_keys``.
        terms: of the election.
        identity: its signing key; joins the election.
        entropy: for its key and nonce.

    Raises:
        RepeatedSessionError: the identity was in this election before.
        ChangedTermsError: it was in another election under the same label.
        SessionMemoryError: that it takes part cannot be recorded.
        ValueError: the identity is not the one in the terms.
    """

    def __init__(
        self, number: int, terms: ElectionTerms, identity: Identity, entropy: Entropy = os.urandom
    ) -> None:
        """Join the election as party ``number`` and draw a key pair and a nonce for it."""
        if terms.public_keys[number] != identity.public:
            raise ValueError(f"identity: is not that of party {number} in the terms")
        identity.join(b"candidate", terms.label, terms.session)
        self.number = number
        self._terms, self._identity = terms, identity
        self._entropy = session_entropy(entropy, identity, terms.session, number)
        self._pair = KeyPair(self._entropy(KEY_BYTES))
        self._nonce = self._entropy(KEY_BYTES)
        self._posted: dict[ElectionMessageKind, bytes | None] = {}
        self._vouched = b""
        self._checked: set[bytes] = set()

    def post(self, kind: ElectionMessageKind, board: Sequence[bytes]) -> bytes | None:
        """Make this party's signed post of the phase ``kind`` from the board so far; ``None`` without one.

        Raises:
            DuplicateMessageError: it posted in this phase before, perhaps before a restart.
            OmittedPostError: up to the phase of vouching, the board lacks a post of its own.
            NotAgreedError: after it, the board is not the one it vouched for, or no quorum vouched for that.
            MessageError: the board is not authentic or malformed.
            ElectionError: its posts contradict each other.
        """
        if kind in self._posted:
            raise errors.DuplicateMessageError(f"party {self.number} posted its {kind.name.lower()} already")
        if kind <= ElectionMessageKind.VOUCH:
            self._require_own_posts(board)
        elif board_digest(self._terms, board) != self._vouched:
            raise errors.NotAgreedError(f"party {self.number}: not the board it vouched for")
        reading = read_board(self._terms, board, self._checked, agreed=kind > ElectionMessageKind.VOUCH)
        payload = {
            ElectionMessageKind.KEY: self._key,
            ElectionMessageKind.COMMIT: self._commit,
            ElectionMessageKind.COMPLAINT: self._complain,
            ElectionMessageKind.ANSWER: self._answer,
            ElectionMessageKind.VOUCH: self._vouch,
            ElectionMessageKind.REVEAL: self._reveal,
            ElectionMessageKind.RECOVER: self._recover,
        }[kind](reading)
        data = None
        if payload is not None:
            frame = Frame(kind, self._terms.session, self.number, EVERYBODY, payload)
            data = seal_frame(frame, self._identity)
        if self._identity.answer(self._terms.session, kind, data or b"") is not None:
            raise errors.DuplicateMessageError(
                f"party {self.number} posted its {kind.name.lower()} before it was restarted"
            )
        if kind is ElectionMessageKind.VOUCH:
            self._vouched = payload or b""
        self._posted[kind] = data
        return data

    def _require_own_posts(self, board: Sequence[bytes]) -> None:
        """Raise an OmittedPostError if the board lacks a post of this party."""
        for kind, data in self._posted.items():
            if data is not None and data not in board:
                raise errors.OmittedPostError(
                    f"party {self.number}: the board lacks the {kind.name.lower()} that it posted"
                )

    def _key(self, _: Reading) -> bytes:
        """The payload of the first phase: this party's public key."""
        return self._pair.public

    def _commit(self, reading: Reading) -> bytes | None:
        """The payload with the nonce's hash and the sealed shares; ``None`` where the key is not posted."""
        if self.number not in reading.keys:
            return None
        dealt = deal(self._terms, self.number, self._nonce, sorted(reading.keys.keys() - {self.number}))
        table = {}
        for holder, share in dealt.items():
            key = self._sealing_key(reading.keys[holder], self.number, holder)
            box = seal(key, share.to_bytes(SHARE_BYTES, "big"), self._terms.session, self._entropy)
            table[holder] = share_hash(self._terms, self.number, holder, share), box
        return Commitment(nonce_hash(self._terms, self.number, self._nonce), table).encode()

    def _complain(self, reading: Reading) -> bytes | None:
        """The payload that names dealers whose share for this party is wrong; ``None`` without any."""
        wronged = {
            d: 0
            for d, commitment in reading.commitments.items()
            if self.number in commitment.shares and self._share_of(reading, d) is None
        }
        return encode_shares(wronged) if wronged else None

    def _answer(self, reading: Reading) -> bytes | None:
        """The payload with the shares of those who complained about this dealer; ``None`` without any."""
        by = sorted(h for h, dealers in reading.complaints.items() if self.number in dealers)
        return encode_shares(deal(self._terms, self.number, self._nonce, by)) if by else None

    def _vouch(self, reading: Reading) -> bytes:
        """The payload with the digest of the board before the vouching."""
        return board_digest(self._terms, reading.before_vouching)

    def _reveal(self, reading: Reading) -> bytes | None:
        """The payload with this party's nonce; ``None`` where it committed to none."""
        return self._nonce if self.number in reading.commitments else None

    def _recover(self, reading: Reading) -> bytes | None:
        """The payload with this party's shares of silent dealers' nonces; ``None`` where it has none."""
        held = {d: self._share_of(reading, d) for d in reading.silent if d != self.number}
        mine = {d: share for d, share in held.items() if share is not None}
        return encode_shares(mine) if mine else None

    def _share_of(self, reading: Reading, dealer: int) -> int | None:
        """This party's share of a dealer's nonce; ``None`` if it did not get the one that was hashed."""
        row = reading.commitments[dealer].shares.get(self.number)
        if row is None:
            return None
        try:
            key = self._sealing_key(reading.keys[dealer], dealer, self.number)
            share = int.from_bytes(unseal(key, row[1], self._terms.session), "big")
        except errors.MessageError:
            return None
        return share if share < PRIME and reading.fits(dealer, self.number, share) else None

    def _sealing_key(self, other: bytes, sender: int, recipient: int) -> bytes:
        """The symmetric key by which ``sender`` seals a share for ``recipient``, one of whom this party is.

        ``other``: the other one's public key.
        """
        return pair_key(
            self._pair,
            other,
            session=self._terms.session,
            purpose=b"seal/election",
            first=sender,
            second=recipient,
            own_first=sender == self.number,
        )

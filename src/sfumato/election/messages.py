"""Payloads of an election, as bytes; frames and the reader are those of secure aggregation."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from sfumato.secure_aggregation.messages import PayloadReader, require
from sfumato.secure_aggregation.shares import SHARE_BYTES
from sfumato.wire.keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES

BOX_BYTES = NONCE_BYTES + SHARE_BYTES + TAG_BYTES
_COUNT = struct.Struct(">I")


class ElectionMessageKind(enum.IntEnum):
    """What a frame carries, in the order of the phases. The numbers are part of the encoding."""

    KEY = 32
    COMMIT = 33
    COMPLAINT = 34
    ANSWER = 35
    VOUCH = 36
    REVEAL = 37
    RECOVER = 38


@dataclass(frozen=True)
class Commitment:
    """A nonce, promised.

    Attributes:
        nonce: its hash.
        shares: by holder, hash of the holder's share and the share sealed for it.
    """

    nonce: bytes
    shares: dict[int, tuple[bytes, bytes]]

    def encode(self) -> bytes:
        """The commitment as a payload, the inverse of `decode_commitment`."""
        rows = [_COUNT.pack(holder) + hashed + box for holder, (hashed, box) in sorted(self.shares.items())]
        return self.nonce + _COUNT.pack(len(rows)) + b"".join(rows)


def decode_commitment(payload: bytes) -> Commitment:
    """The commitment in a payload.

    Raises:
        MalformedMessageError: it is no commitment, or holds a party twice.
        TruncatedMessageError: it ends too early.
    """
    reader = PayloadReader(payload)
    nonce = reader.take(KEY_BYTES)
    shares: dict[int, tuple[bytes, bytes]] = {}
    for _ in range(reader.number()):
        holder = reader.number()
        require(holder not in shares, f"party {holder} twice in a table")
        shares[holder] = reader.take(KEY_BYTES), reader.take(BOX_BYTES)
    reader.end()
    return Commitment(nonce, shares)


def decode_shares(payload: bytes) -> dict[int, int]:
    """The shares (field elements) by party, from a payload of `secure_aggregation.messages.encode_shares`.

    Raises:
        MalformedMessageError: it is no such table, or holds a party twice.
        TruncatedMessageError: it ends too early.
    """
    reader = PayloadReader(payload)
    shares = reader.shares()
    reader.end()
    return shares


def decode_key(payload: bytes) -> bytes:
    """The 32 bytes of a payload that is a public key, a digest or a nonce.

    Raises:
        MalformedMessageError: it is longer.
        TruncatedMessageError: it is shorter.
    """
    reader = PayloadReader(payload)
    key = reader.take(KEY_BYTES)
    reader.end()
    return key

"""Payloads of secure aggregation, as bytes: big-endian numbers, counted tables, nothing after the end.

Ring elements alone are little-endian words, as they lie in memory.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sfumato.secure_aggregation.masks import RingVector, ring_type
from sfumato.secure_aggregation.shares import PRIME, SHARE_BYTES
from sfumato.wire.errors import MalformedMessageError, TruncatedMessageError
from sfumato.wire.keys import KEY_BYTES, NONCE_BYTES, TAG_BYTES

BOX_BYTES = NONCE_BYTES + 2 * SHARE_BYTES + TAG_BYTES
_COUNT = struct.Struct(">I")


class MessageKind(enum.IntEnum):
    """What a frame carries, in the order of the rounds. The numbers are part of the encoding."""

    ADVERTISE = 1
    ROSTER = 2
    SHARES = 3
    DELIVERY = 4
    MASKED = 5
    SURVIVORS = 6
    CONSENT = 7
    CONSENTS = 8
    UNMASK = 9


@dataclass(frozen=True)
class Advertisement:
    """A party's keys for one session.

    Attributes:
        sealing: public key for sealing shares.
        masking: public key for pairwise masks.
        seed_commitment: hash of the seed of its own mask.
    """

    sealing: bytes
    masking: bytes
    seed_commitment: bytes

    def encode(self) -> bytes:
        """This advertisement as a payload of 96 bytes, the inverse of `decode_advertisement`."""
        return self.sealing + self.masking + self.seed_commitment


def decode_advertisement(payload: bytes) -> Advertisement:
    """The advertisement in a payload, the inverse of `Advertisement.encode`.

    Raises:
        MalformedMessageError: bytes are left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    keys = [reader.take(KEY_BYTES) for _ in range(3)]
    reader.end()
    return Advertisement(*keys)


def encode_pair(mask_share: int, seed_share: int) -> bytes:
    """The plain content of a box: a share of a masking key, then a share of a seed, as bytes."""
    return mask_share.to_bytes(SHARE_BYTES, "big") + seed_share.to_bytes(SHARE_BYTES, "big")


def decode_pair(plain: bytes) -> tuple[int, int]:
    """(share of a masking key, share of a seed), field elements, from the plain content of a box.

    Raises:
        MalformedMessageError: a share is no field element, or bytes are left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(plain)
    pair = reader.share(), reader.share()
    reader.end()
    return pair


def encode_blobs(blobs: Sequence[bytes]) -> bytes:
    """``blobs`` as one byte string: their number, then the length and the bytes of each."""
    return _COUNT.pack(len(blobs)) + b"".join(_COUNT.pack(len(blob)) + blob for blob in blobs)


def decode_blobs(payload: bytes) -> list[bytes]:
    """The list of byte strings that `encode_blobs` wrote to ``payload``.

    Raises:
        MalformedMessageError: bytes are left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    blobs = [reader.take(reader.number()) for _ in range(reader.number())]
    reader.end()
    return blobs


def encode_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """The sealed boxes as bytes, by party, ascending; a party is the box's sender or its recipient."""
    table = sorted(boxes.items())
    return _COUNT.pack(len(table)) + b"".join(_COUNT.pack(party) + box for party, box in table)


def decode_boxes(payload: bytes) -> dict[int, bytes]:
    """The sealed boxes by number of a party, from ``payload``, the bytes of `encode_boxes`.

    Raises:
        MalformedMessageError: a party is there twice, or bytes are left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    boxes: dict[int, bytes] = {}
    for _ in range(reader.number()):
        party = reader.number()
        require(party not in boxes, f"party {party} twice in a table")
        boxes[party] = reader.take(BOX_BYTES)
    reader.end()
    return boxes


def encode_vector(vector: RingVector) -> bytes:
    """Ring elements as little-endian words of the ring's width (16, 32 or 64 bits), without a header."""
    return vector.tobytes()


def decode_vector(payload: bytes, length: int, bits: int) -> RingVector:
    """Read ``length`` ring elements of ``bits`` bits from a payload of little-endian words; a read-only view.

    Raises:
        MalformedMessageError: the payload has another length.
    """
    word = ring_type(bits)
    require(
        len(payload) == length * word.itemsize, f"{len(payload)} bytes for {length} elements of {bits} bits"
    )
    return np.frombuffer(payload, dtype=word)


def encode_parties(parties: Sequence[int]) -> bytes:
    """The numbers ``parties`` as bytes: how many there are, then each as 4 bytes, ascending."""
    return _COUNT.pack(len(parties)) + b"".join(_COUNT.pack(party) for party in sorted(parties))


def decode_parties(payload: bytes) -> tuple[int, ...]:
    """The ascending tuple of party numbers that `encode_parties` wrote to ``payload``.

    Raises:
        MalformedMessageError: they do not ascend, or bytes are left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    parties = tuple(reader.number() for _ in range(reader.number()))
    reader.end()
    require(all(a < b for a, b in pairwise(parties)), "a list of parties that does not ascend")
    return parties


def encode_shares(shares: Mapping[int, int]) -> bytes:
    """A table of shares (party to field element) as bytes; `PayloadReader.shares` reads it."""
    rows = [
        _COUNT.pack(party) + share.to_bytes(SHARE_BYTES, "big") for party, share in sorted(shares.items())
    ]
    return _COUNT.pack(len(rows)) + b"".join(rows)


def encode_reveal(mask_shares: Mapping[int, int], seed_shares: Mapping[int, int]) -> bytes:
    """Two tables as bytes: party to a share of its masking key, and party to a share of its seed."""
    return encode_shares(mask_shares) + encode_shares(seed_shares)


def decode_reveal(payload: bytes) -> tuple[dict[int, int], dict[int, int]]:
    """Shares of masking keys and shares of seeds, both by party; ``payload``: of `encode_reveal`.

    Raises:
        MalformedMessageError: a party is in a table twice or in both, or bytes are left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    mask_shares, seed_shares = reader.shares(), reader.shares()
    reader.end()
    require(not mask_shares.keys() & seed_shares.keys(), "both secrets of one party in a message")
    return mask_shares, seed_shares


class PayloadReader:
    """Takes a payload apart, piece by piece."""

    def __init__(self, data: bytes) -> None:
        """Begin to read ``data`` at its first byte."""
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes; the reader moves past them.

        Raises:
            TruncatedMessageError: fewer are left.
        """
        if self._at + size > len(self._data):
            raise TruncatedMessageError(f"a payload of {len(self._data)} bytes; {self._at + size} needed")
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def number(self) -> int:
        """The next 4 bytes as an unsigned integer.

        Raises:
            TruncatedMessageError: fewer are left.
        """
        return int(_COUNT.unpack(self.take(_COUNT.size))[0])

    def share(self) -> int:
        """The next share of a secret, an element of the field of order `PRIME`.

        Raises:
            MalformedMessageError: it is not below the prime.
            TruncatedMessageError: too few bytes are left.
        """
        value = int.from_bytes(self.take(SHARE_BYTES), "big")
        require(value < PRIME, "a share that is no field element")
        return value

    def shares(self) -> dict[int, int]:
        """The next table that `encode_shares` wrote: shares of a secret by number of a party.

        Raises:
            MalformedMessageError: a party is there twice, or a share is not below the prime.
            TruncatedMessageError: too few bytes are left.
        """
        rows = [(self.number(), self.share()) for _ in range(self.number())]
        found = dict(rows)
        require(len(found) == len(rows), "a party twice in a table")
        return found

    def end(self) -> None:
        """Refuse a payload of which bytes are left.

        Raises:
            MalformedMessageError: there are some.
        """
        require(self._at == len(self._data), f"{len(self._data) - self._at} bytes after the end of a payload")


def require(condition: bool, message: str) -> None:
    """Raise `MalformedMessageError` with ``message`` unless ``condition``."""
    if not condition:
        raise MalformedMessageError(message)

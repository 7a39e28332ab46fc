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
        """The payload of this advertisement, the inverse of `decode_advertisement`."""
        return self.sealing + self.masking + self.seed_commitment


def decode_advertisement(payload: bytes) -> Advertisement:
    """The advertisement in a payload.

    Raises:
        MalformedMessageError: it is none.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    keys = [reader.take(KEY_BYTES) for _ in range(3)]
    reader.end()
    return Advertisement(*keys)


def encode_pair(mask_share: int, seed_share: int) -> bytes:
    """The plain content of a box: a share of the masking key and one of the own mask's seed."""
    return mask_share.to_bytes(SHARE_BYTES, "big") + seed_share.to_bytes(SHARE_BYTES, "big")


def decode_pair(plain: bytes) -> tuple[int, int]:
    """Read a share of the masking key and one of the own mask's seed, field elements, from the content of a
    box.

    Raises:
        MalformedMessageError: it is no such pair.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(plain)
    pair = reader.share(), reader.share()
    reader.end()
    return pair


def encode_blobs(blobs: Sequence[bytes]) -> bytes:
    """A list of byte strings as bytes: their number, then each with its length."""
    return _COUNT.pack(len(blobs)) + b"".join(_COUNT.pack(len(blob)) + blob for blob in blobs)


def decode_blobs(payload: bytes) -> list[bytes]:
    """The byte strings in a list, from the bytes of `encode_blobs`.

    Raises:
        MalformedMessageError: something is left.
        TruncatedMessageError: it is too short.
    """
    reader = PayloadReader(payload)
    blobs = [reader.take(reader.number()) for _ in range(reader.number())]
    reader.end()
    return blobs


def encode_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """The bytes of a table from parties (whom it is for, or from) to sealed boxes."""
    table = sorted(boxes.items())
    return _COUNT.pack(len(table)) + b"".join(_COUNT.pack(party) + box for party, box in table)


def decode_boxes(payload: bytes) -> dict[int, bytes]:
    """The sealed boxes by party, from the bytes of `encode_boxes`.

    Raises:
        MalformedMessageError: a party is there twice, or something is left.
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
    """Write the ring elements as little-endian words of 16, 32 or 64 bits, the ring's width, without a
    header.
    """
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
    """The bytes of a list of parties, ascending."""
    return _COUNT.pack(len(parties)) + b"".join(_COUNT.pack(party) for party in sorted(parties))


def decode_parties(payload: bytes) -> tuple[int, ...]:
    """The parties in a list, from the bytes of `encode_parties`."""
    reader = PayloadReader(payload)
    parties = tuple(reader.number() for _ in range(reader.number()))
    reader.end()
    require(
        all(a < b for a, b in pairwise(parties)),
        "a list of parties that does not ascend",
    )
    return parties


def encode_reveal(mask_shares: Mapping[int, int], seed_shares: Mapping[int, int]) -> bytes:
    """The bytes of shares of the masking keys of some parties and of the seeds of others."""
    out = b""
    for table in (mask_shares, seed_shares):
        rows = sorted(table.items())
        out += _COUNT.pack(len(rows))
        out += b"".join(_COUNT.pack(party) + share.to_bytes(SHARE_BYTES, "big") for party, share in rows)
    return out


def decode_reveal(payload: bytes) -> tuple[dict[int, int], dict[int, int]]:
    """The shares of masking keys and of seeds, from the bytes of `encode_reveal`; nobody is in both."""
    reader = PayloadReader(payload)
    tables: list[dict[int, int]] = []
    for _ in range(2):
        rows = [(reader.number(), reader.share()) for _ in range(reader.number())]
        tables.append(dict(rows))
        require(len(tables[-1]) == len(rows), "a party twice in a table")
    reader.end()
    require(not tables[0].keys() & tables[1].keys(), "both secrets of one party in a message")
    return tables[0], tables[1]


class PayloadReader:
    """Takes a payload apart, piece by piece."""

    def __init__(self, data: bytes) -> None:
        """Begin to read ``data`` at its first byte."""
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes.

        Raises:
            TruncatedMessageError: fewer are left.
        """
        if self._at + size > len(self._data):
            raise TruncatedMessageError(f"a payload of {len(self._data)} bytes; {self._at + size} needed")
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def number(self) -> int:
        """The next unsigned integer of 32 bits."""
        return int(_COUNT.unpack(self.take(_COUNT.size))[0])

    def share(self) -> int:
        """The next field element, a share of a secret."""
        value = int.from_bytes(self.take(SHARE_BYTES), "big")
        require(value < PRIME, "a share that is no field element")
        return value

    def end(self) -> None:
        """Raise `MalformedMessageError` if anything of the payload is left."""
        require(self._at == len(self._data), f"{len(self._data) - self._at} bytes after the end of a payload")


def require(condition: bool, message: str) -> None:
    """Raise `MalformedMessageError` with ``message`` unless ``condition``."""
    if not condition:
        raise MalformedMessageError(message)

"""Key streams, and masks in the ring of integers modulo 2^bits.

A mask is the AES-256-CTR stream of a full 256-bit key, read as little-endian words: uniform in the ring, and
indistinguishable from random words to whoever lacks the key. A key makes one stream (counter from zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

RingVector: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Elements of the ring, one a machine word: its arithmetic wraps by itself."""

_BLOCK = bytes(1 << 16)
_WORDS: dict[int, np.dtype[np.unsignedinteger[Any]]] = {
    16: np.dtype(np.uint16).newbyteorder("<"),
    32: np.dtype(np.uint32).newbyteorder("<"),
    64: np.dtype(np.uint64).newbyteorder("<"),
}


def ring_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The machine word of a ring.

    Raises:
        ValueError: ``bits`` is none of 16, 32, 64.
    """
    if bits not in _WORDS:
        raise ValueError(f"bits: got {bits}; must be one of {sorted(_WORDS)}")
    return _WORDS[bits]


class KeyStream:
    """The AES-256-CTR stream of a key, piece after piece.

    Args:
        key: 32 bytes, used for nothing else.
    """

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def fill(self, out: npt.NDArray[Any]) -> None:
        """Overwrite a contiguous array with the stream's next bytes."""
        view = memoryview(out.data).cast("B")
        for start in range(0, len(view), len(_BLOCK)):
            piece = view[start : start + len(_BLOCK)]
            self._encryptor.update_into(_BLOCK[: len(piece)], piece)

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        return self._encryptor.update(bytes(size))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The next ``count`` 64-bit words, uniform."""
        out = np.empty(count, dtype="<u8")
        if count:
            self.fill(out)
        return out

    def units(self, count: int) -> npt.NDArray[np.float64]:
        """The next ``count`` multiples of 2^-53 in [0, 1), uniform."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int) -> int:
        """A uniform integer in ``0..bound-1`` by rejection: no modulo bias. ``bound`` at most 2^64."""
        limit = (1 << 64) - (1 << 64) % bound
        while True:
            word = int(self.words(1)[0])
            if word < limit:
                return word % bound

    def permutation(self, items: Sequence[int]) -> list[int]:
        """A uniform permutation of ``items`` (Fisher and Yates)."""
        out = list(items)
        for last in range(len(out) - 1, 0, -1):
            other = self.below(last + 1)
            out[last], out[other] = out[other], out[last]
        return out


class Masker:
    """Adds and subtracts masks in place.

    Args:
        length: of the vectors.
        bits: of the ring.
    """

    def __init__(self, length: int, bits: int) -> None:
        self._mask: RingVector = np.empty(length, dtype=ring_type(bits))

    def add(self, total: RingVector, key: bytes) -> None:
        """``total`` += mask of ``key``, modulo 2^bits."""
        KeyStream(key).fill(self._mask)
        np.add(total, self._mask, out=total)

    def subtract(self, total: RingVector, key: bytes) -> None:
        """``total`` -= mask of ``key``, modulo 2^bits."""
        KeyStream(key).fill(self._mask)
        np.subtract(total, self._mask, out=total)

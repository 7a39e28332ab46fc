"""Masks in the ring of integers modulo 2^bits.

A mask is the AES-256-CTR stream of a full 256-bit key, read as little-endian words: uniform in the ring, and
indistinguishable from random words to whoever lacks the key. A key makes one stream (counter from zero).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sfumato.secure_aggregation.quantisation import ALLOWED_RING_BITS
from sfumato.wire.key_stream import KeyStream

RingVector: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
"""Elements of the ring, one a machine word: its arithmetic wraps by itself."""


def ring_type(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The NumPy type of the elements of the ring of integers modulo 2^``bits``.

    Raises:
        ValueError: ``bits`` is none of 16, 32, 64.
    """
    if bits not in ALLOWED_RING_BITS:
        raise ValueError(f"bits: got {bits}; must be one of {[*ALLOWED_RING_BITS]}")
    return np.dtype(f"<u{bits // 8}")


class Masker:
    """Adds and subtracts masks in place.

    Args:
        length: of the vectors.
        bits: of the ring.
    """

    def __init__(self, length: int, bits: int) -> None:
        """Make room for one mask of ``length`` elements modulo 2^``bits``.

        Raises:
            ValueError: ``bits`` is none of 16, 32, 64.
        """
        self._mask: RingVector = np.empty(length, dtype=ring_type(bits))

    def add(self, total: RingVector, key: bytes) -> None:
        """Add the mask of ``key`` (32 bytes) to ``total`` ``[length]``, in place, modulo 2^bits."""
        KeyStream(key).fill(self._mask)
        np.add(total, self._mask, out=total)

    def subtract(self, total: RingVector, key: bytes) -> None:
        """Subtract the mask of ``key`` (32 bytes) from ``total`` ``[length]``, in place, modulo 2^bits."""
        KeyStream(key).fill(self._mask)
        np.subtract(total, self._mask, out=total)

"""The AES-256-CTR stream of a full 256-bit key: one stream a key, the counter from zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_BLOCK = bytes(1 << 16)


class KeyStream:
    """The AES-256-CTR stream of a key, piece after piece.

    Args:
        key: 32 bytes, used for nothing else.
    """

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def fill(self, out: npt.NDArray[Any]) -> None:
        """Overwrite the contiguous array ``out`` with the stream's next bytes."""
        view = memoryview(out.data).cast("B")
        for start in range(0, len(view), len(_BLOCK)):
            piece = view[start : start + len(_BLOCK)]
            self._encryptor.update_into(_BLOCK[: len(piece)], piece)

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes of the stream."""
        return self._encryptor.update(bytes(size))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The next ``count`` words of the stream, uniform in uint64, ``[count]``."""
        out = np.empty(count, dtype="<u8")
        if count:
            self.fill(out)
        return out

    def units(self, count: int) -> npt.NDArray[np.float64]:
        """The next ``count`` numbers of the stream, uniform multiples of 2^-53 in [0, 1), ``[count]``."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int) -> int:
        """A uniform integer in ``0..bound-1`` by rejection: no modulo bias. ``bound``: from 1 to 2^64."""
        limit = (1 << 64) - (1 << 64) % bound
        while True:
            word = int(self.words(1)[0])
            if word < limit:
                return word % bound

    def permutation(self, items: Sequence[int]) -> list[int]:
        """A list of ``items`` in a uniformly random order (Fisher and Yates)."""
        out = list(items)
        for last in range(len(out) - 1, 0, -1):
            other = self.below(last + 1)
            out[last], out[other] = out[other], out[last]
        return out

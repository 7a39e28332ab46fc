"""Threefry-4x64 with 20 rounds on tensors: words from a whole 256-bit key and a counter, on any device.

A counter-based generator: each block of four words follows from the key and the block's number alone, so that
a GPU makes all of them at once. Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011), define it; its known answers are those of their library Random123.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORDS = 4  # of 64 bits, in a block
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ROUNDS = 20


def threefry_words(keys: Tensor, counters: Tensor) -> list[Tensor]:
    """The four words of every block, as signed integers.

    Args:
        keys: int64 ``[R, 4]``.
        counters: int64 ``[4, C]``, the four words of each block's counter, on the device of ``keys``.

    Returns:
        Four tensors, int64 ``[R, C]``.
    """
    key = [*keys.T[:, :, None], torch.full_like(keys[:, :1], _PARITY)]
    for word in key[:WORDS]:
        key[WORDS] = key[WORDS] ^ word
    state = [counter + word for counter, word in zip(counters, key[:WORDS], strict=True)]
    scratch = torch.empty_like(state[0])
    for number in range(_ROUNDS):
        pairs = ((0, 1), (2, 3)) if number % 2 == 0 else ((0, 3), (2, 1))
        for (one, other), bits in zip(pairs, _ROTATIONS[number % len(_ROTATIONS)], strict=True):
            state[one].add_(state[other])
            _rotate_(state[other], bits, scratch)
            state[other].bitwise_xor_(state[one])
        if number % 4 == 3:
            turn = number // 4 + 1
            for place, words in enumerate(state):
                words.add_(key[(turn + place) % len(key)])
            state[-1].add_(turn)
    return state


def _rotate_(words: Tensor, bits: int, scratch: Tensor) -> None:
    """Rotate each 64-bit word of ``words`` by ``bits`` to the left, in place; ``scratch`` has their shape.

    A shift to the right copies the sign, and is masked.
    """
    torch.bitwise_left_shift(words, bits, out=scratch)
    words.bitwise_right_shift_(64 - bits).bitwise_and_((1 << bits) - 1).bitwise_or_(scratch)

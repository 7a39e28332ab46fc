"""Threefry-4x64 with 20 rounds on tensors: words from a whole 256-bit key and a counter, on any device.

A counter-based generator: each block of four words follows from the key and the block's number alone, so that
a GPU makes all of them at once. Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(SC 2011), define it; its known answers are those of their library Random123.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor
from torch.cuda import jiterator

WORDS = 4  # of 64 bits, in a block
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ROUNDS = 20


def threefry_words(keys: Tensor, counters: Tensor) -> list[Tensor]:
    """The four 64-bit words of every block, for R keys and C counters, as signed integers.

    Args:
        keys: int64 ``[R, 4]``.
        counters: int64 ``[4, C]``, the four words of each block's counter, on the device of ``keys``.

    Returns:
        Four tensors, int64 ``[R, C]``.
    """
    if keys.is_cuda:
        return list(_gpu_kernel()(*keys.T[:, :, None], *counters[:, None]))
    key = [*keys.T[:, :, None], torch.full_like(keys[:, :1], _PARITY)]
    for word in key[:WORDS]:
        key[WORDS] = key[WORDS] ^ word
    state = [counter + word for counter, word in zip(counters, key[:WORDS], strict=True)]
    scratch = torch.empty_like(state[0])
    for number, pairs in enumerate(_rounds()):
        for one, other, bits in pairs:
            state[one].add_(state[other])
            _rotate_(state[other], bits, scratch)
            state[other].bitwise_xor_(state[one])
        if number % 4 == 3:
            turn = number // 4 + 1
            for place, words in enumerate(state):
                words.add_(key[(turn + place) % len(key)])
            state[-1].add_(turn)
    return state


@cache
def _gpu_kernel() -> Callable[..., tuple[Tensor, ...]]:
    """Make the function that computes all rounds of Threefry in one pass on the GPU.

    It takes four words of a key and four of a counter, int64 tensors that broadcast, and returns the four
    words of the blocks. Operation by operation, every round would go through memory a dozen times.
    """
    ins = ", ".join(f"T {kind}{word}" for kind in ("key", "counter") for word in range(WORDS))
    outs = ", ".join(f"T& out{word}" for word in range(WORDS))
    lines = [f"unsigned long long k{word} = key{word};" for word in range(WORDS)]
    lines += [f"unsigned long long k{WORDS} = {_PARITY}ULL ^ k0 ^ k1 ^ k2 ^ k3;"]
    lines += [f"unsigned long long x{word} = counter{word} + k{word};" for word in range(WORDS)]
    for number, pairs in enumerate(_rounds()):
        for one, other, bits in pairs:
            lines += [f"x{one} += x{other};"]
            lines += [f"x{other} = ((x{other} << {bits}) | (x{other} >> {64 - bits})) ^ x{one};"]
        if number % 4 == 3:
            turn = number // 4 + 1
            lines += [f"x{place} += k{(turn + place) % (WORDS + 1)};" for place in range(WORDS)]
            lines += [f"x{WORDS - 1} += {turn};"]
    lines += [f"out{word} = x{word};" for word in range(WORDS)]
    source = f"template <typename T> void threefry({ins}, {outs}) {{ {' '.join(lines)} }}"
    made: Callable[..., tuple[Tensor, ...]] = jiterator._create_multi_output_jit_fn(source, num_outputs=WORDS)
    return made


def _rounds() -> Iterator[list[tuple[int, int, int]]]:
    """For each round its two mixes: (word to add to, word that is added and rotated, bits to rotate by)."""
    for number in range(_ROUNDS):
        pairs = ((0, 1), (2, 3)) if number % 2 == 0 else ((0, 3), (2, 1))
        rotations = _ROTATIONS[number % len(_ROTATIONS)]
        yield [(one, other, bits) for (one, other), bits in zip(pairs, rotations, strict=True)]


def _rotate_(words: Tensor, bits: int, scratch: Tensor) -> None:
    """Rotate each 64-bit word of ``words`` by ``bits`` to the left, in place; ``scratch`` has their shape.

    A shift to the right copies the sign, and is masked.
    """
    torch.bitwise_left_shift(words, bits, out=scratch)
    words.bitwise_right_shift_(64 - bits).bitwise_and_((1 << bits) - 1).bitwise_or_(scratch)

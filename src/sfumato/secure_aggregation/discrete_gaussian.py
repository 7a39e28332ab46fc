"""Integer noise: the discrete Gaussian N_Z(0, σ²), P(z) ∝ exp(−z²/2σ²) (Canonne, Kamath and Steinke 2020).

Sampled by rejection from a staircase over blocks of 2^k integers: a block is drawn with integer weights at
least the target's on it, a place in the block uniformly, and kept with probability target / staircase. Each
such choice compares a uniform real with a real number p. Floating point decides it where it certainly can: it
keeps clear of p by 2^-40, above every rounding error made here; the rest (one in 10^11) is decided with as
many decimal digits as it takes. So, unlike Gaussians in floating point, no probability is rounded (Mironov
2012 is what rounding leads to). One thing is left out: |z| ≥ 16σ, of total probability below 2^-180.
"""

from __future__ import annotations

import decimal
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sfumato.wire.errors import QuantisationError
from sfumato.wire.key_stream import KeyStream

_DEVIATIONS = 16
_WEIGHT_BITS = 50  # so that their sum is far below 2^64
_MARGIN = 2.0**-40
_LARGEST_STD = 2.0**46


def sample_discrete_gaussian(
    size: int, std: float, stream: KeyStream, *, margin: float = _MARGIN
) -> npt.NDArray[np.int64]:
    """Draw ``size`` exact values of the discrete Gaussian ``N_Z(0, std²)``, int64 ``[size]``.

    The law is that of Canonne, Kamath and Steinke 2020, without ``|z| >= 16 std`` (see the module).

    Args:
        size: number of values.
        std: σ of the formula, in steps of the ring, 0 to 2^46; 0 gives zeros. For large σ it is the standard
            deviation.
        stream: uniform words; the same stream gives the same noise.
        margin: how close a decision must be to be made in decimals instead of floating point; a larger one is
            slower and gives the same law.

    Raises:
        QuantisationError: ``std`` is negative, not finite, or above 2^46.
    """
    if not 0 <= std <= _LARGEST_STD:
        raise QuantisationError(f"std: got {std!r}; must be in 0..2^46 steps of the ring")
    out = np.zeros(size, dtype=np.int64)
    if std == 0:
        return out
    missing, filled = size, 0
    while missing:
        kept = _propose(missing + missing // 8 + 16, std, stream, margin)[:missing]
        out[filled : filled + len(kept)] = kept
        filled, missing = filled + len(kept), missing - len(kept)
    return out


def _propose(count: int, std: float, stream: KeyStream, margin: float) -> npt.NDArray[np.int64]:
    """The accepted ones of ``count`` proposals: exact draws of the discrete Gaussian, int64.

    Args:
        count: number of proposals.
        std: σ, in steps, above 0.
        stream: uniform words; how many are read depends on the draws.
        margin: how close a decision must be to be made in decimals.
    """
    block_bits, weights, cumulative = _staircase(std)
    total = int(cumulative[-1])
    picks = stream.words(count) // np.uint64((1 << 64) // total)  # equally many words for every pick
    picks = picks[picks < total]
    block = np.searchsorted(cumulative, picks, side="right")
    words = stream.words(len(picks))
    place = (words >> np.uint64(1)) & np.uint64((1 << block_bits) - 1)
    size = (block.astype(np.int64) << block_bits) + place.astype(np.int64)
    negative = (words & np.uint64(1)).astype(bool)
    coin = stream.words(len(picks))
    exponent = size.astype(np.float64) ** 2 / (-2 * std * std) - np.log(weights / 2.0**_WEIGHT_BITS)[block]
    gap = (coin >> np.uint64(11)).astype(np.float64) * 2.0**-53 - np.exp(exponent)
    keep = gap < 0
    for at in np.flatnonzero(np.abs(gap) < margin):
        keep[at] = _decide(int(coin[at]), int(size[at]), std, int(weights[block[at]]), stream)
    keep &= ~(negative & (size == 0))  # zero has one sign
    signed: npt.NDArray[np.int64] = np.where(negative, -size, size)
    kept: npt.NDArray[np.int64] = signed[keep]
    return kept


@lru_cache(maxsize=64)
def _staircase(std: float) -> tuple[int, npt.NDArray[np.float64], npt.NDArray[np.uint64]]:
    """The staircase above a Gaussian of σ ``std``: log2 of a block's width, weights, and their running sums.

    The weights and sums ``[blocks]`` are of the blocks, from 0 outwards. Weights are at least 2^50 times the
    target.
    """
    block_bits = max(0, math.floor(math.log2(std / 8))) if std >= 8 else 0
    width = 1 << block_bits
    blocks = math.ceil(_DEVIATIONS * max(std, 0.5) / width) + 1
    weights = []
    for block in range(blocks):
        height = math.exp(-((block * width) ** 2) / (2 * std * std))
        # above the target whatever the rounding, and a multiple of 16: exact as a float too
        weights.append(16 * (int(height * (1 + 2.0**-36) * 2.0**_WEIGHT_BITS) // 16 + 1))
    return block_bits, np.array(weights, dtype=np.float64), np.cumsum(np.array(weights, dtype=np.uint64))


def _decide(coin: int, size: int, std: float, weight: int, stream: KeyStream) -> bool:
    """Whether to accept a proposal exactly, where floating point is too coarse.

    That is, whether a uniform real that starts with the 64 bits of ``coin`` is below target / staircase.

    Args:
        size: magnitude of the proposal.
        weight: of its block of the staircase.
        stream: gives further bits of the coin.
        std: σ, in steps.
    """
    bits = 64
    while True:
        with decimal.localcontext() as context:
            context.prec = 40 + bits // 2
            variance = decimal.Decimal(std) * decimal.Decimal(std)
            chance = (-decimal.Decimal(size * size) / (2 * variance)).exp() * (1 << _WEIGHT_BITS) / weight
            low = decimal.Decimal(coin) / (1 << bits)
            high = decimal.Decimal(coin + 1) / (1 << bits)
            slack = decimal.Decimal(10) ** (-(context.prec - 20))
            if high < chance - slack:
                return True
            if low > chance + slack:
                return False
        coin = (coin << 64) | int(stream.words(1)[0])
        bits += 64

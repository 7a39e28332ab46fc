"""Compression of devices' messages: which coordinates are sent, and in how many bits.

*What it does to sensitivity.* Coordinates are chosen without looking at anything that is still secret (a
shared seed, or the model that everybody has), and leaving coordinates out makes a vector no longer: the clip
stays the bound. Rounding to a few bits could make it longer, so where the message is not noised yet the
scale that is sent along is lowered until it is not; rounding a noised message is post-processing. What is
left over (error feedback) joins the next message *before* that is clipped again.

*Bias.* The average that arrives holds the chosen coordinates only: in expectation over ``rand-k`` it is k/d
of the average update (Lemma 1 of pfels.txt). Nothing scales it up: that would scale the noise as well.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sfumato.learning.norms import row_norms, scale_factors
from sfumato.random import Stream, generator, key_at
from sfumato.wire.key_stream import KeyStream

_COORDINATES, _ROUNDING = 0, 1


def rand_k(parameters: int, kept: int, *, seed: int, key: tuple[int, ...]) -> Tensor:
    """``kept`` random coordinates, ascending, int64 ``[kept]``; who shares the seed knows the same ones.

    Args:
        parameters: M, coordinates to draw from.
        kept: k.
        seed: of the run.
        key: address within the stream COMPRESSION, e.g. (round, aggregation).
    """
    rng = generator(seed, Stream.COMPRESSION, _COORDINATES, *key)
    return torch.from_numpy(np.sort(rng.choice(parameters, size=kept, replace=False, shuffle=False)))


def top_k(model: Tensor, kept: int) -> Tensor:
    """The ``kept`` coordinates of largest magnitude in ``model`` ``[M]``, ascending, int64 ``[kept]``.

    ``model`` must be released already: which coordinates are sent then tells nothing more.
    """
    # a stable sort, so that ties fall the same way on every machine
    order = torch.sort(model.abs(), descending=True, stable=True).indices
    return order[:kept].sort().values


def bounded_(vectors: Tensor, bounds: Tensor) -> Tensor:
    """Scale the rows of ``vectors`` ``[p, k]`` down, in place, to l2 norms of at most ``bounds`` ``[p]``.

    Returns ``vectors``.

    Args:
        vectors: float32 ``[p, k]``.
        bounds: the largest l2 norm of each row, ``[p]``.
    """
    factors = scale_factors(row_norms(vectors) / bounds, 1.0)
    scaled: Tensor = vectors.mul_(factors[:, None])
    return scaled


def rounding_key(seed: int, *address: int) -> bytes:
    """The 32-byte key of the random draws by which one message is rounded.

    Args:
        seed: of the run.
        address: within the stream COMPRESSION, e.g. round, aggregation, device.
    """
    return key_at(seed, Stream.COMPRESSION, _ROUNDING, *address)


def round_stochastically(vector: Tensor, bits: int, key: bytes) -> Tensor:
    """``vector`` ``[k]`` as its receiver decodes it: signed whole numbers of ``bits`` bits times one scale.

    QSGD (Alistarh et al. 2017) with the largest magnitude as the scale: ``2**(bits - 1) - 1`` levels,
    rounded up or down at random so that the expectation is the vector itself.

    Args:
        vector: float32 ``[k]``, finite.
        bits: of a coordinate, sign included; at least 2.
        key: 32 bytes, used for nothing else; see `rounding_key`.
    """
    scale = float(vector.abs().max()) if len(vector) else 0.0
    if scale == 0:
        return vector
    levels = 2 ** (bits - 1) - 1
    dither = torch.from_numpy(KeyStream(key).units(len(vector))).to(vector.device)
    whole = torch.floor(vector.double() / scale * levels + dither).clamp_(-levels, levels).float()
    return whole.mul_(scale / levels)

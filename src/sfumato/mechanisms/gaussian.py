"""Gaussian noise, every row of it from a key of its own: the same key, the same noise.

The construction is Box and Muller's, on a stream of the row's key. A pair of normals takes 64 bits for its
radius, ``sqrt(-2 ln u)``, and 32 bits for its angle. The values of ``u`` are 2^-63 apart and the least is
2^-64, so radii reach 9.42: a normal lies beyond that with probability 5e-21. Arithmetic is in float32, so a
value has 24 significant bits; 0 itself has a chance of 2^-25. Floating-point Gaussians are idealised in the
accounts.

Rows on the CPU get the AES-256-CTR stream of their key, by NumPy. Rows on a GPU get noise that is made there,
from the Threefry-4x64 stream of the same key: other values, and nothing is copied. On either, each value
follows from its own words of the stream, so that the bytes depend neither on the number of threads nor on how
rows are divided into chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.mechanisms.threefry import WORDS, threefry_words
from sfumato.privacy.release import GAUSSIAN
from sfumato.wire.key_stream import KeyStream

FloatArray = npt.NDArray[np.float64]
_UNITS = np.array([[2.0**-31], [2.0**-63], [math.pi * 2.0**-31]], np.float32)  # of a pair's three words
_BLOCK = 1 << 15  # coordinates worked on at once, few enough for a core's cache; another number, other noise
_GPU_BLOCK = 1 << 24  # the same on a GPU; the noise does not depend on it


class GaussianNoise:
    """The mechanism of every party, unless a spec names another; see `NoiseMechanism`."""

    law = GAUSSIAN

    def add_(self, rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
        """Add noise ``N(0, std^2 I)`` to rows, in place.

        Args:
            rows: float32 ``[P, M]``, on any device.
            stds: standard deviation a coordinate of each row's noise, ``[P]``; a row with 0 is left as it is.
            key_of: gives the 32-byte key of a row by its number: the same key, the same noise.
        """
        add_gaussian_(rows, stds, key_of)


def add_gaussian_(rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
    """Add noise ``N(0, std^2 I)`` to rows, in place.

    Args:
        rows: float32 ``[P, M]``, on any device.
        stds: standard deviation a coordinate of each row's noise, ``[P]``; a row with 0 is left untouched.
        key_of: gives the key of a row by its number, 32 bytes, used for nothing else; asked for rows that
            get noise. A key made from a published seed regenerates the noise: that is for simulation.
    """
    add = _add_on_cpu_ if rows.device.type == "cpu" else _add_on_gpu_
    add(rows, stds, key_of)


def _add_on_cpu_(rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
    """Add noise to rows ``[P, M]`` on the CPU, in place, from the AES-256-CTR streams of the rows' keys.

    ``stds`` ``[P]``: standard deviations, 0 for none; ``key_of`` gives the 32-byte key of a row by its
    number.
    """
    for run, keys, scales in _runs_with_noise(rows, stds, key_of, _BLOCK):
        streams = [KeyStream(key) for key in keys]
        for start in range(0, run.shape[1], _BLOCK):
            piece = run[:, start : start + _BLOCK]
            piece.add_(torch.from_numpy(_normals(streams, piece.shape[1], scales)))


def _add_on_gpu_(rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
    """Add noise to rows ``[P, M]`` on a GPU, in place, from the Threefry streams of the rows' keys.

    ``stds`` ``[P]``: standard deviations, 0 for none; ``key_of`` gives the 32-byte key of a row by its
    number.
    """
    for run, keys, scales in _runs_with_noise(rows, stds, key_of, _GPU_BLOCK):
        there = torch.from_numpy(scales).to(rows.device)
        for start in range(0, run.shape[1], _GPU_BLOCK):
            piece = run[:, start : start + _GPU_BLOCK]
            piece.add_(_threefry_normals(keys, start, start + piece.shape[1], there))


def _runs_with_noise(
    rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes], block: int
) -> Iterator[tuple[Tensor, list[bytes], npt.NDArray[np.float32]]]:
    """Yield runs of consecutive rows that get noise, each of at most ``block`` coordinates or one row.

    Yields:
        The rows ``[n, M]``, a view; their 32-byte keys; their standard deviations, float32 ``[n, 1]``.
    """
    noised, most = np.flatnonzero(stds), max(1, block // max(1, rows.shape[1]))
    for run in np.split(noised, np.flatnonzero(np.diff(noised) != 1) + 1):
        for start in range(0, len(run), most):
            some = run[start : start + most]
            keys = [key_of(row) for row in some.tolist()]
            yield rows[some[0] : some[-1] + 1], keys, stds[some, None].astype(np.float32)


def _normals(
    streams: Sequence[KeyStream], count: int, scales: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """The next ``count`` normals of each stream, times its scale: float32 ``[streams, count]``.

    Args:
        streams: one a row; each gives 12 bytes a pair.
        count: of normals; of an odd number's last pair one normal is dropped.
        scales: ``[streams, 1]``.
    """
    pairs = (count + 1) // 2
    words = np.empty((len(streams), 3, pairs), dtype="<i4")
    for row, stream in enumerate(streams):
        stream.fill(words[row])
    parts = words.astype(np.float32)
    parts *= _UNITS
    radius, angle = parts[:, 0], parts[:, 2]
    radius += parts[:, 1]
    # now uniform on -1 to 1 in steps of 2^-63; u is the chance of being no farther from 0
    np.abs(radius, out=radius)
    radius += np.float32(2.0**-64)
    np.log(radius, out=radius)
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    radius *= scales
    normals = np.empty((len(streams), 2, pairs), np.float32)
    np.cos(angle, out=normals[:, 0])
    np.sin(angle, out=normals[:, 1])
    normals *= radius[:, None]
    return normals.reshape(len(streams), 2 * pairs)[:, :count]


def _threefry_normals(keys: Sequence[bytes], start: int, stop: int, scales: Tensor) -> Tensor:
    """Normals ``start`` to ``stop`` of each key's Threefry stream, times its scale, where ``scales`` are.

    Block number c of a key has the counter (c, 0, 0, 0) and gives four normals.

    Args:
        keys: 32 bytes each, read as four little-endian words.
        start: the first number, a multiple of four.
        stop: the number after the last.
        scales: float32 ``[keys, 1]``.

    Returns:
        float32 ``[keys, stop - start]``.
    """
    blocks = torch.arange(start // WORDS, -(-stop // WORDS), device=scales.device)
    counters = torch.stack([blocks, *[torch.zeros_like(blocks)] * (WORDS - 1)])
    key = torch.from_numpy(np.frombuffer(b"".join(keys), "<i8").reshape(-1, WORDS).copy()).to(scales.device)
    found = []
    words = threefry_words(key, counters)
    for radius, angle in (words[:2], words[2:]):
        # uniform on -1 to 1 in steps of 2^-63, as above; an angle is the upper half of its word
        chance = radius.float().mul_(2.0**-63).abs_().add_(2.0**-64)
        length = chance.log_().mul_(-2.0).sqrt_().mul_(scales)
        turn = angle.bitwise_right_shift(32).float().mul_(math.pi * 2.0**-31)
        found += [turn.cos() * length, turn.sin_() * length]
    return torch.stack(found, dim=2).reshape(len(keys), -1)[:, : stop - start]

"""Gaussian noise, every row of it from a key of its own: the same key, the same noise.

The construction is Box and Muller's, on the AES-256-CTR stream of the row's key. A pair of normals takes 64
bits for its radius, ``sqrt(-2 ln u)``, and 32 bits for its angle. The values of ``u`` are 2^-63 apart and the
least is 2^-64, so radii reach 9.42: a normal lies beyond that with probability 5e-21. Arithmetic is in
float32, so a value has 24 significant bits; 0 itself has a chance of 2^-25. Floating-point Gaussians are
idealised in the accounts.

All of it is computed on the CPU by NumPy, each value from its own words of the stream, and then copied to
where the rows are. So the bytes depend neither on the number of threads, nor on how rows are divided into
chunks, nor on the kind of device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.privacy.release import GAUSSIAN
from sfumato.wire.key_stream import KeyStream

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
_UNITS = np.array([[2.0**-31], [2.0**-63], [math.pi * 2.0**-31]], np.float32)  # of a pair's three words
_BLOCK = 1 << 15  # coordinates worked on at once, few enough for a core's cache; another number, other noise


class GaussianNoise:
    """The mechanism of every party, unless a spec names another; see `NoiseMechanism`."""

    law = GAUSSIAN

    def add_(self, rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
        """Add Gaussian noise to rows ``[P, M]``, in place; arguments as of `add_gaussian_`."""
        add_gaussian_(rows, stds, key_of)


def add_gaussian_(rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
    """Add noise ``N(0, std^2 I)`` to rows, in place.

    Args:
        rows: float32 ``[P, M]``, on any device.
        stds: standard deviation a coordinate of each row's noise, ``[P]``; a row with 0 is left untouched.
        key_of: gives the key of a row by its number, 32 bytes, used for nothing else; asked for rows that
            get noise. A key made from a published seed regenerates the noise: that is for simulation.
    """
    length = rows.shape[1]
    for some in _consecutive_runs(np.flatnonzero(stds), max(1, _BLOCK // max(1, length))):
        first, last = int(some[0]), int(some[-1])
        streams = [KeyStream(key_of(row)) for row in range(first, last + 1)]
        scales = stds[some, None].astype(np.float32)
        for start in range(0, length, _BLOCK):
            stop = min(start + _BLOCK, length)
            noise = torch.from_numpy(_normals(streams, stop - start, scales))
            rows[first : last + 1, start:stop].add_(noise.to(rows.device))


def _consecutive_runs(rows: IntArray, most: int) -> Iterator[IntArray]:
    """Split ascending row numbers into runs of consecutive ones, of at most ``most``."""
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        for start in range(0, len(run), most):
            yield run[start : start + most]


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

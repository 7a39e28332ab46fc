"""Discrete Gaussian noise on sums of integers, every row of it from a key of its own.

The sampler is that of `sfumato.secure_aggregation.discrete_gaussian`, whose law the accountant composes as a
Gaussian of the same standard deviation, with the sensitivity that rounding to integers leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sfumato.secure_aggregation.discrete_gaussian import sample
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def add_discrete_gaussian_(rows: IntArray, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
    """Add noise ``N_Z(0, std^2)`` to rows, in place.

    Args:
        rows: int64 ``[P, k]``.
        stds: standard deviation a coordinate of each row's noise, in units of the grid, ``[P]``; a row with 0
            is left as it is.
        key_of: gives the key of a row by its number, 32 bytes, used for nothing else.
    """
    for row in np.flatnonzero(stds):
        rows[row] += sample(rows.shape[1], float(stds[row]), KeyStream(digest(b"noise", key_of(int(row)))))

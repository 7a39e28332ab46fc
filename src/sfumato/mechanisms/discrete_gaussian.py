"""Discrete Gaussian noise on sums of integers, every row of it from a key of its own.

The sampler is that of `sfumato.secure_aggregation.discrete_gaussian`, whose law the accountant composes as a
Gaussian of the same standard deviation, with the sensitivity that rounding to integers leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sfumato.privacy.release import NoiseLaw
from sfumato.secure_aggregation.discrete_gaussian import sample_discrete_gaussian
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class DiscreteGaussianNoise:
    """The mechanism of parties whose messages are integers; see `NoiseMechanism`."""

    law = NoiseLaw("discrete Gaussian")

    def add_(self, rows: IntArray, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
        """Add discrete Gaussian noise to rows of integers, in place.

        Args:
            rows: int64 ``[P, M]``.
            stds: in steps of the grid, a coordinate of each row's noise ``[P]``; a row with 0 is left as it
                is.
            key_of: gives the 32-byte key of a row by its number: the same key, the same noise.
        """
        for row in np.flatnonzero(stds):
            stream = KeyStream(digest(b"noise", key_of(int(row))))
            rows[row] += sample_discrete_gaussian(rows.shape[1], float(stds[row]), stream)

"""The interface of noise mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.privacy.noise_law import NoiseLaw

FloatArray = npt.NDArray[np.float64]


class NoiseMechanism(Protocol):
    """Noise that a party adds to a message of real numbers."""

    @property
    def law(self) -> NoiseLaw:
        """Its distribution, and whether the accountant can compose it."""

    def add_(self, rows: Tensor, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
        """Add noise to rows, in place.

        Args:
            rows: float32 ``[P, M]``, on any device.
            stds: standard deviation a coordinate of each row's noise, ``[P]``; a row with 0 is left as it is.
            key_of: gives the key of a row by its number, 32 bytes, used for nothing else: the same key, the
                same noise. Only asked for rows that get noise.
        """

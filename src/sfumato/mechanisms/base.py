"""The interface of noise mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from sfumato.privacy.release import NoiseLaw

FloatArray = npt.NDArray[np.float64]
Rows = TypeVar("Rows", contravariant=True)


class NoiseMechanism(Protocol[Rows]):
    """Noise that a party adds to messages: ``Rows`` are tensors of floats or int64 arrays of steps."""

    @property
    def law(self) -> NoiseLaw:
        """The distribution of the noise, and whether the accountant can compose it."""

    def add_(self, rows: Rows, stds: FloatArray, key_of: Callable[[int], bytes]) -> None:
        """Add noise to rows, in place.

        Args:
            rows: ``[P, M]``; tensors may be on any device.
            stds: standard deviation a coordinate of each row's noise ``[P]``; a row with 0 is left as it is.
            key_of: gives the key of a row by its number, 32 bytes, used for nothing else: the same key, the
                same noise. Only asked for rows that get noise.
        """

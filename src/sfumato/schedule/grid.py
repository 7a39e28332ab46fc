"""The grid on which messages are added up: whole steps of a power of two, modulo another.

One type for all sums. Messages that are sent in the open are rounded to it towards zero (`message_grid`); for
secure aggregation devices round at random and the grid follows from the ring (`integer_grid`). What parties
send each other then are these very integers, so a simulated round and a deployed one add up the same ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[Any]

WIDEST = 64
"""Bits of a sum in memory."""

_SMALL = -120  # float32 holds 2^120


@dataclass(frozen=True)
class Grid:
    """The multiples of a power of two.

    Attributes:
        exponent: the step is 2 to that power.
        bits: of a sum, a whole number of steps in two's complement: 32 or 64.
    """

    exponent: int
    bits: int

    @property
    def step(self) -> float:
        """The distance between neighbouring points of the grid."""
        return math.ldexp(1.0, self.exponent)

    @property
    def scale(self) -> float:
        """The number of steps in 1: the inverse of `step`."""
        return math.ldexp(1.0, -self.exponent)

    def whole(self, values: FloatArray) -> FloatArray:
        """``values`` in grid steps, rounded towards zero to whole numbers, as floats of the same shape.

        Exact for float32 values; infinite where a float32 cannot hold so many steps. They are floats because
        they may not fit an integer of `bits` bits.
        """
        kind = np.float32 if values.dtype == np.float32 and self.exponent >= _SMALL else np.float64
        with np.errstate(over="ignore"):
            found = np.multiply(values, kind(self.scale), dtype=kind)
        return np.trunc(found, out=found)

    def wrapped(self, sums: IntArray) -> IntArray:
        """``sums`` modulo 2^bits, as the numbers from -2^(bits - 1) to 2^(bits - 1) - 1.

        int64 of the same shape; ``sums`` itself where `bits` is 64.
        """
        if self.bits == WIDEST:
            return sums
        return sums.astype(f"<i{self.bits // 8}").astype(np.int64)

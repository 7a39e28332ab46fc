"""Decibels and watts."""

from __future__ import annotations

from typing import overload

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@overload
def from_db(value_db: float) -> float: ...
@overload
def from_db(value_db: FloatArray) -> FloatArray: ...
def from_db(value_db: float | FloatArray) -> float | FloatArray:
    """A linear power ratio from decibels."""
    return 10.0 ** (value_db / 10.0)


def watts(power_dbm: float) -> float:
    """Watts from dBm (decibels over a milliwatt)."""
    return 1e-3 * from_db(power_dbm)

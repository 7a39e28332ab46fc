"""Figures, counts and truth values of JSON files, read strictly: what is of another kind is an error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.verify.json_values import Array, shortened


def figure(value: Any) -> float:
    """A figure of a JSON file, where ∞ is ``"inf"``; no other text, no truth value and not NaN."""
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{shortened(value)} is no number")
    return float(value)


def count(value: Any) -> int:
    """A count or an index of a JSON file: no fraction, which would be rounded, and not below 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{shortened(value)} is no whole number from 0")
    return value


def flag(value: Any) -> bool:
    """A truth value of a JSON file."""
    if not isinstance(value, bool):
        raise ValueError(f"{shortened(value)} is neither true nor false")
    return value


def figures(values: Sequence[Any]) -> Array:
    """Figures of a JSON file."""
    return np.array([figure(value) for value in values], dtype=np.float64)


def counts(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Counts or indices of a JSON file."""
    return np.array([count(value) for value in values], dtype=np.int64)

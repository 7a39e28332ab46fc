"""Figures, counts and truth values of JSON and YAML files, read strictly: another kind is an error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Json: TypeAlias = Mapping[str, Any]

BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a file fails with whose content does not fit: a mismatch."""


class UnknownKindError(ValueError):
    """A kind of protocol, event or draw that this checker has no rule for."""


def shortened(value: Any) -> str:
    """A value as text of at most 80 characters, with ``...`` where it is cut."""
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def figure(value: Any) -> float:
    """A number of a JSON file as a float; "inf" is ∞.

    Raises:
        ValueError: it is other text, a truth value, NaN or of another type.
    """
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{shortened(value)} is no number")
    return float(value)


def count(value: Any) -> int:
    """A whole number ≥ 0 of a JSON file.

    Raises:
        ValueError: it is a float, a truth value, negative or of another type.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{shortened(value)} is no whole number from 0")
    return value


def flag(value: Any) -> bool:
    """A truth value of a JSON file.

    Raises:
        ValueError: it is anything else.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{shortened(value)} is neither true nor false")
    return value


def figures(values: Sequence[Any]) -> Array:
    """`figure` of every value, as a float64 array ``[values]``.

    Raises:
        ValueError: a value is no number.
    """
    return np.array([figure(value) for value in values], dtype=np.float64)


def counts(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """`count` of every value, as an int64 array ``[values]``.

    Raises:
        ValueError: a value is no whole number ≥ 0.
    """
    return np.array([count(value) for value in values], dtype=np.int64)

"""Types of the checker, names of parties, chances, and how figures are compared."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Json: TypeAlias = Mapping[str, Any]
Party: TypeAlias = tuple[str, int, int]
"""Kind, tier and index of a unit or an observer."""

ROUNDING = 1e-9
"""Relative difference of two figures that were computed in another order."""
BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a file fails with whose content does not fit: a mismatch."""


class UnknownKindError(ValueError):
    """A kind of event or draw that this checker has no rule for."""


def nearly_equal(one: float, other: float) -> bool:
    """Whether two figures differ by at most `ROUNDING` relative to the larger; ∞ equals only ∞."""
    largest = max(abs(one), abs(other), 1e-300)
    return one == other or (math.isfinite(largest) and abs(one - other) <= ROUNDING * largest)


def chance_of_any(chance: float, times: int) -> float:
    """1 − (1 − ``chance``)^``times``: the probability of at least one of independent equal events."""
    return 1.0 if chance >= 1 and times else -math.expm1(times * math.log1p(-chance))


def is_within_device(row: Json) -> bool:
    """Whether a row of privacy.json is about a record or a person, not about a whole device."""
    return str(row["unit"]).startswith(("record:", "person:"))


def kind_and_index(name: str) -> tuple[str, int]:
    """Kind and index of a party's name, such as ("device", 3) of ``device:3``.

    Raises:
        ValueError: the name is written in another way, with leading zeros for example.
    """
    found = re.fullmatch(r"(.+):(0|[1-9][0-9]{0,9})", name, re.ASCII)
    if found is None:
        raise ValueError(f"there is no party {name!r}")
    return found[1], int(found[2])


def require_index_below(name: str, index: int, count: int) -> None:
    """Raise `ValueError`, which names the party, unless ``index < count``."""
    if index >= count:
        raise ValueError(f"there is no party {name!r}")


def shortened(value: Any) -> str:
    """A value as text of at most 80 characters, with ``...`` where it is cut."""
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def mismatch_of(what: str, one: Any, other: Any) -> Iterator[str]:
    """Yield one line unless ``one``, which the certificate says, (nearly) equals ``other``, which it must be.

    ``what``: name of the figure in the line.
    """
    if one != other and not (
        isinstance(one, float) and isinstance(other, float) and nearly_equal(one, other)
    ):
        yield f"{what}: the certificate says {one}; it must be {other}"

"""How figures of a certificate are compared with those that the facts give."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

ROUNDING = 1e-9
"""Relative difference of two figures that were computed in another order."""


def nearly_equal(one: float, other: float) -> bool:
    """Whether ``one`` and ``other`` differ by at most `ROUNDING` relative to the larger; ∞ equals only ∞."""
    largest = max(abs(one), abs(other), 1e-300)
    return one == other or (math.isfinite(largest) and abs(one - other) <= ROUNDING * largest)


def mismatch_of(what: str, one: Any, other: Any) -> Iterator[str]:
    """Yield one line unless a certificate's figure ``one`` (nearly) equals the recomputed ``other``.

    ``what``: name of the figure in the line.
    """
    if one != other and not (
        isinstance(one, float) and isinstance(other, float) and nearly_equal(one, other)
    ):
        yield f"{what}: the certificate says {one}; it must be {other}"

"""Measured values as text, with half of their 95 % interval."""

from __future__ import annotations

import math

from sfumato.rounding import number

_SAME = 1e-9  # relative: sums in another order differ by less


def with_half_width(value: float, half_width: float) -> str:
    """A value ± half of its interval; both have the power of ten of the value where it is written with one.

    The value alone where the half-width is NaN or nothing but rounding.
    """
    shown = number(value)
    if math.isnan(half_width) or half_width <= _SAME * abs(value):
        return shown
    digits, exponent, power = shown.partition("e")
    half = number(half_width / 10 ** int(power), 2) if power else number(half_width, 2)
    return f"{digits}{exponent}{power} ± {half}{exponent}{power}"

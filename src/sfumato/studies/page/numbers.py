"""Measured values as text, with half of their 95 % interval."""

from __future__ import annotations

import math

from sfumato.rounding import number

_SAME = 1e-9  # relative: sums in another order differ by less


def with_half_width(value: float, half_width: float) -> str:
    """A value ± half of its interval, which has two digits; the value ends with the same decimal.

    Both have the power of ten of the value where it is written with one. The value alone where the half-width
    is NaN or nothing but rounding.
    """
    shown = number(value)
    if math.isnan(half_width) or half_width <= _SAME * abs(value):
        return shown
    _, exponent, power = shown.partition("e")
    scale = 10.0 ** int(power or 0)
    half = number(half_width / scale, 2, keep_zeros=True)
    if "e" in half:
        return f"{shown} ± {number(half_width, 2)}"
    decimals = len(half.partition(".")[2])
    rounded = round(value / scale, decimals) or 0.0  # not -0.0
    return f"{rounded:,.{decimals}f}{exponent}{power} ± {half}{exponent}{power}"

"""Numbers as text, wherever a figure is printed: bounds are rounded against us, all else to the nearest.

A guarantee is an upper bound: what is printed is never below it. An audit's result is a lower bound: what is
printed is never above it. What is rounded are the decimals that a number is written with, so what is printed
reads back as a number on the right side of the figure, and 0.1 is printed as 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

DIGITS = 4
_MOST_NINES = 10  # decimals of a percentage
_LEAST, _MOST = 1e-3, 1e6  # smaller and larger ones are written with a power of ten
_EXACT = Context(prec=40)  # a float is written with 17 digits at most


def upper_bound(value: float, digits: int = DIGITS, *, keep_zeros: bool = False) -> str:
    """``value``, an upper bound such as ε, as text rounded up: ∞ where there is no bound, a dash for NaN.

    ``digits``: significant ones; ``keep_zeros``: whether zeros at the end stay.
    """
    return _text(value, digits, ROUND_CEILING, keep_zeros=keep_zeros)


def range_text(bounds: Sequence[float] | None) -> str:
    """Two upper bounds, the least and the largest, as text ``0.9 to 4``, both rounded up; "" for ``None``."""
    return "" if bounds is None else f"{upper_bound(bounds[0])} to {upper_bound(bounds[1])}"


def lower_bound(value: float, digits: int = DIGITS, *, keep_zeros: bool = False) -> str:
    """``value``, a lower bound such as an audit's ε, as text rounded down.

    ``digits`` and ``keep_zeros``: as of `upper_bound`.
    """
    return _text(value, digits, ROUND_FLOOR, keep_zeros=keep_zeros)


def number(value: float, digits: int = DIGITS, *, keep_zeros: bool = False) -> str:
    """``value``, which is no bound, as text rounded to the nearest.

    ``digits`` and ``keep_zeros``: as of `upper_bound`.
    """
    return _text(value, digits, ROUND_HALF_EVEN, keep_zeros=keep_zeros)


def certainty(epsilon: float, before: float = 0.5) -> str:
    """How sure an observer may become of a unit's data at ε = ``epsilon``, in percent as text, rounded up.

    It is p e^ε / (1 - p + p e^ε). Under (ε, 0)-differential privacy what an observer sees changes odds by at
    most e^ε. Under (ε, δ) they change by more than e^(ε + t) with probability δ/(1 - e^-t) at most
    (`statement.gains`). ``before``: p, how sure it is at first; even odds are 0.5. What is above
    99.9999999999 % is written as 100 %.
    """
    missing = 100.0 / (1.0 + before / (1.0 - before) * math.exp(min(epsilon, 700.0)))
    if missing >= 1:
        return f"{math.ceil(10 * (100 - missing)) / 10:g} %"
    shown = float(lower_bound(missing, 1))
    digits = max(1, -math.floor(math.log10(shown)))
    if digits > _MOST_NINES:
        return "100 %"
    return f"{100 - shown:.{digits}f} %"


def _text(value: float, digits: int, rounding: str, *, keep_zeros: bool) -> str:
    """``value`` as text with ``digits`` significant digits; thousands have commas, extremes a power of ten.

    ``rounding``: the mode of `decimal`; ``keep_zeros``: whether zeros at the end stay.
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    exact = Decimal(repr(float(value)))
    rounded = _rounded(exact, digits, rounding)
    if abs(rounded) >= 10 ** (exact.adjusted() + 1):  # 9.996 has become 10.00
        rounded = _rounded(rounded, digits, rounding)
    if _LEAST <= abs(rounded) < _MOST:
        return f"{rounded:,f}" if keep_zeros else _trimmed(f"{rounded:,f}")
    power = rounded.adjusted()
    return f"{_trimmed(f'{rounded.scaleb(-power, _EXACT):f}')}e{power}"


def _trimmed(text: str) -> str:
    """A decimal number as text without zeros at its end."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounded(exact: Decimal, digits: int, rounding: str) -> Decimal:
    """``exact`` to so many significant ``digits``, but no digit before the point is rounded away.

    ``rounding``: the mode of `decimal`.
    """
    last = exact.adjusted() - digits + 1
    if abs(exact) < Decimal(_MOST):
        last = min(last, 0)
    return exact.quantize(Decimal(1).scaleb(last), rounding, _EXACT)

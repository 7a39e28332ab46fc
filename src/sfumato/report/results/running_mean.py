"""Of how many of the last values the accuracy of a run is a mean: one, or more where it jumps."""

from __future__ import annotations

import math

import numpy as np

from sfumato.report.results.dp_ogl_plus import rounds_to_a_release
from sfumato.report.results.series import Series
from sfumato.run_folder.headline import ACCURACY

OVER = 10  # values in a running mean
_MANY, _JUMP = 50, 0.02  # values, and the mean step of accuracy between two of them, from which it is taken


def values_in_mean(one: Series, column: str) -> int:
    """`OVER` where ``column`` is an accuracy with many values that jump, so that the last is luck; else 1.

    Models that are not released between two rounds are no values of the same kind: 1 there.
    """
    if column != ACCURACY.column or rounds_to_a_release(one) != 1:
        return 1
    steps = np.abs(np.diff(one.curve(column).mean))
    return OVER if len(steps) >= _MANY and float(steps.mean()) > _JUMP else 1


def mean_in_the_end(one: Series, column: str, over: int) -> float:
    """The mean of the last ``over`` measured values of a metrics column, over seeds too; NaN without any."""
    if over == 1:
        return one.final(column).value
    values = one.curve(column).mean[-over:]
    return float(values.mean()) if len(values) else math.nan

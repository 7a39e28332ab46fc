"""Costs that grow in proportion to the rounds, and values that stay the same: a table says all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.results.comparability import energy_text, unasked_columns
from sfumato.report.results.series import FloatArray, Series

_SAME = 0.01  # of a value
_UNEVEN = 0.05  # of all costs, by which they may differ from a straight line


def grows_evenly(one: Series, *columns: str) -> bool:
    """Whether the cumulative cost, the sum of ``columns``, is a straight line over the rounds."""
    curves = [one.curve(column, cumulative=True) for column in columns]
    curves = [curve for curve in curves if len(curve.rounds)]
    if not curves or any(len(curve.rounds) != len(curves[0].rounds) for curve in curves):
        return False
    total = np.sum([curve.mean for curve in curves], axis=0)
    line = np.arange(1, len(total) + 1) / len(total)
    return bool(total[-1] > 0 and np.abs(total / total[-1] - line).max() <= _UNEVEN)


def costs_are_alike(series: Sequence[Series], *columns: str) -> bool:
    """Whether a round costs the same in all rounds of all runs, about."""
    if not all(grows_evenly(one, *columns) for one in series):
        return False
    each = [one.total(*columns).value / max(1, one.rounds_played) for one in series]
    return max(each) <= (1 + _UNEVEN) * min(each)


def stays_the_same(one: Series, column: str) -> bool:
    """Whether ``column`` has one value in all rounds in which it is not zero."""
    values = one.curve(column).mean
    if len(one.runs) > 1 or not len(values):
        return False
    found = values[values != 0]
    return not len(found) or bool(np.ptp(found) <= _SAME * np.abs(found).max())


def even_costs_table(one: Series) -> str:
    """What a round takes and what all of them do, where the costs of a run grow evenly; values that stay."""
    spec, rounds, rows = one.first.spec_dict, max(1, one.rounds_played), list[tuple[str, str, str]]()
    for name, column, units in (
        ("traffic up", "bytes_up", text.BYTES),
        ("traffic down", "bytes_down", text.BYTES),
        ("energy to transmit", "energy_j", ()),
        ("time to transmit", "delay_s", text.SECONDS),
        ("time of the simulation", "wall_time_s", text.SECONDS),
    ):
        if column in unasked_columns([one]):
            continue
        if grows_evenly(one, column) or column == "wall_time_s":
            total = one.total(column).value
            both = (total / rounds, total)
            a_round, all_rounds = (text.quantity(x, units) if units else energy_text(spec, x) for x in both)
            rows.append((name, a_round, all_rounds))
    for name, column, form in (
        ("clipped messages", "clip_fraction", text.percent),
        ("noise in the global model, standard deviation", "noise_std", text.number),
    ):
        if stays_the_same(one, column):
            values = one.curve(column).mean
            rows.append((name, form(float(values.max())), "about the same" + _where(values)))
    if not rows:
        return ""
    caption = (
        "Costs that are about the same in every round, and values that do not change. Clipping, noise and "
        "time are measured by the simulator only."
    )
    return text.table(["", "a round", f"all {rounds} rounds"], rows, caption=caption, numeric=(1, 2))


def _where(values: FloatArray) -> str:
    """In which rounds, where some have none of it."""
    some = int(np.count_nonzero(values))
    return "" if some in (0, len(values)) else f" in {text.whole(some)} rounds, else 0"

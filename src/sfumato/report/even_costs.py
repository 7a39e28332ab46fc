"""Costs that grow in proportion to the rounds: a table says all that a figure would."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.comparability import energy_text
from sfumato.report.series import Series

_UNEVEN = 0.05  # of all costs, by which they may differ from a straight line


def grows_evenly(one: Series, columns: Sequence[str]) -> bool:
    """Whether the cumulative cost, the sum of ``columns``, is a straight line over the rounds."""
    curves = [one.curve(column, cumulative=True) for column in columns]
    curves = [curve for curve in curves if len(curve.rounds)]
    if not curves or any(len(curve.rounds) != len(curves[0].rounds) for curve in curves):
        return False
    total = np.sum([curve.mean for curve in curves], axis=0)
    line = np.arange(1, len(total) + 1) / len(total)
    return bool(total[-1] > 0 and np.abs(total / total[-1] - line).max() <= _UNEVEN)


def even_costs_table(one: Series) -> str:
    """What a round takes and what all of them do, where the costs of a run grow evenly; else nothing."""
    spec, rounds, rows = one.first.spec_dict, max(1, one.rounds_played), list[tuple[str, str, str]]()
    for name, column, units in (
        ("traffic up", "bytes_up", text.BYTES),
        ("traffic down", "bytes_down", text.BYTES),
        ("energy to transmit", "energy_j", ()),
        ("time to transmit", "delay_s", text.SECONDS),
    ):
        if grows_evenly(one, [column]):
            total = one.total(column).value
            both = (total / rounds, total)
            a_round, all_rounds = (text.quantity(x, units) if units else energy_text(spec, x) for x in both)
            rows.append((name, a_round, all_rounds))
    if not rows:
        return ""
    caption = "These costs grow in proportion to the rounds: accuracy against them is accuracy over rounds."
    return text.table(["cost", "a round", f"all {rounds} rounds"], rows, caption=caption, numeric=(1, 2))

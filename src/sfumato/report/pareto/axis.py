"""An axis of the sweep's page: the name and unit of an objective, its range, and a strip for infinities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    NO_GUARANTEE,
    Json,
    log_axis,
    needs_log_axis,
    spread_widely,
    ticks_at_points,
)
from sfumato.report.results.network import towards_in_words
from sfumato.report.results.series import Mean
from sfumato.run_folder.headline import HEADLINES
from sfumato.run_folder.metrics_table import EPSILON_PREFIX

SCORES = {score.column: score for score in HEADLINES}
ACCURACY = "accuracy"
UNITS = {"energy_j": text.JOULES, "delay_s": text.SECONDS}
_NAMES = {"energy_j": "energy", "delay_s": "delay"}
_STRIP = 0.16  # of the axis, for infinities


def title_of(name: str) -> str:
    """The title on the page of the objective ``name``; ``epsilon:cloud`` becomes "ε towards the cloud".

    Raises:
        KeyError: ``name`` is neither a score, an ε, an energy nor a delay.
    """
    if name.startswith(EPSILON_PREFIX):
        return f"ε {towards_in_words(name.removeprefix(EPSILON_PREFIX))}"
    return SCORES[name].name if name in SCORES else _NAMES[name]


def title_with_value(name: str, value: str) -> str:
    """The title of the objective ``name`` with its ``value`` as text: ``ε = 8 towards the cloud``."""
    title = title_of(name)
    if not name.startswith(EPSILON_PREFIX):
        return f"{title} of {value}"
    return f"ε = {value} {title.removeprefix('ε ')}"


@dataclass(frozen=True)
class ObjectiveAxis:
    """The Plotly axis of one objective.

    Attributes:
        name: of the objective.
        size: the unit of the axis, such as 1000 for kJ, in the objective's own unit.
        layout: of Plotly.
        infinite: where infinite values are drawn; NaN if there are none.
    """

    name: str
    size: float
    layout: Json
    infinite: float

    @classmethod
    def of(cls, name: str, found: Sequence[Mean]) -> ObjectiveAxis:
        """The axis of the objective ``name`` over all values ``found``.

        A strip at its end is for infinite ones. An energy or a delay has at least one finite value. Accuracy
        has an axis in percent, without a strip.
        """
        size, unit = 1.0, ""
        finite = [one for one in found if math.isfinite(one.value)]
        if name in UNITS:
            size, unit = text.scale(max(one.value for one in finite), UNITS[name])
        spreads = [(one.value / size, np.nan_to_num(one.half_width) / size) for one in finite]
        ends = [value + sign * spread for value, spread in spreads for sign in (-1, 1)] or [0.0, 1.0]
        layout: Json = {"title": {"text": f"{title_of(name)}, {unit}" if unit else title_of(name)}}
        if name == ACCURACY:
            room = 0.06 * (max(ends) - min(ends)) + 0.02
            limits = [max(0.0, min(ends) - room), min(1.0, max(ends) + room)]
            ticks = _ticks(*limits)
            shown = {"range": limits, "tickvals": ticks, "ticktext": [f"{tick:.0%}" for tick in ticks]}
            return cls(name, size, layout | shown, math.nan)
        values = [value for value, _ in spreads]
        spread = name.startswith(EPSILON_PREFIX) and spread_widely(values)
        is_log = min(ends) > 0 and (needs_log_axis(values) or spread)
        if is_log:
            layout |= log_axis(ends)
        else:
            high = 1.08 * max(ends) or 1.0
            ticks = _ticks(0.0, high) if finite else []
            layout |= {"range": [0.0, high], "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}
        if name.startswith(EPSILON_PREFIX):
            layout |= ticks_at_points(values, layout["range"], is_log=is_log)
        if len(finite) == len(found):
            return cls(name, size, layout, math.nan)
        low, high = layout["range"]
        layout["range"] = [low, high + _STRIP * (high - low)]
        at = high + 0.5 * _STRIP * (high - low)
        infinite = 10**at if is_log else at
        layout["tickvals"] = [*layout["tickvals"], infinite]
        layout["ticktext"] = [*layout["ticktext"], "∞"]
        return cls(name, size, layout, infinite)

    def place(self, value: float) -> float:
        """The position on the axis of ``value`` (in the objective's own unit); of ∞ that of the strip."""
        return self.infinite if math.isinf(value) else value / self.size


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers from ``low`` to ``high``, ascending; ``low`` is smaller."""
    step = 10 ** math.floor(math.log10((high - low) / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= 6)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def strip_line(axis: ObjectiveAxis, which: str) -> list[Json]:
    """A Plotly shape: a line between finite and infinite values of ``axis``; [] if none is infinite.

    ``which``: "x" or "y".
    """
    if math.isnan(axis.infinite):
        return []
    low, end = axis.layout["range"]
    at = (end - low) / (1 + _STRIP) + low
    other = "y" if which == "x" else "x"
    position = 10**at if axis.layout.get("type") == "log" else at
    line = {"color": NO_GUARANTEE, "width": 1, "dash": "dash"}
    ends = {f"{which}0": position, f"{which}1": position, f"{other}0": 0, f"{other}1": 1}
    return [{"type": "line", f"{other}ref": "paper", "line": line} | ends]

"""The lines of a panel, or its bars or dots of one colour: places, values, names and colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.report.figures.figure import DASHES, PALETTE, colour
from sfumato.report.results.series import Mean
from sfumato.studies.grids import StudyPoint, named_setting, setting_text
from sfumato.studies.measures.base import SPREAD
from sfumato.studies.page.colours import colour_numbers
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.study import StudyAxis


@dataclass(frozen=True)
class Line:
    """One line, or the bars of one colour.

    Attributes:
        name: in the legend.
        number: of its colour.
        dash: of the line.
        x: places: numbers, or names of categories.
        values: with their intervals.
        points: what sets each value apart from others of the line, where ``x`` is a measure; else empty.
    """

    name: str
    number: int
    dash: str
    x: Sequence[float | str]
    values: Sequence[Mean]
    points: Sequence[str] = ()

    @property
    def hue(self) -> str:
        """The hexadecimal colour of the line, by its number."""
        return colour(self.number)


def lines_of(data: PanelData) -> list[Line]:
    """A line for every setting of the panel's ``lines`` and for every series of its measure."""
    panel, measure = data.panel, data.panel.measures[0]
    axis = data.axis(panel.lines) if panel.lines else None
    named = [(None, "")] if axis is None else [(s, named_setting(axis, s)) for s in axis.settings]
    named = [(s, name) for s, name in named if any(_is_on(axis, s, point) for point in data.points)]
    several = data.series(measure)
    numbers = colour_numbers(data.plan, axis.name) if axis is not None else {}
    over = _over_rounds if panel.is_over_rounds else _over_points
    found = []
    for setting, name in named:
        place = numbers.get(setting_text(setting), 0)
        points = [point for point in data.points if _is_on(axis, setting, point)]
        for j, series in enumerate(several):
            title = line_name(name, series if len(several) > 1 else "") or series or data.title
            if len(several) == 1:  # by dashes a line is seen that lies on another one
                number = dash = place
            elif len(named) == 1:
                number = dash = j
            else:
                number, dash = place, j + place // len(PALETTE)
            line = Line(title, number, _dash(dash), *over(data, points, measure, series))
            if line.x:
                found.append(line)
    return found


def _dash(number: int) -> str:
    """The dash of a line by its number: lines of two alike colours, 0 and 5, have different ones."""
    return DASHES[(number + number // len(DASHES)) % len(DASHES)]


def line_name(setting: str, series: str) -> str:
    """The name of a line of a setting and a series, either of which may be ""."""
    return ", ".join(filter(None, (setting, series)))


def _over_rounds(
    data: PanelData, points: Sequence[StudyPoint], measure: str, series: str
) -> tuple[list[float | str], list[Mean], list[str]]:
    """The rounds of one line, the values there, and no names; arguments as of `_over_points`."""
    places: list[float | str] = []
    values: list[Mean] = []
    for point in points:
        spread = dict(data.curve(point, measure, series + SPREAD))
        for at, found in data.curve(point, measure, series):
            places.append(at)
            values.append(Mean(found.value, spread[at].value) if at in spread else found)
    return places, values, []


def _over_points(
    data: PanelData, points: Sequence[StudyPoint], measure: str, series: str
) -> tuple[list[float | str], list[Mean], list[str]]:
    """The places of the values of one line on the x axis, the values, and names of the points.

    They are in the order of the axis, or in that of the measure that is the x; names are for such an x only.

    Points without a measured value are left out. Places are rounds, numbers of the axis, or names of
    categories.

    Args:
        data: of the panel.
        points: that the line goes through.
        measure: that is shown.
        series: of the measure.
    """
    found = [
        (place, one, point)
        for point in points
        if (one := data.mean_at(point, measure, series)) is not None
        and (place := place_on_x(data, point)) is not None
    ]
    names: list[str] = []
    if data.measure_of_x:
        found.sort(key=lambda one: one[0])
        left = [axis for axis in data.axes if axis.name != data.panel.lines and len(axis.settings) > 1]
        names = [
            ", ".join(named_setting(axis, point.settings[axis.name]) for axis in left)
            for _, _, point in found
        ]
    return [place for place, _, _ in found], [one for _, one, _ in found], names


def place_on_x(data: PanelData, point: StudyPoint) -> Any:
    """The place of ``point`` on the x axis: a number, a category's name, or ``None`` without a finite one."""
    if data.measure_of_x:
        found = data.mean_at(point, data.measure_of_x, "")
        return found.value if found is not None and math.isfinite(found.value) else None
    axis, setting = data.axis(data.panel.x), point.settings[data.panel.x]
    assert axis is not None
    return float(setting) if _is_numeric(axis) and data.panel.kind == "lines" else setting_text(setting)


def _is_on(axis: StudyAxis | None, setting: object, point: StudyPoint) -> bool:
    """Whether ``point`` has this ``setting`` of ``axis``; True without an axis."""
    return axis is None or point.settings[axis.name] == setting


def _is_numeric(axis: StudyAxis) -> bool:
    """Whether all values of ``axis`` are numbers, and none is a truth value or a case."""
    return not axis.cases and all(isinstance(v, int | float) and not isinstance(v, bool) for v in axis.values)


def has_spread(data: PanelData) -> bool:
    """Whether the rows of the panel have standard deviations over workers."""
    return any(str(name).endswith(SPREAD) for name in data.rows["series"])


def finite_values(line: Line) -> list[tuple[float | str, Mean]]:
    """Pairs (place, value) of ``line`` whose value is finite."""
    return [(x, one) for x, one in zip(line.x, line.values, strict=True) if math.isfinite(one.value)]


def are_banded(data: PanelData, lines: Sequence[Line]) -> bool:
    """Whether lines stand in bands, as they have many points, and not with an error bar at each."""
    dense = data.panel.is_over_rounds and any(len(line.x) > 12 for line in lines)
    return data.panel.kind == "lines" and (dense or has_spread(data))

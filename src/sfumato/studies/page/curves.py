"""Lines and bars of a measure, with 95 % intervals over seeds and the paper's values.

Lines are over a numeric axis, over rounds, or over a measure that follows from the spec, such as an ε.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.curves import RunCurve, curve_traces
from sfumato.report.figures.figure import (
    DASHES,
    PALETTE,
    Figure,
    Json,
    colour,
    log_axis,
    needs_log_axis,
    over_legend,
)
from sfumato.report.results.series import Curve, Mean
from sfumato.studies.grids import StudyPoint, named_setting, setting_text
from sfumato.studies.measures.base import SPREAD
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.page.colours import colour_numbers
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.study import StudyAxis

_HEIGHT = 400
_LETTERS = 80  # of names of categories that stand side by side
_DIAMOND: Json = {"symbol": "diamond-open", "size": 12, "line": {"width": 2.5}}
_ON_BAR: Json = {
    "symbol": "diamond",
    "size": 12,
    "color": "#FFFFFF",
    "line": {"width": 2.5, "color": "#1D2126"},
}


@dataclass(frozen=True)
class _Line:
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


def line_figure(data: PanelData) -> Figure:
    """The panel as lines over a numeric axis, over rounds or over a measure, with the paper's values.

    Intervals are 95 % over seeds. Only finite values are drawn; the caption names the lines that have
    infinite ones.
    """
    lines = _lines(data)
    banded = _are_banded(data, lines)
    traces = [trace for line in lines for trace in (_banded(line) if banded else [_barred(line)])]
    traces += _paper_marks(data, lines)
    layout: Json = {"hovermode": "closest", "xaxis": _x_axis(data, lines)}
    return _figure(data, lines, traces, layout, kind="lines")


def _are_banded(data: PanelData, lines: Sequence[_Line]) -> bool:
    """Whether lines stand in bands, as they have many points, and not with an error bar at each."""
    dense = data.panel.is_over_rounds and any(len(line.x) > 12 for line in lines)
    return data.panel.kind == "lines" and (dense or _has_spread(data))


def bar_figure(data: PanelData) -> Figure:
    """The panel as groups of bars, a colour for each line, with intervals and the paper's values.

    Intervals are 95 % over seeds. Only finite values are drawn; the caption names the lines that have
    infinite ones.
    """
    lines = _lines(data)
    traces: list[Json] = []
    for number, line in enumerate(lines):
        kept = _finite(line)
        traces.append({
            "type": "bar", "name": text.plotly_label(line.name), "x": [x for x, _ in kept],
            "y": [one.value for _, one in kept], "offsetgroup": str(number), "marker": {"color": line.hue},
            "error_y": _error([one for _, one in kept], "#6B7280"),
        })  # fmt: skip
    traces += _paper_marks(data, lines, grouped=True)
    layout: Json = {"barmode": "group", "scattermode": "group", "bargap": 0.4}
    places = list(dict.fromkeys(x for line in lines for x in line.x))  # also of what has no value
    layout["xaxis"] = _x_axis(data, lines) | {
        "type": "category", "categoryorder": "array", "categoryarray": places,
        "range": [-0.5, len(places) - 0.5],
    }  # fmt: skip
    if sum(len(str(place)) for place in places) > _LETTERS:
        layout["xaxis"] |= {"tickangle": -45, "automargin": True}
        layout |= over_legend(_HEIGHT + 100, traces, -0.55)
    return _figure(data, lines, traces, layout, kind="bars")


def _figure(data: PanelData, lines: Sequence[_Line], traces: list[Json], layout: Json, kind: str) -> Figure:
    """The figure of the panel ``data`` as lines or bars.

    Args:
        data: of the panel.
        lines: that it shows.
        traces: of Plotly.
        layout: what the kind of figure adds to the layout.
        kind: ``lines`` or ``bars``.
    """
    return Figure(
        title=data.panel.title,
        caption=_caption(data, lines),
        description=_description(data, lines),
        data=traces,
        layout=over_legend(_HEIGHT, traces) | layout | {"yaxis": _y_axis(data, lines)},
        table=_numbers(data, lines),
        kind=kind,
        min_width=420,
    )


def _lines(data: PanelData) -> list[_Line]:
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
            title = ", ".join(filter(None, (name, series))) or data.title
            number, dash = (j, 0) if len(named) == 1 < len(several) else (place, j + place // len(PALETTE))
            line = _Line(title, number, DASHES[dash % len(DASHES)], *over(data, points, measure, series))
            if line.x:
                found.append(line)
    return found


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
        and (place := _place(data, point)) is not None
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


def _place(data: PanelData, point: StudyPoint) -> Any:
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


def _has_spread(data: PanelData) -> bool:
    """Whether the rows of the panel have standard deviations over workers."""
    return any(str(name).endswith(SPREAD) for name in data.rows["series"])


def _finite(line: _Line) -> list[tuple[float | str, Mean]]:
    """Pairs (place, value) of ``line`` whose value is finite."""
    return [(x, one) for x, one in zip(line.x, line.values, strict=True) if math.isfinite(one.value)]


def _error(values: Sequence[Mean], hue: str) -> Json:
    """Plotly's error bars of half a 95 % interval in the colour ``hue``; {} where no interval has a width."""
    widths = [0.0 if math.isnan(one.half_width) else one.half_width for one in values]
    return (
        {"type": "data", "array": widths, "thickness": 1.2, "width": 4, "color": hue} if any(widths) else {}
    )


def _barred(line: _Line) -> Json:
    """The Plotly trace of a line with error bars of half a 95 % interval.

    Values that are not finite are left out.
    """
    kept = _finite(line)
    names = [
        name
        for name, one in zip(line.points, line.values, strict=bool(line.points))
        if math.isfinite(one.value)
    ]
    return {
        "type": "scatter", "mode": "lines+markers", "name": text.plotly_label(line.name),
        "x": [x for x, _ in kept],
        "y": [one.value for _, one in kept], "error_y": _error([one for _, one in kept], line.hue),
        "line": {"color": line.hue, "width": 2, "dash": line.dash}, "marker": {"color": line.hue, "size": 7},
    } | ({"text": list(map(text.plotly_label, names))} if names else {})  # fmt: skip


def _banded(line: _Line) -> list[Json]:
    """Plotly traces of ``line`` in a band of its intervals."""
    kept = _finite(line)
    places: Any = [place for place, _ in kept]
    middle = np.array([one.value for _, one in kept], dtype=float)
    width = np.nan_to_num(np.array([one.half_width for _, one in kept], dtype=float))
    curve = Curve(np.array(places), middle, middle - width, middle + width)
    return curve_traces(RunCurve(line.number, line.name, curve, line.dash))


def _paper_marks(data: PanelData, lines: Sequence[_Line], *, grouped: bool = False) -> list[Json]:
    """Plotly traces of the paper's values, in the colour of the line that they belong to."""
    panel, marks = data.panel, []
    axis = data.axis(panel.lines) if panel.lines else None
    for value, point in data.paper_values(panel.measures[0]):
        wanted = ", ".join(
            filter(
                None, ("" if axis is None else named_setting(axis, point.settings[axis.name]), value.series)
            )
        )
        number = next((i for i, line in enumerate(lines) if line.name.startswith(wanted)), None)
        if number is None:
            continue
        place = value.at if panel.is_over_rounds else _place(data, point)
        if place is not None or panel.is_over_rounds:
            marks.append((number, place, value))
    if not marks:
        return []
    found: list[Json] = []
    for number in sorted({number for number, _, _ in marks}):
        mine = [(place, value) for at, place, value in marks if at == number]
        found.append({
            "type": "scatter", "mode": "markers", "name": "the paper", "showlegend": not found,
            "x": [place for place, _ in mine], "y": [value.value for _, value in mine],
            "hovertext": [text.plotly_label(f"{value.place}: {value.value:g}") for _, value in mine],
            "hoverinfo": "text", "marker": _ON_BAR if grouped else _DIAMOND | {"color": lines[number].hue},
        } | ({"offsetgroup": str(number)} if grouped else {}))  # fmt: skip
    return found


def _x_axis(data: PanelData, lines: Sequence[_Line]) -> Json:
    """The x axis of Plotly's layout: logarithmic where the lines' numbers need it."""
    found: Json = {"title": {"text": text.plotly_label(data.title_of_x)}}
    if data.panel.is_over_rounds:
        return found | {"rangemode": "tozero", "tickformat": "d"}
    numbers = [float(x) for line in lines for x in line.x if isinstance(x, float)]
    if min(numbers, default=0.0) > 0 and needs_log_axis(numbers):
        found |= log_axis(numbers)
    return found


def _y_axis(data: PanelData, lines: Sequence[_Line]) -> Json:
    """The y axis of Plotly's layout: logarithmic where the panel asks for it and a value is above 0."""
    values = [one.value for line in lines for _, one in _finite(line)]
    axis: Json = {"title": {"text": text.plotly_label(data.title)}}
    if data.panel.log and any(value > 0 for value in values):
        return axis | log_axis(values)
    return axis | {"rangemode": "tozero" if data.panel.kind == "bars" or _has_spread(data) else "normal"}


def _caption(data: PanelData, lines: Sequence[_Line]) -> str:
    """What the figure of ``lines`` shows, what its intervals are, and what could not be drawn."""
    parts = [text.sentence(data.panel.about)] if data.panel.about else []
    seeds = data.rows["seed"].nunique()
    if _has_spread(data):
        parts.append("Bands: ± one standard deviation over workers.")
    elif measure_named(data.panel.measures[0])[0].is_epsilon:
        parts.append("The largest ε over the seeds." if seeds > 1 else "")
    else:
        marks = "Bands" if _are_banded(data, lines) else "Bars" if data.panel.kind == "lines" else "Whiskers"
        shown = f"{marks}: 95 % intervals." if seeds > 1 else "One seed: no interval."
        parts.append(f"Mean of {text.how_many(seeds, 'seed')}. {shown}" if seeds > 1 else shown)
    if any(True for _ in data.paper_values(data.panel.measures[0])):
        parts.append("Diamonds: values that the paper states.")
    if lost := _without_place(data):
        parts.append(f"Without a finite {data.title_of_x}, so not drawn: {text.join_names(lost, 6)}.")
    if missing := [name for line in lines for name in _without_value(data, line)]:
        parts.append(f"Not every seed has a value, so not drawn: {'; '.join(missing)}.")
    endless = [line.name for line in lines if any(one.value == math.inf for one in line.values)]
    if endless:
        parts.append(f"∞ (no guarantee), so not drawn: {text.join_names(endless, 6)}.")
    return " ".join(filter(None, parts))


def _without_value(data: PanelData, line: _Line) -> list[str]:
    """The places of a line without a mean over all seeds, in words; the line itself where that is all."""
    pairs = zip(line.x, line.values, strict=True)
    places = [_place_text(data, x) for x, one in pairs if math.isnan(one.value)]
    if line.name == data.title:
        return places
    return [line.name] if len(places) == len(line.x) > 1 else [f"{line.name}, {place}" for place in places]


def _without_place(data: PanelData) -> list[str]:
    """The points with a value but without a finite measure that is the x, in words."""
    if not data.measure_of_x:
        return []
    measure = data.panel.measures[0]
    lost = [
        point
        for point in data.points
        if _place(data, point) is None
        and any(data.mean_at(point, measure, series) is not None for series in data.series(measure))
    ]
    axes = [axis for axis in data.axes if len(axis.settings) > 1]
    return [", ".join(named_setting(axis, point.settings[axis.name]) for axis in axes) for point in lost]


def _description(data: PanelData, lines: Sequence[_Line]) -> str:
    """The last value of every line, for screen readers."""
    measure = data.panel.measures[0]
    said = [f"{line.name}: {data.figure_of(measure, line.values[-1])}" for line in lines]
    return f"{data.panel.title}. {data.title}, last value of each line: {'; '.join(said)}."


def _place_text(data: PanelData, x: float | str) -> str:
    """A place on the x axis as text; an ε is rounded up."""
    if isinstance(x, str):
        return x
    return data.figure_of(data.measure_of_x, Mean(x, math.nan)) if data.measure_of_x else text.number(x)


def _numbers(data: PanelData, lines: Sequence[_Line]) -> str:
    """HTML of a table with all values of ``lines``."""
    measure = data.panel.measures[0]
    rows = []
    for line in lines:
        names = [f"{line.name}, {name}" for name in line.points] or [line.name] * len(line.x)
        for name, x, one in zip(names, line.x, line.values, strict=True):
            rows.append((name, _place_text(data, x), data.figure_of(measure, one)))
    return text.html_table(
        ["line", data.title_of_x, data.title], rows, caption="The numbers of the figure", numeric=(1, 2)
    )

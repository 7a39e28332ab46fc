"""Lines, bars and dots of a measure, with 95 % intervals over seeds and the paper's values.

Lines are over a numeric axis, over rounds, or over a measure that follows from the spec, such as an ε.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.curves import RunCurve, curve_traces
from sfumato.report.figures.figure import MARGIN, Figure, Json, log_axis, needs_log_axis, over_legend
from sfumato.report.results.series import Curve, Mean
from sfumato.studies.grids import named_setting
from sfumato.studies.page.captions import caption_of, description_of, table_of_numbers
from sfumato.studies.page.lines import (
    Line,
    are_banded,
    finite_values,
    has_spread,
    line_name,
    lines_of,
    place_on_x,
)
from sfumato.studies.page.panel_data import PanelData

_HEIGHT = 400
_LETTERS = 80  # of names of categories that stand side by side
_MOST_TICKS = 12  # measured places that have a tick each
_TITLE = 40  # letters of a line of the y axis's title
_LABEL = 0.05  # of the axis, which the label of a tick takes
_WHISKERS = "#1D2126"
_DIAMOND: Json = {"symbol": "diamond-open", "size": 12, "line": {"width": 2.5}}
_ON_BAR: Json = {
    "symbol": "diamond",
    "size": 12,
    "color": "#FFFFFF",
    "line": {"width": 2.5, "color": "#1D2126"},
}


def line_figure(data: PanelData) -> Figure:
    """The panel as lines over a numeric axis, over rounds or over a measure, with the paper's values.

    Intervals are 95 % over seeds. Only finite values are drawn; the caption names the lines that have
    infinite ones.
    """
    lines = lines_of(data)
    banded = are_banded(data, lines)
    traces = [trace for line in lines for trace in (_banded(line) if banded else [_barred(line)])]
    layout: Json = {"hovermode": "closest", "xaxis": _x_axis(data, lines)}
    return _figure(data, lines, traces, _paper_marks(data, lines), layout)


def grouped_figure(data: PanelData) -> Figure:
    """The panel as groups of bars or dots, a colour for each line, with intervals and the paper's values.

    Intervals are 95 % over seeds. An infinite value is the sign ∞ above the others.
    """
    lines = lines_of(data)
    is_bar = data.panel.kind == "bars"
    traces: list[Json] = []
    for number, line in enumerate(lines):
        kept = finite_values(line)
        marks: Json = (
            {"type": "bar", "marker": {"color": line.hue}}
            if is_bar
            else {"type": "scatter", "mode": "markers", "marker": {"color": line.hue, "size": 9}}
        )
        traces.append(marks | {
            "name": text.plotly_label(line.name), "x": [x for x, _ in kept],
            "y": [one.value for _, one in kept], "offsetgroup": str(number),
            "error_y": _error([one for _, one in kept], _WHISKERS if is_bar else line.hue),
        })  # fmt: skip
        if endless := [x for x, one in zip(line.x, line.values, strict=True) if one.value == math.inf]:
            traces.append({
                "type": "scatter", "mode": "text", "text": ["∞"] * len(endless), "showlegend": False,
                "textfont": {"size": 22, "color": line.hue}, "x": endless,
                "y": [_place_of_infinity(data, lines)] * len(endless), "offsetgroup": str(number),
                "hoverinfo": "skip",
            })  # fmt: skip
    layout: Json = {"barmode": "group", "scattermode": "group", "bargap": 0.4}
    places = list(dict.fromkeys(x for line in lines for x in line.x))  # also of what has no value
    layout["xaxis"] = _x_axis(data, lines) | {
        "type": "category", "categoryorder": "array", "categoryarray": places,
        "range": [-0.5, len(places) - 0.5],
    }  # fmt: skip
    if sum(len(str(place)) for place in places) > _LETTERS:
        layout["xaxis"] |= {"tickangle": -45, "automargin": True}
        layout |= over_legend(_HEIGHT + 100, traces, -0.55)
        layout["margin"] = MARGIN | {"l": 96}  # of the first label
    return _figure(data, lines, traces, _paper_marks(data, lines, grouped=True), layout)


def _figure(
    data: PanelData, lines: Sequence[Line], traces: list[Json], marks: list[Json], layout: Json
) -> Figure:
    """The figure of the panel ``data`` as lines, bars or dots.

    Args:
        data: of the panel.
        lines: that it shows.
        traces: of Plotly, of the lines.
        marks: the same of the paper's values.
        layout: what the kind of figure adds to the layout.
    """
    return Figure(
        title=data.panel.title,
        caption=caption_of(data, lines, has_paper=bool(marks)),
        description=description_of(data, lines),
        data=[*traces, *marks],
        layout=over_legend(_HEIGHT, [*traces, *marks]) | layout | {"yaxis": _y_axis(data, lines)},
        table=table_of_numbers(data, lines),
        kind=data.panel.kind,
        min_width=420,
    )


def _error(values: Sequence[Mean], hue: str) -> Json:
    """Plotly's error bars of half a 95 % interval in the colour ``hue``; {} where no interval has a width."""
    widths = [0.0 if math.isnan(one.half_width) else one.half_width for one in values]
    return (
        {"type": "data", "array": widths, "thickness": 1.6, "width": 4, "color": hue} if any(widths) else {}
    )


def _barred(line: Line) -> Json:
    """The Plotly trace of a line with error bars of half a 95 % interval.

    Values that are not finite are left out.
    """
    kept = finite_values(line)
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


def _banded(line: Line) -> list[Json]:
    """Plotly traces of ``line`` in a band of its intervals."""
    kept = finite_values(line)
    places: Any = [place for place, _ in kept]
    middle = np.array([one.value for _, one in kept], dtype=float)
    width = np.nan_to_num(np.array([one.half_width for _, one in kept], dtype=float))
    curve = Curve(np.array(places), middle, middle - width, middle + width)
    return curve_traces(RunCurve(line.number, line.name, curve, line.dash))


def _paper_marks(data: PanelData, lines: Sequence[Line], *, grouped: bool = False) -> list[Json]:
    """Plotly traces of the paper's values, in the colour of the line that they belong to."""
    panel, marks = data.panel, []
    axis = data.axis(panel.lines) if panel.lines else None
    several = data.series(panel.measures[0])
    for value, point in data.paper_values(panel.measures[0]):
        if value.series and value.series not in several:
            continue
        setting = "" if axis is None else named_setting(axis, point.settings[axis.name])
        wanted = line_name(setting, value.series if len(several) > 1 or not setting else "")
        number = next((i for i, line in enumerate(lines) if line.name.startswith(wanted)), None)
        if number is None:
            continue
        place = value.at if panel.is_over_rounds else place_on_x(data, point)
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
            "hoverinfo": "text",
            "marker": _ON_BAR if data.panel.kind == "bars" else _DIAMOND | {"color": lines[number].hue},
        } | ({"offsetgroup": str(number)} if grouped else {}))  # fmt: skip
    return found


def _x_axis(data: PanelData, lines: Sequence[Line]) -> Json:
    """The x axis of Plotly's layout: logarithmic where the lines' numbers need it."""
    found: Json = {"title": {"text": text.plotly_label(data.title_of_x)}}
    if data.panel.is_over_rounds:
        return found | {"rangemode": "tozero", "tickformat": "d"}
    numbers = [float(x) for line in lines for x in line.x if isinstance(x, float)]
    is_log = min(numbers, default=0.0) > 0 and needs_log_axis(numbers)
    if is_log:
        found |= log_axis(numbers)
    measured = sorted(set(numbers))
    if 1 < len(measured) <= _MOST_TICKS and not data.measure_of_x:
        room = 0.06 * (measured[-1] - measured[0])
        limits = found["range"] if is_log else [measured[0] - room, measured[-1] + room]
        found |= {"range": limits} | _ticks(measured, limits, is_log=is_log)
    return found


def _ticks(places: Sequence[float], limits: Sequence[float], *, is_log: bool) -> Json:
    """Plotly ticks at all ``places``, in ascending order; one without room for its label has none.

    ``limits``: of the axis, logarithms to base 10 if ``is_log``.
    """
    along = [math.log10(place) if is_log else place for place in places]
    least = _LABEL * (limits[1] - limits[0])
    words, last = [text.number(places[0])], along[0]
    for place, at in zip(places[1:], along[1:], strict=True):
        has_room = at - last >= least
        words.append(text.number(place) if has_room else "")
        last = at if has_room else last
    return {"tickvals": list(places), "ticktext": words}


def _ends(lines: Sequence[Line]) -> list[float]:
    """The ends of the intervals of all finite values of ``lines``."""
    shown = [one for line in lines for _, one in finite_values(line)]
    halves = [0.0 if math.isnan(one.half_width) else one.half_width for one in shown]
    return [one.value + sign * half for one, half in zip(shown, halves, strict=True) for sign in (-1, 1)]


def _papers_values(data: PanelData) -> list[float]:
    """The values of the panel's measure that the paper states."""
    return [value.value for value, _ in data.paper_values(data.panel.measures[0])]


def _place_of_infinity(data: PanelData, lines: Sequence[Line]) -> float:
    """The place on the y axis of signs ∞: above all finite values, or below the end that the panel sets."""
    if data.panel.y_range is not None:
        low, high = data.panel.y_range
        return high - 0.06 * (high - low)
    finite = [one.value for line in lines for _, one in finite_values(line)]
    most = max([*finite, *_papers_values(data)], default=1.0)
    return 1.5 * most if data.panel.log and most > 0 else most + 0.15 * abs(most)


def _y_axis(data: PanelData, lines: Sequence[Line]) -> Json:
    """The y axis of Plotly's layout: logarithmic where the panel asks for it and a value is above 0."""
    values = [one.value for line in lines for _, one in finite_values(line)]
    others = _papers_values(data)
    if data.panel.kind != "lines" and any(one.value == math.inf for line in lines for one in line.values):
        others.append(_place_of_infinity(data, lines))
    axis: Json = {
        "title": {"text": text.wrapped(data.title, _TITLE), "standoff": 8},
        "automargin": True,
        "exponentformat": "power",
    }
    if data.panel.y_range is not None:
        return axis | {"range": list(data.panel.y_range)}
    if data.panel.log and any(value > 0 for value in values):
        return axis | log_axis([*values, *others])
    if data.panel.kind == "dots" and values:  # groups of dots would begin at 0
        ends = [*_ends(lines), *others]
        room = 0.08 * (max(ends) - min(ends)) or 1.0
        return axis | {"range": [min(ends) - room, max(ends) + room]}
    return axis | {"rangemode": "tozero" if data.panel.kind == "bars" or has_spread(data) else "normal"}

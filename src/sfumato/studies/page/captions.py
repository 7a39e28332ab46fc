"""What stands below a figure of lines, bars or dots: caption, words for screen readers, numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.report import formatting as text
from sfumato.report.results.series import Mean
from sfumato.studies.grids import named_setting
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.page.lines import Line, are_banded, has_spread, place_on_x
from sfumato.studies.page.panel_data import PanelData


def caption_of(data: PanelData, lines: Sequence[Line], *, has_paper: bool) -> str:
    """What the figure of ``lines`` shows, what its intervals are, and what could not be drawn.

    ``has_paper``: whether values of the paper are drawn.
    """
    parts = [text.sentence(data.panel.about)] if data.panel.about else []
    seeds = data.seeds
    if has_spread(data):
        parts.append("Bands: ± one standard deviation over workers.")
    elif measure_named(data.panel.measures[0])[0].is_epsilon:
        parts.append("The largest ε over the seeds." if seeds > 1 else "")
    elif seeds == 1 or not any(one.half_width > 0 for line in lines for one in line.values):
        parts.append(f"{data.means_in_words}{'' if data.is_computed else ': no interval'}.")
    else:
        marks = "Whiskers" if data.panel.kind == "bars" else "Bars"
        marks = "Bands" if are_banded(data, lines) else marks
        parts.append(f"{data.means_in_words}. {marks}: 95 % intervals.")
    if has_paper:
        parts.append("Diamonds: values that the paper states.")
    if lost := _without_place(data):
        parts.append(f"Without a finite {data.title_of_x}, so not drawn: {text.join_names(lost, 6)}.")
    if missing := [name for line in lines for name in _without_value(data, line)]:
        parts.append(f"Not every seed has a value, so not drawn: {'; '.join(missing)}.")
    endless = [line.name for line in lines if any(one.value == math.inf for one in line.values)]
    if endless:
        parts.append(
            f"∞ (no guarantee), so not drawn: {text.join_names(endless, 6)}."
            if data.panel.kind == "lines"
            else "∞: no guarantee."
        )
    return " ".join(filter(None, parts))


def _without_value(data: PanelData, line: Line) -> list[str]:
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
        if place_on_x(data, point) is None
        and any(data.mean_at(point, measure, series) is not None for series in data.series(measure))
    ]
    axes = [axis for axis in data.axes if len(axis.settings) > 1]
    return [", ".join(named_setting(axis, point.settings[axis.name]) for axis in axes) for point in lost]


def description_of(data: PanelData, lines: Sequence[Line]) -> str:
    """The last value of every line, for screen readers."""
    measure = data.panel.measures[0]
    said = [f"{line.name}: {data.figure_of(measure, line.values[-1])}" for line in lines]
    return f"{data.panel.title}. {data.title}, last value of each line: {'; '.join(said)}."


def _place_text(data: PanelData, x: float | str) -> str:
    """A place on the x axis as text; an ε is rounded up."""
    if isinstance(x, str):
        return x
    return data.figure_of(data.measure_of_x, Mean(x, math.nan)) if data.measure_of_x else text.number(x)


def table_of_numbers(data: PanelData, lines: Sequence[Line]) -> str:
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

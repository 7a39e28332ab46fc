"""A figure: Plotly's JSON, title, caption, description for screen readers and table; axes and colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from sfumato.report import formatting as text

Json: TypeAlias = dict[str, Any]

# Okabe and Ito's palette, distinguishable with any colour vision; without yellow and black, and with the
# light colours darker, so that each has a contrast of 3 : 1 to white and to the dark page (WCAG 2.2, 1.4.11).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#C4709E", "#B87F00", "#3D97CF", "#8A8F98")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
NO_GUARANTEE = "#C23B4A"
TRUSTED = "#0072B2"
NOISE = "#B87F00"
RAW = "#D55E00"
SECURE = "#009E73"
NEUTRAL = "#8A8F98"
EPSILON_SCALE: list[tuple[float, str]] = [
    (0.0, "#DEEBF7"), (0.25, "#9ECAE1"), (0.5, "#4292C6"), (0.75, "#08519C"), (1.0, "#08306B"),
]  # fmt: skip
"""ColorBrewer's Blues from the second step on: readable in print and without colour vision."""
EPSILON_ENDS = (-1.0, 2.0)
"""Logarithms to base 10 of the ε at both ends of the colour scale, where a figure has no ends of its own."""
EPSILON_BAR: Json = {
    "title": {"text": "ε"}, "thickness": 12, "outlinewidth": 0, "len": 1,
    "tickvals": [-1, 0, 1, 2], "ticktext": ["≤ 0.1", "1", "10", "≥ 100"],
}  # fmt: skip
INKS = ("#000000", "#FFFFFF")
"""Colours of digits on the colour scale: the better one has a contrast of 4.5 : 1 to any colour."""
EPSILON_COLOURS: Json = {
    "zmin": EPSILON_ENDS[0], "zmax": EPSILON_ENDS[1], "colorscale": EPSILON_SCALE, "colorbar": EPSILON_BAR,
}  # fmt: skip
"""Of a Plotly heatmap of `epsilon_shade`."""
ALL_RED: Json = {
    "zmin": 0, "zmax": 1, "colorscale": [[0, NO_GUARANTEE], [1, NO_GUARANTEE]], "showscale": False,
}  # fmt: skip
"""Of a Plotly heatmap of cells without a guarantee."""
LEGEND: Json = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.24, "yanchor": "top"}
LOGARITHMIC = ", logarithmic"
"""The end of the title of such an axis whose ticks are at points."""
_SPREAD = 3.0  # of ε of points, from which their axis is logarithmic
_LEAST_LABEL = 0.12  # of the axis, which the label of a tick takes
MARGIN = {"l": 64, "r": 16, "t": 30, "b": 56}
_LEGEND_LINE = 20  # px


@dataclass(frozen=True)
class Figure:
    """One figure of the report.

    Attributes:
        title: above the figure (plain text).
        caption: below the figure (plain text).
        description: for screen readers (plain text).
        data: Plotly traces. Text from users in them has been escaped by ``text.plotly_label``.
        layout: Plotly layout; colours of text and lines come from the page's theme.
        table: HTML of the numbers in the figure, folded below it.
        kind: a name for style sheets and tests.
        min_width: smallest width in pixels; on a narrower page the figure is scrolled.
        max_width: largest width in pixels; ``None``: that of the page.
        narrow: HTML that says the same on a screen too narrow for the figure, which is then hidden.
        narrow_caption: below ``narrow`` in place of ``caption``.
    """

    title: str
    caption: str
    description: str
    data: list[Json]
    layout: Json
    table: str = ""
    kind: str = "plot"
    min_width: int = 300
    max_width: int | None = None
    narrow: str = ""
    narrow_caption: str = ""


def colour(index: int) -> str:
    """The hexadecimal colour of the ``index``-th run or observer, from 0; after seven they repeat."""
    return PALETTE[index % len(PALETTE)]


def transparent(hex_colour: str, alpha: float) -> str:
    """The colour ``hex_colour`` (``#rrggbb``) as CSS ``rgba(...)`` with opacity ``alpha``, from 0 to 1.

    ``transparent("#0072B2", 0.5)`` is ``rgba(0,114,178,0.5)``.
    """
    red, green, blue = (int(hex_colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def epsilon_shade(epsilon: float, ends: tuple[float, float] = EPSILON_ENDS) -> float:
    """The place of ``epsilon`` on the colour scale: its logarithm to base 10, cut to ``ends``.

    ``ends`` are logarithms, too. NaN for NaN; an infinite ε has the upper end, and 0 the lower.
    """
    low, high = ends
    return min(max(math.log10(max(epsilon, 1e-9)), low), high)


def epsilon_ends(values: Iterable[float]) -> tuple[float, float]:
    """The two ends of a colour scale for one figure, as logarithms to base 10.

    They are of the least and the largest positive, finite ε in ``values`` where these cover less than a
    decade; `EPSILON_ENDS` where they cover more, are all alike, or there are none.
    """
    known = [math.log10(value) for value in values if 0 < value < math.inf]
    if not known or not 0.005 < max(known) - min(known) < 1:
        return EPSILON_ENDS
    return min(known), max(known)


def epsilon_bar(ends: tuple[float, float], *, from_zero: bool = False) -> Json:
    """The colour bar of a scale with these ``ends``, logarithms to base 10.

    ``from_zero``: the lower end is the colour of ε = 0.
    """
    if ends == EPSILON_ENDS:
        return EPSILON_BAR
    ticks = [ends[0], sum(ends) / 2, ends[1]]
    first = "0" if from_zero else _tick_text(10 ** ticks[0])
    return EPSILON_BAR | {
        "tickvals": ticks,
        "ticktext": [first, *(_tick_text(10**tick) for tick in ticks[1:])],
    }


def _tick_text(value: float) -> str:
    """Three digits; from 1,000 on a whole number."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def ink_on(shade: float) -> str:
    """The one of `INKS` with the larger contrast to a ``shade`` of the common scale.

    ``shade``: from `epsilon_shade` with `EPSILON_ENDS`.
    """
    low, high = EPSILON_ENDS
    place = (shade - low) / (high - low)
    upper = next(n for n, (at, _) in enumerate(EPSILON_SCALE) if at >= place or at == 1.0)
    (start, first), (stop, last) = EPSILON_SCALE[max(upper - 1, 0)], EPSILON_SCALE[max(upper, 1)]
    part = (place - start) / (stop - start)
    mixed = [(1 - part) * a + part * b for a, b in zip(_channels(first), _channels(last), strict=True)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mixed]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return INKS[0] if (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) else INKS[1]


def _channels(hex_colour: str) -> list[float]:
    """Red, green and blue of ``#rrggbb``, each from 0 to 1."""
    return [int(hex_colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def needs_log_axis(values: Iterable[float]) -> bool:
    """Whether the positive, finite values span more than a factor of 30; False if there are none."""
    positive = [v for v in values if v > 0 and math.isfinite(v)]
    return bool(positive) and max(positive) > 30 * min(positive)


def spread_widely(epsilons: Sequence[float]) -> bool:
    """Whether the largest of these positive ε is at least 3 times the smallest; False if there are none.

    Their axis is then logarithmic.
    """
    return bool(epsilons) and max(epsilons) >= _SPREAD * min(epsilons)


def log_axis(values: Iterable[float]) -> Json:
    """A logarithmic Plotly axis that contains the positive, finite ``values``, with ticks at round numbers.

    Raises:
        ValueError: no value is positive and finite.
    """
    positive = [v for v in values if v > 0 and math.isfinite(v)]
    low, high = math.log10(min(positive)), math.log10(max(positive))
    room = 0.06 * (high - low) + 0.05
    ticks = log_ticks(10 ** (low - room), 10 ** (high + room))
    return {
        "type": "log",
        "range": [low - room, high + room],
        "tickvals": ticks,
        "ticktext": [tick_label(tick) for tick in ticks],
    }


def ticks_at_points(values: Sequence[float], limits: Sequence[float], *, is_log: bool) -> Json:
    """Plotly ticks at the ε of all points, where their labels have room; {} where they have not.

    ``limits``: of the axis, logarithms to base 10 if ``is_log``. Labels are ε rounded up, and those that are
    written alike share a tick.
    """
    shown = {text.epsilon(value): value for value in sorted(values)}
    places = [math.log10(value) if is_log else value for value in shown.values()]
    least = _LEAST_LABEL * (limits[1] - limits[0])
    if not places or any(after - before < least for before, after in pairwise(places)):
        return {}
    return {"tickvals": list(shown.values()), "ticktext": list(shown)}


def log_ticks(low: float, high: float) -> list[float]:
    """A list of 1, 2 and 5 times the powers of ten, between ``low`` and ``high``, which are positive.

    Of the powers alone where that makes more than nine.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= 9:
            break
    return ticks


def tick_label(value: float) -> str:
    """``value`` as the text of a tick, without trailing zeros: ``0.5``, ``1e6``."""
    return f"{value:g}" if 1e-3 <= value < 1e5 else text.number(value)


def epsilon_axis(values: Iterable[float], title: str = "ε") -> Json:
    """A Plotly axis with ``title`` for the ε ``values``; infinite ones are left aside.

    It is logarithmic if the positive, finite ones span more than a factor of 30, else it begins at 0.
    """
    known = list(values)
    return {"title": {"text": title}, "rangemode": "tozero"} | (
        log_axis(known) if needs_log_axis(known) else {}
    )


def epsilon_point_axis(values: Sequence[float], title: str) -> Json:
    """A Plotly axis with ``title`` for the positive, finite ε of points.

    Where they are spread widely (`spread_widely`) it is logarithmic, with a tick at each point if the labels
    have room. Otherwise it is that of `epsilon_axis`.
    """
    if not spread_widely(values):
        return epsilon_axis(values, title)
    axis = log_axis(values)
    ticks = ticks_at_points(values, axis["range"], is_log=True)
    return axis | ticks | {"title": {"text": f"{title}{LOGARITHMIC}"}}


def round_axis(rounds: Iterable[float]) -> Json:
    """A Plotly x axis from the first round to the last; with at most ten rounds, a tick for each."""
    known = list(rounds)
    axis: Json = {"title": {"text": "round"}, "tickformat": "d"}
    if not known:
        return axis
    first, last = min(known), max(known)
    if last - first < 10:
        return axis | {"dtick": 1, "range": [first - 0.5, last + 0.5]}
    room = max(0.5, 0.02 * (last - first))  # no round 0 is shown
    return axis | {"range": [first - room, last + room]}


def over_legend(height: int, data: Sequence[Mapping[str, Any]], y: float = -0.24) -> Json:
    """Plotly's height, margins and legend of a figure whose legend is below the plot.

    Args:
        height: in pixels, with a legend of two lines; each further entry adds to it.
        data: the traces.
        y: of the legend, as a share of the height of the plot.
    """
    entries = sum("name" in trace for trace in data)
    legend = LEGEND | {"y": y, "tracegroupgap": 0, "maxheight": 1}
    return {"height": height + _LEGEND_LINE * max(0, entries - 2), "margin": MARGIN, "legend": legend}


def line_mode(rounds: Sequence[float] | np.ndarray[Any, Any]) -> str:
    """Plotly's mode of a line over ``rounds``: ``lines+markers`` if there are at most 30, else ``lines``."""
    return "lines+markers" if len(rounds) <= 30 else "lines"


class BoundingLine(NamedTuple):
    """The points of a line through values that never fall, of which some rounds have none.

    A round without a value has that of the next round with one, which bounds it: then the line is in steps.

    Attributes:
        rounds: of all points.
        values: of all points.
        opacity: of markers: 0 where a round has no value of its own, else 1.
        shape: Plotly's, of the line: up first, then across, so that a step has the value at its end.
    """

    rounds: list[float]
    values: list[float]
    opacity: list[int]
    shape: Literal["vh", "linear"]

    @classmethod
    def of(cls, rounds: Sequence[float], values: Sequence[float]) -> BoundingLine:
        """The line through ``values`` after ``rounds``, which ascend, from round 1 on."""
        own = list(rounds), list(values), [1] * len(rounds)
        if not own[0] or own[0][-1] == len(own[0]):
            return cls(*own, "linear")
        if own[0][0] == 1:
            return cls(*own, "vh")
        return cls([1.0, *own[0]], [own[1][0], *own[1]], [0, *own[2]], "vh")


def evenly_spaced_rows(*columns: np.ndarray[Any, Any], most: int = 50) -> list[tuple[float, ...]]:
    """A list of the rows of equally long ``columns``; of more than ``most`` that many, evenly spaced.

    The first and the last row are always among them. [] of empty columns.
    """
    count = len(columns[0])
    kept = range(count) if count <= most else np.unique(np.linspace(0, count - 1, most).round().astype(int))
    return [tuple(float(column[i]) for column in columns) for i in kept]


class Bars(NamedTuple):
    """Bars of one kind, in the order of their labels.

    Attributes:
        name: in the legend.
        colours: of each bar.
        values: ε of each bar, which may be ∞.
        texts: the same as shown beside the bar.
    """

    name: str
    colours: Sequence[str]
    values: Sequence[float]
    texts: Sequence[str]


def paired_bars(
    labels: Sequence[str],
    pair: tuple[Bars, Bars],
    *,
    below: int,
    right: int,
) -> tuple[list[Json], Json]:
    """Plotly's data and layout of two horizontal bars for each label; a bar for an infinite ε is striped.

    Args:
        labels: one for each two bars.
        pair: the bars of the first kind, and those of the second.
        below: room below the bars, in pixels.
        right: margin on the right, in pixels.
    """
    finite = [value for bars in pair for value in bars.values if 0 < value < math.inf]
    is_log = needs_log_axis(finite)
    beyond = (max(finite, default=1.0) or 1.0) * (2 if is_log else 1.15)  # length of a bar for an infinite ε
    places, height = list(range(len(labels))), below + 62 * len(labels)
    data: list[Json] = []
    for name, colours, values, texts in pair:
        endless = [value == math.inf for value in values]
        pattern = {"shape": ["/" if no_end else "" for no_end in endless]}
        lengths = [beyond if no_end else value for value, no_end in zip(values, endless, strict=True)]
        data.append({
            "type": "bar", "orientation": "h", "name": name, "y": places, "x": lengths, "text": list(texts),
            "textposition": "outside", "cliponaxis": False, "hoverinfo": "text",
            "hovertext": [f"{name}: ε = {shown}" for shown in texts],
            "marker": {"color": list(colours), "pattern": pattern},
        })  # fmt: skip
    axis: Json = {"title": {"text": "ε"}, "fixedrange": True}
    axis |= log_axis([*finite, beyond]) if is_log else {"rangemode": "tozero"}
    named = {"tickvals": places, "ticktext": list(labels), "autorange": "reversed", "automargin": True}
    layout = {
        "height": height + 90,
        "barmode": "group",
        "bargap": 0.35,
        "margin": {"l": 8, "r": right, "t": 8, "b": 76},
        "xaxis": axis,
        "yaxis": named | {"showgrid": False, "fixedrange": True},
        "legend": {"orientation": "h", "x": 0, "y": -58 / height, "yanchor": "top"},
    }
    return data, layout

"""The statements of the paper beside what was measured: as figures, one for each unit, and as a table."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from sfumato.report import formatting as text
from sfumato.report.figures.figure import MARGIN, NO_GUARANTEE, Figure, Json, transparent
from sfumato.rounding import number, upper_bound
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.measures.workers import PAPERS_OWN
from sfumato.studies.page.numbers import with_half_width
from sfumato.studies.verdicts import Outcome, StatementVerdict

_HUES = {Outcome.AGREES: "#009E73", Outcome.DIFFERS: NO_GUARANTEE, Outcome.NOT_SETTLED: "#B87F00"}
# of figures: the title of the axis, and the unit in words
_UNITS = {
    "points": ("percentage points of accuracy", "percentage points"),
    "%": ("change, %", "percent"),
}
_ROW = 58  # px, of a row whose label has at most three lines
_LABEL_LINE = 17  # px
_MANY = 8  # rows above which the axis stands at the top
_BEYOND = 6.0  # times as far from 0 as the next value
_ROUNDING = 1e-12  # of two equal values, their difference is at most this share of them


def agreement_figures(verdicts: Sequence[StatementVerdict]) -> list[Figure]:
    """Figures of measured values beside those that are expected: of the paper's sentences, then of questions.

    One for each unit with several values. ``verdicts``: on the statements.
    """
    found = []
    for of_paper in (True, False):
        for unit in _UNITS:
            shown = [
                one
                for one in verdicts
                if one.unit == unit
                and one.statement.is_of_paper is of_paper
                and math.isfinite(one.value)
                and (unit != "%" or one.is_change)
            ]
            if len(shown) > 1:
                found.append(_figure(shown, unit, of_paper=of_paper))
    return found


def _figure(shown: Sequence[StatementVerdict], unit: str, *, of_paper: bool) -> Figure:
    """A figure with a row for each of ``shown``: the expected interval and value, and the measured one.

    ``unit``: of all; ``of_paper``: whether they are sentences of the paper.
    """
    axis_title, unit_in_words = _UNITS[unit]
    places = list(range(len(shown)))
    inside = _within_scale(shown)
    ends = [value for one in inside for value in _ends(one)]
    room = 0.08 * (max(ends) - min(ends)) or 1.0
    low, high = min([*ends, 0.0]) - room, max([*ends, 0.0]) + room
    beyond = [(row, one) for row, one in enumerate(shown) if one not in inside]
    shapes = []
    for place, one in zip(places, shown, strict=True):
        assert one.statement.expect is not None
        least, most = one.statement.expect.interval
        shapes.append({
            "type": "rect", "x0": max(least, low), "x1": min(most, high),
            "y0": place - 0.3, "y1": place + 0.3, "line": {"width": 0}, "layer": "below",
            "fillcolor": transparent("#0072B2", 0.13),
        })  # fmt: skip
    expected: Json = {
        "type": "scatter", "mode": "markers", "name": "expected", "y": places,
        "x": [figure if low <= (figure := _figure_of(one)) <= high else None for one in shown],
        "marker": {"symbol": "diamond-open", "size": 12, "color": "#0072B2", "line": {"width": 2.5}},
    }  # fmt: skip
    labels = [text.wrapped(one.statement.says, 46) for one in shown]
    rows = len(shown) * max(_ROW, _LABEL_LINE * (1 + max(label.count("<br>") + 1 for label in labels)))
    layout: Json = {
        "height": 130 + rows,
        "margin": MARGIN | {"l": 8, "t": 56 if len(shown) > _MANY else 8},
        "shapes": shapes,
        "xaxis": {"title": {"text": axis_title}, "range": [low, high], "zeroline": True}
        | ({"side": "top"} if len(shown) > _MANY else {}),
        "yaxis": {
            "tickvals": places,
            "ticktext": labels,
            "range": [len(shown) - 0.4, -0.6],
            "automargin": True,
        },
        "legend": {"orientation": "h", "x": 0, "y": -60 / (74 + rows), "yanchor": "top"},
    }
    what = "The paper's sentences" if of_paper else "Questions of this study"
    agree = "would agree with the paper" if of_paper else "would agree"
    return Figure(
        title=f"{what} and what was measured, in {unit_in_words}",
        caption=f"Dots: {_dots_in_words(shown)}. Blue: values that {agree}. Diamonds: the value that the "
        f"{'sentence' if of_paper else 'question'} names, or the end of the blue range."
        + (" Triangles: beyond the scale, with their value." if beyond else ""),
        description="; ".join(f"{one.statement.says}: {one.words}" for one in shown),
        data=[expected, *_measured_points(shown, [row for row, _ in beyond]), *_beyond(beyond, low, high)],
        layout=layout,
        kind="agreement",
        min_width=560,
    )


def _ends(one: StatementVerdict) -> list[float]:
    """The values of a row of the figure: the measured one, the ends of its interval and the expected one."""
    return [value for value in (one.value, one.low, one.high, _figure_of(one)) if math.isfinite(value)]


def _within_scale(shown: Sequence[StatementVerdict]) -> list[StatementVerdict]:
    """Those of ``shown`` that decide the scale: less the farthest, if these are `_BEYOND` times as far out.

    At most a third is left out, and two stay.
    """
    inside = sorted(shown, key=_distance)
    for count in range(max(2, 2 * len(shown) // 3), len(shown)):
        if _distance(inside[count]) > _BEYOND * _distance(inside[count - 1]) > 0:
            return inside[:count]
    return inside


def _distance(one: StatementVerdict) -> float:
    """How far from 0 a row reaches."""
    return max(map(abs, _ends(one)))


def _dots_in_words(shown: Sequence[StatementVerdict]) -> str:
    """What the dots of a figure are: computed values, means with intervals, or both."""
    with_interval = [_half(one) > 0 for one in shown]
    if all(with_interval):
        return "means and 95 % intervals"
    return (
        "means and 95 % intervals, or computed values, which have none" if any(with_interval) else "computed"
    )


def _beyond(rows: Sequence[tuple[int, StatementVerdict]], low: float, high: float) -> list[Json]:
    """Plotly traces of triangles at the ends of the scale for values beyond it, with their text.

    Args:
        rows: the number of the row, and its verdict.
        low: the lower end of the scale.
        high: the upper one.
    """
    traces: list[Json] = []
    for row, one in rows:
        is_right = one.value > high
        traces.append({
            "type": "scatter", "mode": "markers+text", "x": [high if is_right else low], "y": [row],
            "text": [text.plotly_label(_value_text(one))], "showlegend": False, "cliponaxis": False,
            "textposition": "middle left" if is_right else "middle right",
            "marker": {
                "symbol": "triangle-right" if is_right else "triangle-left", "size": 14,
                "color": _HUES.get(one.outcome, NO_GUARANTEE),
            },
        })  # fmt: skip
    return traces


def _measured_points(shown: Sequence[StatementVerdict], left_out: Collection[int]) -> list[Json]:
    """Plotly traces of the measured means with their 95 % intervals, one for each outcome that occurs.

    ``left_out``: numbers of rows that are beyond the scale.
    """
    traces: list[Json] = []
    for outcome, hue in _HUES.items():
        rows = [(row, one) for row, one in enumerate(shown) if one.outcome is outcome and row not in left_out]
        if rows:
            traces.append({
                "type": "scatter", "mode": "markers", "name": f"here: {outcome}",
                "x": [one.value for _, one in rows], "y": [row for row, _ in rows],
                "error_x": {"type": "data", "array": [_half(one) for _, one in rows], "color": hue},
                "marker": {"color": hue, "size": 10},
            })  # fmt: skip
    return traces


def verdict_tables(verdicts: Sequence[StatementVerdict], *, trained: bool) -> list[str]:
    """HTML tables of the sentences of the paper, and of the study's own questions, with their verdicts.

    ``trained``: whether the study trains; else values are called computed, not measured.
    """
    of_paper = [one for one in verdicts if one.statement.is_of_paper]
    asked = [one for one in verdicts if not one.statement.is_of_paper]
    found = []
    if of_paper:
        words = ("expected", "measured") if trained else ("by the paper", "computed")
        rows = [(one.statement.place, one.statement.says, *_columns(one)) for one in of_paper]
        caption = "What this study checks of the paper, in our words; after a semicolon, the setting here"
        headers = ["place", "the paper says", *words, "verdict"]
        found.append(text.html_table(headers, rows, caption=caption, stacked=True))
    if asked:
        headers = ["question", "expected", "measured" if trained else "computed", "verdict"]
        own = [(one.statement.says, *_columns(one)) for one in asked]
        caption = "Questions of this study, which are no sentences of the paper"
        found.append(text.html_table(headers, own, caption=caption, stacked=True))
    return found


def _columns(one: StatementVerdict) -> tuple[str, str, str]:
    """What is expected, what was measured, and the verdict, as text."""
    return expected_text(one), f"{measured_text(one)}{_whose(one)}", one.words


def _whose(one: StatementVerdict) -> str:
    """`` by the paper's formula``, of a value that is not of Sfumato's own account; else ""."""
    term = one.statement.value
    return " by the paper's formula" if term and term.series in PAPERS_OWN else ""


def measured_text(one: StatementVerdict) -> str:
    """The value of a statement as text, with half of its 95 % interval and its unit; "–" without one.

    An ε is rounded up. An interval that is not known, or without width, is left out. Of a direction the text
    has the values along the axis. Behind a difference or a change stand the two values compared.
    """
    if one.along:
        listed = ", ".join(upper_bound(value) if one.is_epsilon else number(value) for value in one.along)
        return f"{listed}{f' {one.unit}' if one.unit else ''}".replace("-", "−")
    if math.isnan(one.value):
        return "–"
    if not one.terms:
        return _value_text(one)
    of = measure_named(one.statement.terms[0].measure)[0]
    terms = [upper_bound(term) if of.is_epsilon else number(term) for term in one.terms]
    largest = max(map(abs, one.terms))
    is_rounding = not one.is_change and math.isfinite(largest) and abs(one.value) <= _ROUNDING * largest
    shown = "0" if is_rounding else _value_text(one)
    return f"{shown} ({' against '.join(terms)})".replace("-", "−")


def _value_text(one: StatementVerdict) -> str:
    """The value with half of its 95 % interval and its unit, as text."""
    shown = upper_bound(one.value) if one.is_epsilon else with_half_width(one.value, _half(one))
    return f"{shown}{f' {one.unit}' if one.unit else ''}".replace("-", "−")


def expected_text(one: StatementVerdict) -> str:
    """What the paper's statement expects, as text: a value and its tolerance, an interval or a direction.

    For example ``about 5 points, ± 2``, ``at least 1`` or ``rises throughout``.
    """
    expect, tail = one.statement.expect, f" {one.unit}" if one.unit else ""
    if expect is None:
        return f"{'rises' if one.statement.rises else 'falls'} throughout"
    if expect.infinite:
        return "∞ (no guarantee)"
    if expect.about is not None:
        words = (
            f"about {expect.about:g}{tail}, ± {expect.within:g}"
            if expect.within
            else f"{expect.about:g}{tail}"
        )
        return words.replace("-", "−")
    if expect.at_least is not None and expect.at_most is not None:
        return f"{expect.at_least:g} to {expect.at_most:g}{tail}".replace("-", "−")
    end = f"at least {expect.at_least:g}" if expect.at_least is not None else f"at most {expect.at_most:g}"
    return f"{end}{tail}".replace("-", "−")


def _half(one: StatementVerdict) -> float:
    """Half of the 95 % interval of a value; 0 where it is not known or infinite."""
    half = (one.high - one.low) / 2
    return half if math.isfinite(half) else 0.0


def _figure_of(one: StatementVerdict) -> float:
    """The value that the paper names in a statement with an expected value."""
    assert one.statement.expect is not None
    return one.statement.expect.figure

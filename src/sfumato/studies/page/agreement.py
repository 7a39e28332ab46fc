"""The statements of the paper beside what was measured: as figures, one for each unit, and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.report import formatting as text
from sfumato.report.figures.figure import MARGIN, NO_GUARANTEE, Figure, Json, transparent
from sfumato.rounding import number, upper_bound
from sfumato.studies.measures.workers import PAPERS_OWN
from sfumato.studies.verdicts import Outcome, StatementVerdict

_HUES = {Outcome.AGREES: "#009E73", Outcome.DIFFERS: NO_GUARANTEE, Outcome.NOT_SETTLED: "#B87F00"}
_UNITS = {"points": "percentage points of accuracy", "%": "change, %"}
_ROW = 58


def agreement_figures(verdicts: Sequence[StatementVerdict]) -> list[Figure]:
    """Figures of measured values beside those that the paper states, one for each unit with several values.

    ``verdicts``: on the statements.
    """
    found = []
    for unit, words in _UNITS.items():
        shown = [verdict for verdict in verdicts if verdict.unit == unit and math.isfinite(verdict.value)]
        if len(shown) > 1:
            found.append(_figure(shown, words))
    return found


def _figure(shown: Sequence[StatementVerdict], words: str) -> Figure:
    """A figure with a row for each of ``shown``: expected interval, the paper's value, the measured one.

    ``words``: title of the axis, with the unit.
    """
    places = list(range(len(shown)))
    ends = [
        value
        for one in shown
        for value in (one.value, one.low, one.high, _figure_of(one))
        if not math.isnan(value)
    ]
    room = 0.08 * (max(ends) - min(ends)) or 1.0
    low, high = min([*ends, 0.0]) - room, max([*ends, 0.0]) + room
    shapes = []
    for place, one in zip(places, shown, strict=True):
        assert one.statement.expect is not None
        least, most = one.statement.expect.interval
        shapes.append({
            "type": "rect", "x0": max(least, low), "x1": min(most, high),
            "y0": place - 0.3, "y1": place + 0.3, "line": {"width": 0}, "layer": "below",
            "fillcolor": transparent("#0072B2", 0.13),
        })  # fmt: skip
    data = _measured_points(shown)
    data.append({
        "type": "scatter", "mode": "markers", "name": "the paper", "y": places,
        "x": [_figure_of(one) for one in shown],
        "marker": {"symbol": "diamond-open", "size": 12, "color": "#0072B2", "line": {"width": 2.5}},
    })  # fmt: skip
    labels = [text.wrapped(one.statement.says, 46) for one in shown]
    layout: Json = {
        "height": 130 + _ROW * len(shown),
        "margin": MARGIN | {"l": 8, "t": 8},
        "shapes": shapes,
        "xaxis": {"title": {"text": words}, "range": [low, high], "zeroline": True},
        "yaxis": {
            "tickvals": places,
            "ticktext": labels,
            "range": [len(shown) - 0.4, -0.6],
            "automargin": True,
        },
        "legend": {"orientation": "h", "x": 0, "y": -60 / (74 + _ROW * len(shown)), "yanchor": "top"},
    }
    return Figure(
        title="The paper's sentences and what was measured",
        caption="Dots: means and 95 % intervals. Diamonds: the paper's figures. Blue: what agrees with it.",
        description="; ".join(f"{one.statement.says}: {one.words}" for one in shown),
        data=data,
        layout=layout,
        kind="agreement",
        min_width=560,
    )


def _measured_points(shown: Sequence[StatementVerdict]) -> list[Json]:
    """Plotly traces of the measured means with their 95 % intervals, one for each outcome that occurs."""
    traces: list[Json] = []
    for outcome, hue in _HUES.items():
        rows = [(row, one) for row, one in enumerate(shown) if one.outcome is outcome]
        if rows:
            traces.append({
                "type": "scatter", "mode": "markers", "name": f"here: {outcome}",
                "x": [one.value for _, one in rows], "y": [row for row, _ in rows],
                "error_x": {"type": "data", "array": [_half(one) for _, one in rows], "color": hue},
                "marker": {"color": hue, "size": 10},
            })  # fmt: skip
    return traces


def verdict_table(verdicts: Sequence[StatementVerdict], *, trained: bool) -> str:
    """An HTML table of the statements, with their places, values, expectations and verdicts.

    ``trained``: whether the study trains; else values are called computed, not measured.
    """
    words = ("expected", "measured") if trained else ("by the paper", "computed")
    rows = [
        (
            one.statement.place,
            one.statement.says,
            expected_text(one),
            f"{measured_text(one)}{_whose(one)}",
            one.words,
        )
        for one in verdicts
    ]
    caption = "Every sentence of the paper that this study checks, in our words"
    return text.html_table(
        ["place", "the paper says", *words, "verdict"],
        rows,
        caption=caption,
        stacked=True,
    )


def _whose(one: StatementVerdict) -> str:
    """`` by the paper's formula``, of a value that is not of Sfumato's own account; else ""."""
    term = one.statement.value
    return " by the paper's formula" if term and term.series in PAPERS_OWN else ""


def measured_text(one: StatementVerdict) -> str:
    """The value of a statement as text, with half of its 95 % interval and its unit; "–" without one.

    Of a direction it is the values along the axis.
    """
    if one.along:
        listed = ", ".join(upper_bound(value) if one.is_epsilon else number(value) for value in one.along)
        return f"{listed}{f' {one.unit}' if one.unit else ''}".replace("-", "−")
    if math.isnan(one.value):
        return "–"
    shown = upper_bound(one.value) if one.is_epsilon else number(one.value)
    half = _half(one)
    spread = f" ± {number(half, 2)}" if half > 0 else ""
    return f"{shown}{spread}{f' {one.unit}' if one.unit else ''}".replace("-", "−")


def expected_text(one: StatementVerdict) -> str:
    """What the paper's statement expects, as text: a value and its tolerance, an interval or a direction."""
    expect, tail = one.statement.expect, f" {one.unit}" if one.unit else ""
    if expect is None:
        return f"{'rises' if one.statement.rises else 'falls'} throughout"
    if expect.about is not None:
        words = (
            f"about {expect.about:g}{tail}, ± {expect.within:g}"
            if expect.within
            else f"{expect.about:g}{tail}"
        )
        return words.replace("-", "−")
    if expect.at_least is not None and expect.at_most is not None:
        return f"{expect.at_least:g} to {expect.at_most:g}{tail}"
    end = f"at least {expect.at_least:g}" if expect.at_least is not None else f"at most {expect.at_most:g}"
    return f"{end}{tail}".replace("-", "−")


def _half(one: StatementVerdict) -> float:
    half = (one.high - one.low) / 2
    return half if math.isfinite(half) else 0.0


def _figure_of(one: StatementVerdict) -> float:
    assert one.statement.expect is not None
    return one.statement.expect.figure

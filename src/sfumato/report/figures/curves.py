"""Figures of curves over rounds: accuracy, and how any other curve is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    DASHES,
    Figure,
    Json,
    colour,
    evenly_spaced_rows,
    line_mode,
    over_legend,
    round_axis,
    transparent,
)
from sfumato.report.results.comparability import by_score_and_data, on_data
from sfumato.report.results.dp_ogl_plus import note_between_releases
from sfumato.report.results.series import Curve, Series
from sfumato.run_folder.headline import ACCURACY, Headline

_LOW = 0.5  # accuracies below: an axis that does not begin at 0 would make little look like much


class RunCurve(NamedTuple):
    """The curve of one run.

    Attributes:
        number: of its colour.
        name: in the legend.
        curve: its values.
        dash: of its line.
    """

    number: int
    name: str
    curve: Curve
    dash: str = "solid"

    @property
    def last(self) -> float:
        """The mean over seeds in the last round of the curve."""
        return float(self.curve.mean[-1])


def curve_figure(
    curves: Sequence[RunCurve],
    *,
    title: str,
    caption: str,
    description: str,
    y_axis: Json,
    height: int,
    kind: str,
    legend_at: float = -0.24,
    x_axis: Json | None = None,
    table: str = "",
) -> Figure:
    """A figure of ``curves``, over rounds unless ``x_axis`` is given; with a legend if there are several.

    Args:
        title: as of `Figure`.
        caption: as of `Figure`.
        description: as of `Figure`.
        kind: as of `Figure`.
        table: as of `Figure`.
        y_axis: Plotly axes.
        x_axis: Plotly axes.
        height: in pixels, without long legends.
        legend_at: y of the legend, as a share of the height of the plot.
    """
    data = [trace for one in curves for trace in curve_traces(one)]
    layout = over_legend(height, data, legend_at) | {
        "showlegend": len(curves) > 1,
        "hovermode": "x unified" if x_axis is None else "closest",
        "xaxis": x_axis or round_axis(r for one in curves for r in one.curve.rounds),
        "yaxis": y_axis,
    }
    return Figure(title, caption, description, data, layout, table, kind)


def score_figures(series: Sequence[Series], twin: Series | None = None) -> list[Figure]:
    """The headline score over rounds: a figure for each score and data set, of the runs judged by it.

    ``twin``: a run without noise that is otherwise the single run of ``series``; it is dashed.
    """
    drawn: list[tuple[Headline, str, list[RunCurve]]] = []
    for (score, data), runs in by_score_and_data(series).items():
        curves = [RunCurve(number, one.name, one.curve(score.column)) for number, one in runs]
        measured = [one for one in curves if len(one.curve.rounds)]
        if measured:
            drawn.append((score, on_data(series, data), measured))
    seeds = " Bands: 95 % interval of the mean over seeds." if any(len(s.runs) > 1 for s in series) else ""
    notes = seeds + note_between_releases(series)
    if twin is not None:
        ((score, _, curves),), number = drawn, len(series)
        curves.append(RunCurve(number, "without noise", twin.curve(score.column), DASHES[1]))
        notes += f" Dashed: {twin.name}, which is the same but for noise."
    return [_score_figure(score, where, curves, notes) for score, where, curves in drawn]


def _score_figure(score: Headline, where: str, curves: Sequence[RunCurve], notes: str) -> Figure:
    """The figure of one score over rounds, with a table.

    ``where``: `on_data`, in the title; ``notes``: sentences in the caption.
    """
    title = text.title(score.name)
    described = (
        f"{name}: {score.text(float(curve.mean[0]))} at round {curve.rounds[0]:.0f}, "
        f"{score.text(float(curve.mean[-1]))} at round {curve.rounds[-1]:.0f}."
        for _, name, curve, _ in curves
    )
    return curve_figure(
        curves,
        title=f"{title}{where}",
        caption=f"{title} on held-out data; measured by the simulator only, not accounted for.{notes}",
        description=f"{title} over rounds. {' '.join(described)}",
        y_axis=score_axis(score, curves),
        height=380,
        table=_curve_table(curves, score.name, score),
        kind="accuracy" if score is ACCURACY else "score",
    )


def score_axis(score: Headline, curves: Sequence[RunCurve]) -> Json:
    """The y axis of a score; of accuracies from 0 to 1 if there is only one value, from 0 if all are low."""
    axis: Json = {"title": {"text": score.name}}
    if score is not ACCURACY:
        return axis
    values = {float(value) for one in curves for value in one.curve.mean}
    low = {"rangemode": "tozero"} if max(values, default=1.0) < _LOW else {}
    return axis | {"tickformat": ".0%"} | ({"range": [0, 1]} if len(values) == 1 else low)


def personal_figure(series: Sequence[Series]) -> Figure | None:
    """Mean accuracy over rounds of workers' own models on data distributed like their own.

    ``None`` if it was not measured.
    """
    curves = [RunCurve(i, one.name, one.curve("personal_accuracy")) for i, one in enumerate(series)]
    curves = [one for one in curves if len(one.curve.rounds)]
    if not curves:
        return None
    ends = (f"{one.name}: {text.percent(one.last)} in the end." for one in curves)
    return curve_figure(
        curves,
        title="Personalised accuracy",
        caption=(
            "Mean accuracy over workers of their own models (the mean of their groups' models) on data "
            "distributed like their own; measured by the simulator only, not accounted for."
            + note_between_releases(series)
        ),
        description=f"Personalised accuracy over rounds. {' '.join(ends)}",
        y_axis=score_axis(ACCURACY, curves),
        height=380,
        table=_curve_table(curves, "personalised accuracy", ACCURACY),
        kind="personal",
    )


def curve_traces(one: RunCurve) -> list[Json]:
    """The band and the line of a curve; with markers if there are few rounds."""
    curve, rounds, hue = one.curve, one.curve.rounds.tolist(), colour(one.number)
    common: Json = {"type": "scatter", "legendgroup": text.label(one.name), "x": rounds}
    traces: list[Json] = []
    if not np.array_equal(curve.low, curve.high):
        band = common | {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        fill = {"fill": "tonexty", "fillcolor": transparent(hue, 0.18)}
        traces = [band | {"y": curve.low.tolist()}, band | {"y": curve.high.tolist()} | fill]
    shown = {"name": text.label(one.name), "mode": line_mode(curve.rounds), "y": curve.mean.tolist()}
    look = {"line": {"color": hue, "width": 2, "dash": one.dash}, "marker": {"color": hue, "size": 6}}
    return [*traces, common | shown | look]


def _curve_table(curves: Sequence[RunCurve], what: str, score: Headline) -> str:
    """An HTML table of the values of ``curves`` by run and round.

    ``what``: the measured quantity, for the caption; ``score``: writes values.
    """
    form = score.text
    rows = [
        (name, text.whole(r), form(m), form((high - low) / 2) if high > low else "")
        for _, name, curve, _ in curves
        for r, m, low, high in evenly_spaced_rows(curve.rounds, curve.mean, curve.low, curve.high)
    ]
    return text.html_table(
        ["run", "round", what, "± (95 %)"], rows, caption=f"{what} by run and round", numeric=(1, 2, 3)
    )

"""Figures of curves over rounds: accuracy, and how any other curve is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import pandas as pd

from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    DASHES,
    NEUTRAL,
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
from sfumato.report.results.cost_of_privacy import OVER, values_drawn_as_mean
from sfumato.report.results.dp_ogl_plus import rounds_to_a_release
from sfumato.report.results.measured import who_measured
from sfumato.report.results.series import BoolArray, Curve, Series
from sfumato.report.results.spec_sections import sends_over_the_air
from sfumato.report.results.summary import guess_of_run
from sfumato.run_folder.headline import ACCURACY, Headline

_NEAR = 0.05  # of accuracy, above guessing
_LOW = 0.5  # accuracies below: an axis that does not begin at 0 would make little look like much


class RunCurve(NamedTuple):
    """The curve of one run in a figure.

    Attributes:
        number: of the run, which sets its colour (`figure.colour`).
        name: in the legend.
        curve: its values.
        dash: of its line.
        every: rounds from one release of the models to the next; values of other rounds are dots.
        over: length of the running mean that the line shows; above 1 the values are a thin, pale line.
    """

    number: int
    name: str
    curve: Curve
    dash: str = "solid"
    every: int = 1
    over: int = 1

    @property
    def released(self) -> BoolArray:
        """A mask ``[rounds]`` of the values that are of released models.

        All are, where every round releases, or the curve is not over rounds.
        """
        return np.asarray((self.curve.rounds % self.every == 0) | (self.every == 1))

    @property
    def last(self) -> float:
        """The value in the last round of the curve, the mean over seeds.

        Raises:
            IndexError: the curve is empty.
        """
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
    level: float = math.nan,
) -> Figure:
    """A figure of ``curves``, over rounds unless ``x_axis`` is given; with a legend if there are several.

    Args:
        title: as of `Figure`.
        caption: as of `Figure`.
        description: as of `Figure`.
        kind: as of `Figure`.
        table: as of `Figure`.
        level: y of a dotted line across the plot; NaN: none.
        y_axis: Plotly axes.
        x_axis: Plotly axes.
        height: in pixels, without long legends.
        legend_at: y of the legend, as a share of the height of the plot.
    """
    data = [trace for one in curves for trace in curve_traces(one)]
    if not math.isnan(level):
        places = [r for one in curves for r in one.curve.rounds]
        across: Json = {"type": "scatter", "x": [min(places), max(places)], "y": [level] * 2, "mode": "lines"}
        style = {"line": {"color": NEUTRAL, "width": 1.5, "dash": "dot"}, "hoverinfo": "skip"}
        data.append(across | style | {"showlegend": False})
    layout = over_legend(height, data, legend_at) | {
        "showlegend": len(curves) > 1,
        "hovermode": "x unified" if x_axis is None else "closest",
        "xaxis": x_axis or round_axis(r for one in curves for r in one.curve.rounds),
        "yaxis": y_axis,
    }
    return Figure(title, caption, description, data, layout, table, kind)


def _run_curve(number: int, one: Series, column: str) -> RunCurve:
    """The curve of a score of a run, as it is drawn.

    Models that are not released are dots, and of many values that jump the line is a running mean.
    """
    every, over = rounds_to_a_release(one), values_drawn_as_mean(one, column)
    return RunCurve(number, one.name, one.curve(column), every=every, over=over)


def _with_twin(series: Sequence[Series], twin: Series | None) -> Sequence[Series]:
    """All runs of a figure: ``series``, and the run without noise if there is one."""
    return series if twin is None else [*series, twin]


def _curve_without_noise(number: int, twin: Series, column: str, beside: RunCurve) -> RunCurve:
    """The dashed curve of the run without noise; releases and running mean are those of the curve beside."""
    curve, every, over = twin.curve(column), beside.every, beside.over
    return RunCurve(number, "without noise", curve, DASHES[1], every=every, over=over)


def _note_on_dashes(one: Series, twin: Series) -> str:
    """A sentence, after a space, on the dashed line of ``twin``, which is ``one`` without noise."""
    noisy, silent = (sends_over_the_air(each.first.spec_dict) for each in (one, twin))
    apart = ", with messages that are sent one by one and not over the air" if noisy and not silent else ""
    return f" Dashed: {twin.name}, which is the same but for noise{apart}."


def _note_on_dots(series: Sequence[Series]) -> str:
    """A sentence, after a space, on the dots of models that are not released; "" without."""
    if all(rounds_to_a_release(one) == 1 for one in series):
        return ""
    return " A line joins released models; dots are models in between, without noise."


def score_figures(series: Sequence[Series], twin: Series | None = None) -> list[Figure]:
    """The headline score over rounds: a figure for each score and data set, of the runs judged by it.

    [] where no run measured any. ``twin``: a run without noise that is otherwise the single run of
    ``series``; it is dashed.
    """
    drawn: list[tuple[Headline, str, list[RunCurve], float]] = []
    for (score, data), runs in by_score_and_data(series).items():
        curves = [_run_curve(number, one, score.column) for number, one in runs]
        measured = [one for one in curves if len(one.curve.rounds)]
        if measured:
            guesses = {guess_of_run(one) for _, one in runs}
            guess = guesses.pop() if len(guesses) == 1 else math.nan
            drawn.append((score, on_data(series, data), measured, guess))
    seeds = " Bands: 95 % interval of the mean over seeds." if any(len(s.runs) > 1 for s in series) else ""
    notes = seeds + _note_on_dots(series)
    if twin is not None:
        ((score, _, curves, _),), number = drawn, len(series)
        over = max(curves[0].over, values_drawn_as_mean(twin, score.column))
        curves[0] = curves[0]._replace(over=over)
        curves.append(_curve_without_noise(number, twin, score.column, curves[0]))
        notes += _note_on_dashes(series[0], twin)
    whose = who_measured(_with_twin(series, twin))
    return [_score_figure(score, where, curves, whose, notes, guess) for score, where, curves, guess in drawn]


def _comes_near(guess: float, curves: Sequence[RunCurve]) -> bool:
    """Whether any curve is at most `_NEAR` above the accuracy of guessing; False where that is NaN."""
    return any(bool((one.curve.mean <= guess + _NEAR).any()) for one in curves)


def _score_figure(
    score: Headline, where: str, curves: Sequence[RunCurve], whose: str, notes: str, guess: float
) -> Figure:
    """The figure of one score over rounds, with a table.

    Args:
        score: of the curves.
        where: `on_data`, in the title.
        curves: of all runs.
        whose: who measured it.
        notes: sentences in the caption.
        guess: the accuracy of guessing; NaN where it is not known or not the same for all.
    """
    title = text.title(score.name)
    described = (_ends_in_words(score, one) for one in curves)
    if any(one.over > 1 for one in curves):
        notes += f" Thin: every value; bold: the mean of the last {OVER}{_mean_in_the_end(score, curves)}."
    level = guess if score is ACCURACY and _comes_near(guess, curves) else math.nan
    told = "" if math.isnan(level) else f" Dotted: guessing, {text.percent(level)}."
    return curve_figure(
        curves,
        title=f"{title}{where}",
        caption=(
            f"{title} on held-out data{where.replace(' on ', ' of ', 1)}; measured by {whose}, "
            f"not accounted for.{notes}{told}"
        ),
        level=level,
        description=f"{title} over rounds. {' '.join(described)}",
        y_axis=score_axis(score, curves),
        height=380,
        table=_curve_table(curves, score.name, score),
        kind="accuracy" if score is ACCURACY else "score",
    )


def _ends_in_words(score: Headline, one: RunCurve) -> str:
    """The first and the last value of a curve in a sentence, of released models if some are not.

    The others by their range.
    """
    curve = one.curve.only(one.released) if one.released.any() else one.curve
    first, last = (score.text(float(curve.mean[at])) for at in (0, -1))
    ends = f"{one.name}: {first} at round {curve.rounds[0]:.0f}, {last} at round {curve.rounds[-1]:.0f}"
    if one.released.all() or not one.released.any():
        return f"{ends}."
    between = one.curve.only(~one.released).mean
    least, most = (score.text(float(value)) for value in (between.min(), between.max()))
    return f"{ends} (released models). Models in between, without noise: {least} to {most}."


def _mean_in_the_end(score: Headline, curves: Sequence[RunCurve]) -> str:
    """The last value of the running mean of a single curve, after a comma; "" of several."""
    if len(curves) > 1:
        return ""
    return f", {score.text(float(curves[0].curve.mean[-OVER:].mean()))} in the end"


def score_axis(score: Headline, curves: Sequence[RunCurve]) -> Json:
    """The Plotly y axis, a JSON object, on which the values of ``curves``, those of ``score``, are drawn.

    Accuracy has percent as ticks. Its axis goes from 0 to 1 if all curves together have one value only, and
    begins at 0 if all values are below `_LOW`. Any other score has only a title.
    """
    axis: Json = {"title": {"text": score.name}}
    if score is not ACCURACY:
        return axis
    values = {float(value) for one in curves for value in one.curve.mean}
    low = {"rangemode": "tozero"} if max(values, default=1.0) < _LOW else {}
    return axis | {"tickformat": ".1~%"} | ({"range": [0, 1]} if len(values) == 1 else low)


def personal_figure(series: Sequence[Series], twin: Series | None = None) -> Figure | None:
    """Mean accuracy over rounds of workers' own models on data distributed like their own.

    ``None`` if it was not measured. ``twin``: as of `score_figures`.
    """
    curves = [_run_curve(i, one, "personal_accuracy") for i, one in enumerate(series)]
    curves = [one for one in curves if len(one.curve.rounds)]
    if not curves:
        return None
    notes = _note_on_dots(series)
    if twin is not None:
        curves.append(_curve_without_noise(len(series), twin, "personal_accuracy", curves[0]))
        notes += _note_on_dashes(series[0], twin)
    whose = who_measured(_with_twin(series, twin))
    ends = (f"{one.name}: {text.percent(one.last)} in the end." for one in curves)
    return curve_figure(
        curves,
        title="Personalised accuracy",
        caption=(
            "Mean accuracy over workers of their own models (the mean of their groups' models) on data "
            f"distributed like their own; measured by {whose}, not accounted for.{notes}"
        ),
        description=f"Personalised accuracy over rounds. {' '.join(ends)}",
        y_axis=score_axis(ACCURACY, curves),
        height=380,
        table=_curve_table(curves, "personalised accuracy", ACCURACY),
        kind="personal",
    )


def curve_traces(one: RunCurve) -> list[Json]:
    """A list of Plotly traces: the band and the line of a curve, and dots between releases.

    Few rounds have markers. The band is left out where it has no width.
    """
    hue = colour(one.number)
    released = one.released
    curve = one.curve.only(released)
    common: Json = {
        "type": "scatter",
        "legendgroup": text.plotly_label(one.name),
        "x": curve.rounds.tolist(),
    }
    traces: list[Json] = []
    if not released.all():
        rest = one.curve.only(~released)
        look = {"mode": "markers", "marker": {"color": transparent(hue, 0.35), "size": 5}}
        places = {"x": rest.rounds.tolist(), "y": rest.mean.tolist(), "name": "between releases"}
        traces.append(common | places | look | {"showlegend": False})
    if not np.array_equal(curve.low, curve.high):
        band = common | {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        fill = {"fill": "tonexty", "fillcolor": transparent(hue, 0.18)}
        traces += [band | {"y": curve.low.tolist()}, band | {"y": curve.high.tolist()} | fill]
    values = curve.mean
    if one.over > 1:
        thin = {"mode": "lines", "line": {"color": transparent(hue, 0.35), "width": 1}, "showlegend": False}
        traces.append(common | thin | {"y": values.tolist(), "name": "every round"})
        values = pd.Series(values).rolling(one.over, min_periods=1).mean().to_numpy()
    shown = {"name": text.plotly_label(one.name), "mode": line_mode(curve.rounds), "y": values.tolist()}
    look = {"line": {"color": hue, "width": 2, "dash": one.dash}, "marker": {"color": hue, "size": 6}}
    return [*traces, common | shown | look]


def _curve_table(curves: Sequence[RunCurve], what: str, score: Headline) -> str:
    """An HTML table of the values of ``curves`` by run and round.

    ``what``: the measured quantity, for the caption; ``score``: writes values. Where some models are not
    released, a column says which.
    """
    form = score.text
    rows = [
        (
            one.name, text.whole(r), "released" if released else "in between", form(m),
            form((high - low) / 2) if high > low else "",
        )
        for one in curves
        for r, released, m, low, high in evenly_spaced_rows(
            one.curve.rounds, one.released, one.curve.mean, one.curve.low, one.curve.high
        )
    ]  # fmt: skip
    kept = {
        "run": True, "round": True, "model": not all(one.released.all() for one in curves), what: True,
        "± (95 %)": any(row[-1] for row in rows),  # of one seed no interval is known
    }  # fmt: skip
    heads = [head for head, shown in kept.items() if shown]
    return text.html_table(
        heads, [tuple(compress(row, kept.values())) for row in rows], caption=f"{what} by run and round",
        numeric=tuple(number for number, head in enumerate(heads) if head not in ("run", "model")),
    )  # fmt: skip

"""Figures over rounds: accuracy, costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.even_costs import grows_evenly, stays_the_same
from sfumato.report.figures.figure import DASHES, Figure, colour, faded, round_axis
from sfumato.report.results.comparability import energy_units, radio_model, unasked_columns
from sfumato.report.results.series import Curve, Series
from sfumato.run_folder.headline import ACCURACY, Headline, headline_of

LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.24, "yanchor": "top"}
MARGIN = {"l": 64, "r": 16, "t": 30, "b": 56}
_LEGEND_LINE = 20  # px


def score_figures(series: Sequence[Series]) -> list[Figure]:
    """The headline score over rounds: a figure for each score, of the runs that are judged by it."""
    by_score: dict[Headline, list[tuple[int, str, Curve]]] = {}
    for number, one in enumerate(series):
        score = headline_of(one.first.metrics)
        curve = one.curve(score.column)
        if len(curve.rounds):
            by_score.setdefault(score, []).append((number, one.name, curve))
    seeds = " Bands: 95 % interval of the mean over seeds." if any(len(s.runs) > 1 for s in series) else ""
    return [_score_figure(score, curves, seeds) for score, curves in by_score.items()]


def _score_figure(score: Headline, curves: Sequence[tuple[int, str, Curve]], seeds: str) -> Figure:
    data = [trace for i, name, curve in curves for trace in line(curve, name, colour(i))]
    title = score.name[:1].upper() + score.name[1:]
    return Figure(
        title=title,
        caption=f"{title} on held-out data; measured by the simulator only, not accounted for.{seeds}",
        description=f"{title} over rounds. "
        + " ".join(
            f"{name}: {score.text(float(curve.mean[0]))} at round {curve.rounds[0]:.0f}, "
            f"{score.text(float(curve.mean[-1]))} at round {curve.rounds[-1]:.0f}."
            for _, name, curve in curves
        ),
        data=data,
        layout=over_legend(380, data)
        | {
            "showlegend": len(curves) > 1,
            "hovermode": "x unified",
            "xaxis": round_axis(r for _, _, curve in curves for r in curve.rounds),
            "yaxis": score_axis(score, curves),
        },
        table=_table([(name, curve) for _, name, curve in curves], score.name, score),
        kind="accuracy" if score is ACCURACY else "score",
    )


def score_axis(score: Headline, curves: Sequence[tuple[int, str, Curve]]) -> dict[str, Any]:
    """The y axis of a score."""
    percent = {"tickformat": ".0%"} | accuracy_range(curves) if score is ACCURACY else {}
    return {"title": {"text": score.name}} | percent


def personal_figure(series: Sequence[Series]) -> Figure | None:
    """Accuracy of every worker's own model on its own distribution; ``None`` if it was not measured."""
    curves = [(i, one.name, one.curve("personal_accuracy")) for i, one in enumerate(series)]
    curves = [(i, name, curve) for i, name, curve in curves if len(curve.rounds)]
    if not curves:
        return None
    data = [trace for i, name, curve in curves for trace in line(curve, name, colour(i))]
    return Figure(
        title="Personalised accuracy",
        caption=(
            "Mean accuracy over workers of their own models (the mean of their groups' models) on data "
            "distributed like their own; measured by the simulator only, not accounted for."
        ),
        description="Personalised accuracy over rounds. "
        + " ".join(f"{name}: {text.percent(float(curve.mean[-1]))} in the end." for _, name, curve in curves),
        data=data,
        layout=over_legend(380, data)
        | {
            "showlegend": len(curves) > 1,
            "hovermode": "x unified",
            "xaxis": round_axis(r for _, _, curve in curves for r in curve.rounds),
            "yaxis": {"title": {"text": "accuracy"}, "tickformat": ".0%"} | accuracy_range(curves),
        },
        table=_table([(name, curve) for _, name, curve in curves], "personalised accuracy", ACCURACY),
        kind="personal",
    )


def over_legend(height: int, data: Sequence[Mapping[str, Any]], y: float = -0.24) -> dict[str, Any]:
    """Height, margins and legend; a longer legend makes the figure higher, to leave room for axis titles."""
    entries = sum("name" in trace for trace in data)
    return {
        "height": height + _LEGEND_LINE * max(0, entries - 2),
        "margin": MARGIN,
        "legend": LEGEND | {"y": y, "tracegroupgap": 0, "maxheight": 1},
    }


def accuracy_range(curves: Sequence[tuple[int, str, Curve]]) -> dict[str, Any]:
    """The range from 0 to 1 if there is only one value; otherwise Plotly chooses the range."""
    values = {float(value) for *_, curve in curves for value in curve.mean}
    return {"range": [0, 1]} if len(values) == 1 else {}


def cost_figures(series: Sequence[Series]) -> list[Figure]:
    """Traffic, energy, delay, wall time, diagnostics; what was not measured is left out.

    Of a single run, what grows evenly or stays the same is left out too: `even_costs_table` has it.
    """
    joules = energy_units(series)
    figures = [
        _cost(series, ["bytes_up", "bytes_down"], "Traffic", text.BYTES, kind="bytes",
              caption="Cumulative traffic of all messages, up (solid) and down (dashed)."),
        None if joules is None else _cost(series, ["energy_j"], "Energy", joules, kind="energy",
              caption=f"Cumulative energy of all transmissions.{_own_unit(series)}"),
        _cost(series, ["delay_s"], "Time to transmit", text.SECONDS, kind="delay",
              caption="Cumulative duration of all transmissions, by radio and wire, without computing time."),
        None if len(series) == 1 else _cost(series, ["wall_time_s"], "Wall time", text.SECONDS, kind="wall",
              caption="Cumulative time of the simulation; it depends on the machine, not on a deployment."),
        _cost(series, ["clip_fraction"], "Clipped messages", ((0.01, "%"),), kind="clip", cumulative=False,
              caption="Share of updates (or gradients) that were clipped; measured by the simulator only."),
        _cost(series, ["noise_std"], "Noise", ((1.0, ""),), kind="noise", cumulative=False,
              caption="Standard deviation of the noise that a round leaves in the global model: it follows "
              "the learning rate and how many take part, too. Measured by the simulator only."),
    ]  # fmt: skip
    return [figure for figure in figures if figure is not None]


def _own_unit(series: Sequence[Series]) -> str:
    """A note on the unit of energy for a radio that is given by gains (docs/radio.md)."""
    if {radio_model(one.first.spec_dict) for one in series} != {"gains"}:
        return ""
    return (
        " The radio is given by gains and SNR limits: the unit is the squared signal relative to the "
        "receiver's noise, not the joule."
    )


def _cost(
    series: Sequence[Series],
    columns: Sequence[str],
    title: str,
    units: Sequence[tuple[float, str]],
    *,
    kind: str,
    caption: str,
    cumulative: bool = True,
) -> Figure | None:
    found = [
        (i, one.name, column, one.curve(column, cumulative=cumulative))
        for i, one in enumerate(series)
        for column in columns
        if column not in unasked_columns(series)
    ]
    found = [entry for entry in found if len(entry[3].rounds)]
    if not found:
        return None
    even = all(grows_evenly(one, column) for one in series for column in columns)
    if cumulative and kind != "wall" and even:
        return None  # the totals say it
    if not cumulative and len(series) == 1 and all(stays_the_same(series[0], column) for column in columns):
        return None
    largest = max(float(np.abs(entry[3].mean).max()) for entry in found)
    size, unit = text.scale(largest, units)
    data: list[dict[str, Any]] = []
    described = []
    for i, run, column, curve in found:
        direction = {"bytes_up": "up", "bytes_down": "down"}.get(column, "")
        name = " ".join(filter(None, [run if len(series) > 1 else "", direction])) or run
        scaled = Curve(curve.rounds, curve.mean / size, curve.low / size, curve.high / size)
        data += line(scaled, name, colour(i), DASHES[columns.index(column)])
        described.append(f"{name}: {text.number(float(scaled.mean[-1]))} {unit} in the last round.")
    axis_title = f"{title.lower()}, {unit}" if unit else title.lower()
    return Figure(
        title=title,
        caption=caption,
        description=f"{title} over rounds. {' '.join(described)}",
        data=data,
        layout=over_legend(300, data, -0.32)
        | {
            "showlegend": len(found) > 1,
            "hovermode": "x unified",
            "xaxis": round_axis(r for *_, curve in found for r in curve.rounds),
            "yaxis": {"title": {"text": axis_title}, "rangemode": "tozero"},
        },
        kind=kind,
    )


def line(curve: Curve, name: str, hex_colour: str, dash: str = "solid") -> list[dict[str, Any]]:
    """The band and the line of a curve; with markers if there are few rounds."""
    shown = text.label(name)
    rounds = curve.rounds.tolist()
    traces: list[dict[str, Any]] = []
    if not np.array_equal(curve.low, curve.high):
        band = {
            "type": "scatter",
            "mode": "lines",
            "line": {"width": 0},
            "hoverinfo": "skip",
            "showlegend": False,
        }
        traces.append(band | {"x": rounds, "y": curve.low.tolist(), "legendgroup": shown})
        traces.append(
            band
            | {
                "x": rounds,
                "y": curve.high.tolist(),
                "fill": "tonexty",
                "fillcolor": faded(hex_colour, 0.18),
                "legendgroup": shown,
            }
        )
    traces.append(
        {
            "type": "scatter",
            "name": shown,
            "legendgroup": shown,
            "mode": mode_of(curve.rounds),
            "x": rounds,
            "y": curve.mean.tolist(),
            "line": {"color": hex_colour, "width": 2, "dash": dash},
            "marker": {"color": hex_colour, "size": 6},
        }
    )
    return traces


def mode_of(rounds: Sequence[float] | np.ndarray[Any, Any]) -> str:
    """Markers on a line of few rounds."""
    return "lines+markers" if len(rounds) <= 30 else "lines"


def _table(curves: Sequence[tuple[str, Curve]], what: str, score: Headline) -> str:
    form = score.text
    rows = [
        (name, text.whole(r), form(m), form((high - low) / 2) if high > low else "")
        for name, curve in curves
        for r, m, low, high in thinned(curve.rounds, curve.mean, curve.low, curve.high)
    ]
    return text.table(
        ["run", "round", what, "± (95 %)"], rows, caption=f"{what} by run and round", numeric=(1, 2, 3)
    )


def thinned(*columns: np.ndarray[Any, Any], most: int = 50) -> list[tuple[float, ...]]:
    """At most ``most`` rows, evenly spaced, including the last one."""
    count = len(columns[0])
    kept = range(count) if count <= most else np.unique(np.linspace(0, count - 1, most).round().astype(int))
    return [tuple(float(column[i]) for column in columns) for i in kept]

"""Figures of accuracy over cumulative costs: energy, time, traffic, uses of subcarriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.curves import line, over_legend, score_axis
from sfumato.report.figures.even_costs import costs_are_alike
from sfumato.report.figures.figure import Figure, colour, log_axis, needs_log_axis
from sfumato.report.results.comparability import energy_units, unasked_columns
from sfumato.report.results.series import Curve, Series
from sfumato.run_folder.headline import Headline, headline_of

USES = ((1.0, ""), (1e3, "thousand"), (1e6, "million"), (1e9, "billion"))


@dataclass(frozen=True)
class _CostMeasure:
    """A cost: the metrics columns that add up to it, its title and its units."""

    name: str
    columns: tuple[str, ...]
    title: str
    units: Sequence[tuple[float, str]]


_COST_MEASURES = (
    _CostMeasure("energy", ("energy_j",), "energy", text.JOULES),
    _CostMeasure("delay", ("delay_s",), "time to transmit", text.SECONDS),
    _CostMeasure("bytes", ("bytes_up", "bytes_down"), "traffic", text.BYTES),
    _CostMeasure("uses", ("channel_uses",), "uses of subcarriers", USES),
)


def accuracy_vs_cost_figures(series: Sequence[Series]) -> list[Figure]:
    """A figure of the headline score for every cost that was measured in a run with evaluations.

    Costs that grow evenly, by the same in every run, are left out: their figures would be that of accuracy
    over rounds with another axis.
    """
    scores = dict.fromkeys(headline_of(one.first.metrics) for one in series)
    unasked = set(unasked_columns(series))
    asked = [kind for kind in _COST_MEASURES if unasked.isdisjoint(kind.columns)]
    drawn = [_figure(series, kind, score) for score in scores for kind in asked]
    return [figure for figure in drawn if figure is not None]


def _figure(series: Sequence[Series], kind: _CostMeasure, score: Headline) -> Figure | None:
    curves = [
        (i, one.name, _against(one, kind, score))
        for i, one in enumerate(series)
        if headline_of(one.first.metrics) == score
    ]
    curves = [(i, name, curve) for i, name, curve in curves if len(curve.rounds)]
    units = energy_units(series) if kind.name == "energy" else kind.units
    if units is None or costs_are_alike(series, *kind.columns):
        return None
    spent = [float(cost) for *_, curve in curves for cost in curve.rounds if cost > 0]
    if not spent:
        return None
    size, unit = text.scale(max(spent), units)
    scaled = [
        (i, name, Curve(curve.rounds / size, curve.mean, curve.low, curve.high)) for i, name, curve in curves
    ]
    # a log axis if the final costs of the runs are far apart
    ends = [float(curve.rounds[-1]) for *_, curve in scaled]
    axis: dict[str, Any] = {
        "title": {"text": " ".join(filter(None, ["cumulative " + kind.title + ",", unit])).rstrip(",")},
        "rangemode": "tozero",
    }
    if needs_log_axis(ends):
        axis |= log_axis(cost / size for cost in spent)
    data = [trace for i, name, curve in scaled for trace in line(curve, name, colour(i))]
    title = score.name[:1].upper() + score.name[1:]
    return Figure(
        title=f"{title} against {kind.title}",
        caption=f"{title} on held-out data over the cumulative {kind.title}; measured by the simulator only.",
        description=f"{title} against {kind.title}. "
        + " ".join(
            f"{name}: {score.text(float(curve.mean[-1]))} for "
            f"{text.quantity(float(curve.rounds[-1]) * size, units)}."
            for _, name, curve in scaled
        ),
        data=data,
        layout=over_legend(340, data, -0.28)
        | {
            "showlegend": len(scaled) > 1,
            "hovermode": "closest",
            "xaxis": axis,
            "yaxis": score_axis(score, scaled),
        },
        kind=f"spending-{kind.name}",
    )


def _against(one: Series, kind: _CostMeasure, score: Headline) -> Curve:
    """A score over cumulative cost (in place of rounds), at the rounds with an evaluation."""
    accuracy = one.curve(score.column)
    totals = [one.curve(column, cumulative=True) for column in kind.columns]
    rounds = accuracy.rounds
    for total in totals:
        rounds = np.intersect1d(rounds, total.rounds)
    at = np.searchsorted(accuracy.rounds, rounds)
    cost = np.zeros(len(rounds))
    for total in totals:
        cost = cost + total.mean[np.searchsorted(total.rounds, rounds)]
    return Curve(cost, accuracy.mean[at], accuracy.low[at], accuracy.high[at])

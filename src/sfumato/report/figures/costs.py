"""Costs: over rounds, against accuracy, and a table of those that grow in proportion to the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.curves import RunCurve, curve_figure, score_axis
from sfumato.report.figures.figure import DASHES, Figure, log_axis, needs_log_axis
from sfumato.report.results.comparability import (
    by_score_and_data,
    energy_text,
    energy_units,
    on_data,
    radio_model,
    unasked_columns,
)
from sfumato.report.results.measured import about_costs, about_noise, about_time, name_of_time, who_measured
from sfumato.report.results.series import Curve, FloatArray, Series
from sfumato.report.results.spec_sections import clip_kind_of, sends_over_the_air
from sfumato.run_folder.headline import Headline

USES = ((1.0, ""), (1e3, "thousand"), (1e6, "million"), (1e9, "billion"))
_CLIPPED = {
    "update": "clipped messages",
    "step": "clipped local steps",
    "example": "clipped gradients of examples",
}
_SAME = 0.01  # of a value
_UNEVEN = 0.05  # of all costs, by which they may differ from a straight line


def grows_evenly(one: Series, *columns: str) -> bool:
    """Whether every round costs nearly the same, the cost being the sum of the metrics ``columns``.

    Its sum over the rounds may differ from a straight line by 5 % of the total. False if nothing was
    measured, or columns were measured in different rounds.
    """
    curves = [one.curve(column, cumulative=True) for column in columns]
    curves = [curve for curve in curves if len(curve.rounds)]
    if not curves or any(len(curve.rounds) != len(curves[0].rounds) for curve in curves):
        return False
    total = np.sum([curve.mean for curve in curves], axis=0)
    line = np.arange(1, len(total) + 1) / len(total)
    return bool(total[-1] > 0 and np.abs(total / total[-1] - line).max() <= _UNEVEN)


def costs_are_alike(series: Sequence[Series], *columns: str) -> bool:
    """Whether the sum of the metrics ``columns`` is nearly the same in all rounds of all runs.

    Means over rounds may differ by 5 %.
    """
    if not all(grows_evenly(one, *columns) for one in series):
        return False
    each = [one.total(*columns).value / max(1, one.rounds_played) for one in series]
    return max(each) <= (1 + _UNEVEN) * min(each)


def stays_the_same(one: Series, column: str) -> bool:
    """Whether a metrics column has one value, to 1 %, in all rounds where it is not 0.

    False for several seeds, and where it was not measured.
    """
    values = one.curve(column).mean
    if len(one.runs) > 1 or not len(values):
        return False
    found = values[values != 0]
    return not len(found) or bool(np.ptp(found) <= _SAME * np.abs(found).max())


def even_costs_table(one: Series) -> str:
    """An HTML table of costs that grow about evenly, of values that hardly change, and of the time it took.

    A row has the mean over rounds and the total. "" where there is none.
    """
    spec, rounds, rows = one.first.spec_dict, max(1, one.rounds_played), list[tuple[str, str, str]]()
    for name, column, units in (
        ("traffic up", "bytes_up", text.BYTES),
        ("traffic down", "bytes_down", text.BYTES),
        ("energy to transmit", "energy_j", ()),
        ("time to transmit", "delay_s", text.SECONDS),
        (name_of_time(one), "wall_time_s", text.SECONDS),
    ):
        if column in unasked_columns([one]):
            continue
        if grows_evenly(one, column) or column == "wall_time_s":
            total = one.total(column).value
            both = (total / rounds, total)
            a_round, all_rounds = (text.quantity(x, units) if units else energy_text(spec, x) for x in both)
            rows.append((name, a_round, all_rounds))
    for name, column, form in (
        (_what_is_clipped([one]), "clip_fraction", text.percent),
        (_what_has_noise(one), "noise_std", text.number),
    ):
        if stays_the_same(one, column):
            values = one.curve(column).mean
            ends = dict.fromkeys(
                form(float(x)) for x in (values[values != 0].min(initial=values.max()), values.max())
            )
            rows.append((name, f"{' to '.join(ends)}{_rounds_that_cost(values)}", "–"))
    if not rows:
        return ""
    caption = (
        "Totals with their mean over rounds, and values that hardly change, which do not add up (–). "
        f"{about_costs(one)}"
    )
    return text.html_table(
        ["", "a round, on average", f"all {rounds} rounds"], rows, caption=caption, numeric=(1, 2)
    )


def _what_is_clipped(series: Sequence[Series]) -> str:
    """The name of ``clip_fraction``, such as ``clipped messages``, by ``privacy.clip.kind``.

    "what was clipped" where runs differ.
    """
    kinds = {clip_kind_of(one.first.spec_dict) for one in series}
    return _CLIPPED[kinds.pop()] if len(kinds) == 1 else "what was clipped"


def _what_has_noise(one: Series) -> str:
    """The name of ``noise_std`` in a table: it is of the global model, or over groups of a group's."""
    family = one.network.family
    whose = "a group's model" if family is not None and family.devices_observe else "the global model"
    return f"noise in each parameter of {whose}, standard deviation"


def _rounds_that_cost(values: FloatArray) -> str:
    """The text " in N rounds, else 0" where some but not all ``values`` are 0; else ""."""
    some = int(np.count_nonzero(values))
    return "" if some in (0, len(values)) else f" in {text.whole(some)} rounds, else 0"


def cost_figures(series: Sequence[Series]) -> list[Figure]:
    """A list of figures of traffic, energy, delay, wall time and diagnostics of the runs in ``series``.

    What was not measured is left out. Of a single run, what grows evenly or stays the same is left out too:
    `even_costs_table` has it.
    """
    joules = energy_units(series)
    figures = [
        _cost_figure(series, ["bytes_up", "bytes_down"], "Traffic", text.BYTES, kind="bytes",
              caption="Cumulative traffic of all messages, up (solid) and down (dashed)."),
        None if joules is None else _cost_figure(series, ["energy_j"], "Energy", joules, kind="energy",
              caption=f"Cumulative energy of all transmissions.{_energy_unit_note(series)}"),
        _cost_figure(series, ["delay_s"], "Time to transmit", text.SECONDS, kind="delay",
              caption="Cumulative duration of all transmissions, by radio and wire, without computing time."),
        None if len(series) == 1 else _cost_figure(series, ["wall_time_s"], "Wall time", text.SECONDS,
              kind="wall",
              caption=about_time(series)),
        _cost_figure(series, ["clip_fraction"], text.title(_what_is_clipped(series)), ((0.01, "%"),),
              kind="clip", cumulative=False, caption="Measured by the simulator only."),
        _cost_figure(series, ["noise_std"], "Noise", ((1.0, ""),), kind="noise", cumulative=False,
              caption="Standard deviation of the noise that a round leaves in the global model"
              f"{_what_noise_follows(series)} {about_noise(series)}"),
    ]  # fmt: skip
    return [figure for figure in figures if figure is not None]


def _what_noise_follows(series: Sequence[Series]) -> str:
    """The end of a sentence on noise in the global model: what it depends on beside multipliers."""
    if all(sends_over_the_air(one.first.spec_dict) for one in series):
        return ": the receiver's, over the amplitude of messages, which the weakest channel limits."
    if any(clip_kind_of(one.first.spec_dict) in ("step", "example") for one in series):
        return ": it depends on the learning rate and on how many take part, too."
    return ": it depends on how many take part, too."


def _energy_unit_note(series: Sequence[Series]) -> str:
    """A sentence that energy has no joules, where every radio is given by gains (docs/radio.md); else "".

    It stands after a space.
    """
    if {radio_model(one.first.spec_dict) for one in series} != {"gains"}:
        return ""
    return (
        " The radio is given by gains and SNR limits: the unit is the squared signal relative to the "
        "receiver's noise, not the joule."
    )


def _cost_figure(
    series: Sequence[Series],
    columns: Sequence[str],
    title: str,
    units: Sequence[tuple[float, str]],
    *,
    kind: str,
    caption: str,
    cumulative: bool = True,
) -> Figure | None:
    """Curves over rounds of metrics ``columns``; ``None`` where none was measured or no spec asks for them.

    ``None``, too, where totals or `even_costs_table` say it all.

    Args:
        series: the runs of the page.
        columns: of the metrics.
        title: of the figure.
        units: (size, name), smallest first, of which one that fits is taken.
        kind: name of the figure for style sheets.
        caption: of the figure.
        cumulative: add up over the rounds.
    """
    found = [
        (i, one.name, column, one.curve(column, cumulative=cumulative))
        for i, one in enumerate(series)
        for column in columns
        if column not in unasked_columns([one])
    ]
    found = [entry for entry in found if len(entry[3].rounds)]
    if not found:
        return None
    even = all(grows_evenly(one, column) for one in series for column in columns)
    if cumulative and kind != "wall" and even:
        return None  # the totals say it
    if not cumulative and len(series) == 1 and all(stays_the_same(series[0], column) for column in columns):
        return None
    size, unit = text.scale(max(float(np.abs(entry[3].mean).max()) for entry in found), units)
    drawn = []
    for i, run, column, curve in found:
        direction = {"bytes_up": "up", "bytes_down": "down"}.get(column, "")
        name = " ".join(filter(None, [run if len(series) > 1 else "", direction])) or run
        scaled = Curve(curve.rounds, curve.mean / size, curve.low / size, curve.high / size)
        drawn.append(RunCurve(i, name, scaled, DASHES[columns.index(column)]))
    axis_title = f"{title.lower()}, {unit}" if unit else title.lower()
    when = "after all rounds" if cumulative else "in the last round"
    ends = (f"{one.name}: {text.number(one.last)} {unit} {when}." for one in drawn)
    return curve_figure(
        drawn,
        title=title,
        caption=caption,
        description=f"{title} over rounds. {' '.join(ends)}",
        y_axis={"title": {"text": axis_title}, "rangemode": "tozero"},
        height=300,
        legend_at=-0.32,
        kind=kind,
    )


class _CostMeasure(NamedTuple):
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
    """A list of figures of the headline score against every cost that was measured, over ``series``.

    Only runs with evaluations are drawn. Costs that grow evenly, by the same in every run, are left out:
    their figures would be that of accuracy over rounds with another axis.
    """
    unasked = set(unasked_columns(series))
    asked = [kind for kind in _COST_MEASURES if unasked.isdisjoint(kind.columns)]
    drawn = [
        _score_over_cost_figure(series, runs, kind, score, on_data(series, data))
        for (score, data), runs in by_score_and_data(series).items()
        for kind in asked
    ]
    return [figure for figure in drawn if figure is not None]


def _score_over_cost_figure(
    series: Sequence[Series],
    judged: Sequence[tuple[int, Series]],
    kind: _CostMeasure,
    score: Headline,
    where: str,
) -> Figure | None:
    """A score over one cumulative cost, a curve for each run; ``None`` where no run has both.

    Args:
        series: all runs of the report.
        judged: those that are drawn, with their numbers.
        kind: the cost.
        score: the score.
        where: `on_data`, in the title.
    """
    asked = [(i, one) for i, one in judged if set(unasked_columns([one])).isdisjoint(kind.columns)]
    curves = [(i, one.name, _score_over_cost(one, kind, score)) for i, one in asked]
    least = 1 if len(series) > 1 else 2  # a single point of a single run shows nothing
    curves = [(i, name, curve) for i, name, curve in curves if len(curve.rounds) >= least]
    units = energy_units(series) if kind.name == "energy" else kind.units
    if units is None or costs_are_alike(series, *kind.columns):
        return None
    spent = [float(cost) for *_, curve in curves for cost in curve.rounds if cost > 0]
    if not spent:
        return None
    size, unit = text.scale(max(spent), units)
    scaled = [
        RunCurve(i, name, Curve(curve.rounds / size, curve.mean, curve.low, curve.high))
        for i, name, curve in curves
    ]
    across = " ".join(filter(None, [f"cumulative {kind.title},", unit])).rstrip(",")
    axis = {"title": {"text": across}, "rangemode": "tozero"}
    if needs_log_axis(float(one.curve.rounds[-1]) for one in scaled):  # the final costs are far apart
        axis |= log_axis(cost / size for cost in spent)
    title, whose = text.title(score.name), who_measured([one for _, one in asked])
    costs = (text.quantity(float(one.curve.rounds[-1]) * size, units) for one in scaled)
    ends = (
        f"{one.name}: {score.text(one.last)} for {cost}." for one, cost in zip(scaled, costs, strict=True)
    )
    return curve_figure(
        scaled,
        title=f"{title}{where} against {kind.title}",
        caption=f"{title} on held-out data over the cumulative {kind.title}; measured by {whose}.",
        description=f"{title} against {kind.title}. {' '.join(ends)}",
        x_axis=axis,
        y_axis=score_axis(score, scaled),
        height=340,
        legend_at=-0.28,
        kind=f"spending-{kind.name}",
    )


def _score_over_cost(one: Series, kind: _CostMeasure, score: Headline) -> Curve:
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

"""The figures of ε so far over rounds, towards every watched observer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    DASHES,
    Figure,
    Json,
    colour,
    epsilon_axis,
    evenly_spaced_rows,
    line_mode,
    over_legend,
    round_axis,
)
from sfumato.report.results.network import parties_in_words, read_network
from sfumato.report.results.series import FloatArray, Series
from sfumato.report.results.summary import unit_of_run
from sfumato.run_folder.metrics_table import EPSILON_PREFIX

_STRIP = 0.1  # share of the panel that the strip for infinities takes


class _EpsilonLine(NamedTuple):
    """ε towards one observer over the rounds of one run."""

    number: int  # of the run in the report
    run: str
    observer: str  # or several towards whom ε is the same
    rounds: FloatArray
    values: FloatArray  # infinite where nothing is guaranteed
    unit: str  # the kind of unit that it is about
    is_spent: bool  # whether it is what control has spent of its budget


def epsilon_figures(series: Sequence[Series]) -> list[Figure]:
    """ε so far over rounds, a line for every run and watched observer; a figure for each kind of unit.

    [] without any finite ε. Infinite values are drawn in a strip above the finite ones.
    """
    lines = [
        _EpsilonLine(
            *(
                number,
                one.name,
                parties_in_words(names.titled(observer)),
                *one.worst(EPSILON_PREFIX + observer),
            ),
            unit_of_run(one.first),
            bool(one.first.spec_dict.get("control")),
        )
        for number, one in enumerate(series)
        for names in [read_network(one.first.spec_dict)]
        for observer in one.observers
    ]
    by_unit: dict[str, list[_EpsilonLine]] = {}
    for line in _without_doubles([line for line in lines if len(line.rounds)]):
        by_unit.setdefault(line.unit, []).append(line)
    return [
        _epsilon_figure(
            shown, series, f"ε of one {unit} over rounds" if len(by_unit) > 1 else "ε over rounds"
        )
        for unit, shown in by_unit.items()
        if any(np.isfinite(line.values).any() for line in shown)
    ]


def _epsilon_figure(lines: Sequence[_EpsilonLine], series: Sequence[Series], title: str) -> Figure:
    """The figure of lines of one kind of unit; ``series``: all runs of the report."""
    data = _epsilon_traces(lines, several=len(series) > 1)
    deltas = text.join_names(
        list(dict.fromkeys(text.number(series[line.number].first.privacy.delta) for line in lines))
    )
    return Figure(
        title=title,
        caption=(
            f"Privacy loss up to each round: the worst {lines[0].unit} towards each watched observer (and "
            f"the worst seed), at δ = {deltas}. ∞: no guarantee.{_note_on_budget(lines)}"
        ),
        description="Epsilon over rounds. " + " ".join(
            f"{line.run}, observer {line.observer}: {text.epsilon(float(line.values[-1]))} in the end."
            for line in lines
        ),
        data=data,
        layout=_epsilon_layout(lines, data),
        table=text.html_table(
            ["run", "observer", "round", "ε"],
            [
                (line.run, line.observer, text.whole(r), text.epsilon(float(v)))
                for line in lines
                for r, v in evenly_spaced_rows(line.rounds, line.values)
            ],
            caption="ε so far, by run, observer and round",
            numeric=(2, 3),
        ),
        kind="epsilon",
    )  # fmt: skip


def _without_doubles(lines: Sequence[_EpsilonLine]) -> list[_EpsilonLine]:
    """The lines; those of one run that read the same in every round are one, of several observers.

    Its values are the largest of theirs, which differ in digits that are not shown.
    """
    alike: dict[tuple[int, tuple[float, ...], tuple[str, ...]], list[_EpsilonLine]] = {}
    for line in lines:
        read = tuple(line.rounds.tolist()), tuple(map(text.epsilon, line.values.tolist()))
        alike.setdefault((line.number, *read), []).append(line)
    return [
        same[0]._replace(
            observer=text.join_names([line.observer for line in same], len(same)),
            values=np.max([line.values for line in same], axis=0),
        )
        for same in alike.values()
    ]


def _note_on_budget(lines: Sequence[_EpsilonLine]) -> str:
    """A sentence on curves of what control has spent of its budget; "" if there is none."""
    if not any(line.is_spent for line in lines):
        return ""
    return (
        " With control a curve is what the rounds have spent so far; the guarantee is the budget, which was "
        "given before the run, so it can be larger."
    )


def _epsilon_traces(lines: Sequence[_EpsilonLine], *, several: bool) -> list[Json]:
    """Plotly traces of the lines: finite ε on the first y axis, infinite ones on the second at own heights.

    ``several``: there are several runs, so that names and colours are theirs.
    """
    observers = list(dict.fromkeys(line.observer for line in lines))
    data: list[Json] = []
    height = 0
    for line in lines:
        name = f"{line.run} → {line.observer}" if several else line.observer
        at = observers.index(line.observer)
        style = {
            "color": colour(line.number if several else at),
            "dash": DASHES[at % len(DASHES)],
            "width": 2,
        }
        marker = {"color": style["color"], "size": 6}
        common: Json = {"type": "scatter", "legendgroup": name, "mode": line_mode(line.rounds)}
        common |= {"line": style, "marker": marker}
        is_infinite = np.isinf(line.values)
        if not is_infinite.all():
            rounds, values = line.rounds[~is_infinite].tolist(), line.values[~is_infinite].tolist()
            texts = {"text": list(map(text.epsilon, values)), "hovertemplate": "ε = %{text}"}
            data.append(common | {"name": text.label(name), "x": rounds, "y": values} | texts)
        if is_infinite.any():
            rounds = line.rounds[is_infinite].tolist()
            strip = {"y": [height] * len(rounds), "yaxis": "y2", "hovertemplate": "ε = ∞"}
            data.append(common | {"name": f"{text.label(name)}: ∞", "x": rounds} | strip)
            height += 1
    return data


def _epsilon_layout(lines: Sequence[_EpsilonLine], data: Sequence[Mapping[str, Any]]) -> Json:
    """Plotly's layout: a y axis for finite values and, where traces ``data`` have any, a strip for
    infinite ones.
    """
    finite = [float(v) for line in lines for v in line.values if math.isfinite(v)]
    infinite = sum(bool(np.isinf(line.values).any()) for line in lines)
    layout = over_legend(380, data) | {
        "showlegend": True,
        "hovermode": "x unified",
        "xaxis": round_axis(r for line in lines for r in line.rounds) | {"anchor": "y"},
    }
    top = 1.0
    if infinite:
        strip = min(0.35, _STRIP + 0.03 * (infinite - 1)) if finite else 1.0
        top = 1.0 - strip - 0.04
        layout["yaxis2"] = {
            "domain": [1.0 - strip, 1.0],
            "range": [-0.7, infinite - 0.3],
            **{"tickvals": [(infinite - 1) / 2], "ticktext": ["∞"], "tickfont": {"size": 18}},
            **{"showgrid": False, "zeroline": False, "fixedrange": True},
        }
    if finite:
        layout["yaxis"] = epsilon_axis(finite, "ε so far") | {"domain": [0, top]}
    else:
        layout["xaxis"]["anchor"] = "y2"
    return layout

"""The figures of ε so far over rounds, towards every watched observer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    DASHES,
    BoundingLine,
    Figure,
    Json,
    colour,
    epsilon_axis,
    evenly_spaced_rows,
    line_mode,
    over_legend,
    round_axis,
)
from sfumato.report.results.comparability import relation_of
from sfumato.report.results.network import GroupNetwork
from sfumato.report.results.observer_labels import watched_title
from sfumato.report.results.series import FloatArray, Series
from sfumato.report.results.summary import unit_of_run
from sfumato.report.results.watched_epsilons import budgets
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
    relation: str  # that it is under
    budget: float  # that control was given; NaN without control
    trusted: bool  # some units trust the observer with raw updates, and do not count


def epsilon_figures(series: Sequence[Series]) -> list[Figure]:
    """A list of figures of the ε spent so far over rounds, one for each kind of unit and relation.

    A figure has a line for every run of ``series`` and watched observer. Infinite values are drawn in a strip
    above the finite ones. [] without any finite ε.
    """
    lines = [
        _EpsilonLine(
            *(
                number,
                one.name,
                watched_title(names, observer),
                *one.worst(EPSILON_PREFIX + observer),
            ),
            unit_of_run(one.first),
            relation_of(one),
            given[observer].given if observer in given else math.nan,
            one.network.is_trusted(observer),
        )
        for number, one in enumerate(series)
        for names, given in [(one.network, budgets(one))]
        for observer in one.observers
    ]
    by_kind: dict[tuple[str, str], list[_EpsilonLine]] = {}
    for line in _without_doubles([line for line in lines if len(line.rounds)]):
        by_kind.setdefault((line.unit, line.relation), []).append(line)
    units, relations = ({kind[at] for kind in by_kind} for at in range(2))
    return [
        _epsilon_figure(
            shown,
            series,
            f"ε{f' of one {unit}' if len(units) > 1 else ''} over rounds"
            f"{f' under {relation}' if len(relations) > 1 else ''}",
        )
        for (unit, relation), shown in by_kind.items()
        if any(np.isfinite(line.values).any() for line in shown)
    ]


def endless_observers(one: Series) -> list[str]:
    """A list of the watched observers towards whom the worst unit of a run never has a finite ε.

    Names are as in ``watch``, such as ``cloud``; [] without any.
    """
    curves = {observer: one.worst(EPSILON_PREFIX + observer)[1] for observer in one.observers}
    return [observer for observer, values in curves.items() if len(values) and np.isinf(values).all()]


def _epsilon_figure(lines: Sequence[_EpsilonLine], series: Sequence[Series], title: str) -> Figure:
    """The figure of lines of one kind of unit; ``series``: all runs of the report."""
    data = _epsilon_traces(lines, several=len(series) > 1)
    alone = f", towards {lines[0].observer}" if len(lines) == 1 else ""
    deltas = text.join_names(
        list(dict.fromkeys(text.number(series[line.number].first.privacy.delta) for line in lines))
    )
    return Figure(
        title=title + alone,
        caption=(
            f"Privacy loss up to each round: the largest ε of a {lines[0].unit} towards the observer"
            f"{_notes(lines, series)}, at δ = {deltas}."
            f"{_note_on_trust(lines)}{_note_on_watched_worker(lines, series)}{_note_on_rounds(lines)}"
            f"{_note_on_budget(lines)}{_note_on_covered(lines)}"
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
    alike: dict[tuple[object, ...], list[_EpsilonLine]] = {}
    for line in lines:
        alike.setdefault((line.number, text.epsilon(line.budget), line.trusted, _as_read(line)), []).append(
            line
        )
    return [
        same[0]._replace(
            observer=text.join_names([line.observer for line in same], len(same)),
            values=np.max([line.values for line in same], axis=0),
        )
        for same in alike.values()
    ]


def _as_read(line: _EpsilonLine) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The rounds of a line and its values as they are written, by which lines are compared."""
    return tuple(line.rounds.tolist()), tuple(map(text.epsilon, line.values.tolist()))


def _note_on_covered(lines: Sequence[_EpsilonLine]) -> str:
    """A sentence on curves of different runs of which only the last drawn is seen; "" if there are none."""
    alike: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for line in lines:
        if np.isfinite(line.values).all():
            alike.setdefault(_as_read(line), []).append(f"{line.run} → {line.observer}")
    same = [text.join_names(names, len(names)) for names in alike.values() if len(names) > 1]
    return f" Equal, so that one curve covers the other: {'; '.join(same)}." if same else ""


def _notes(lines: Sequence[_EpsilonLine], series: Sequence[Series]) -> str:
    """What a caption adds on seeds, and on ∞ where it is drawn."""
    seeds = " (of the worst seed)" if any(len(one.runs) > 1 for one in series) else ""
    endless = any(np.isinf(line.values).any() for line in lines)
    return seeds + (" (∞: no guarantee)" if endless else "")


def _note_on_rounds(lines: Sequence[_EpsilonLine]) -> str:
    """A sentence on rounds after which ε is not computed, as that takes long; "" where it is after all."""
    if not any(_is_stepped(line) for line in lines):
        return ""
    return (
        " ε is not computed after every round: between two computed rounds the curve shows the value of the "
        "later one, an upper bound."
    )


def _note_on_trust(lines: Sequence[_EpsilonLine]) -> str:
    """A sentence on units that do not count, as they trust the observer; "" if there are none."""
    several = len({line.run for line in lines}) > 1
    trusted = [
        f"{line.observer}{f' in {line.run}' if several else ''}"
        for line in lines
        if line.trusted and np.isfinite(line.values).any()
    ]
    if not trusted:
        return ""
    return (
        f" Towards {text.join_names(trusted)} it is the largest of the {lines[0].unit}s that do not trust "
        "the observer with raw updates: those that do have no guarantee."
    )


def _note_on_watched_worker(lines: Sequence[_EpsilonLine], series: Sequence[Series]) -> str:
    """A sentence on why the single observer of a single run over groups is a certain worker; else ""."""
    one = series[lines[0].number]
    chosen = isinstance(one.network.shape, GroupNetwork) and not one.first.spec_dict.get("watch")
    if len(lines) > 1 or not chosen:
        return ""
    return f" Of all workers, {lines[0].observer} is one that learns most in the end."


def _is_stepped(line: _EpsilonLine) -> bool:
    """Whether rounds before the last of a line are left out."""
    return bool(len(line.rounds) < line.rounds[-1])


def _note_on_budget(lines: Sequence[_EpsilonLine]) -> str:
    """A sentence on the budgets of adaptive control; "" if there is none."""
    if all(math.isnan(line.budget) for line in lines):
        return ""
    return " The dotted line is the budget of adaptive control: the guarantee. The curve is what was spent."


def _epsilon_traces(lines: Sequence[_EpsilonLine], *, several: bool) -> list[Json]:
    """Plotly traces of the lines: finite ε on the first y axis, infinite ones on the second at own heights.

    ``several``: there are several runs, so that names and colours are theirs.
    """
    data: list[Json] = []
    height = 0
    for place, line in enumerate(lines):
        name = f"{line.run} → {line.observer}" if several else line.observer
        of_run = [other for other in lines[:place] if other.number == line.number]
        at = len(of_run)
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
            known = line.rounds[~is_infinite].tolist(), line.values[~is_infinite].tolist()
            path = BoundingLine.of(*known)
            texts: Json = {"text": list(map(text.epsilon, path.values)), "hovertemplate": "ε = %{text}"}
            texts |= {"marker": marker | {"opacity": path.opacity}, "line": style | {"shape": path.shape}}
            named = {"name": text.plotly_label(name), "x": path.rounds, "y": path.values}
            data.append(common | named | texts)
        if math.isfinite(line.budget):
            level: Json = {"x": line.rounds[[0, -1]].tolist(), "y": [line.budget] * 2, "mode": "lines"}
            level |= {"line": style | {"dash": "dot", "width": 1.5}, "showlegend": False}
            data.append(common | level | {"hoverinfo": "skip"})
        if is_infinite.any():
            rounds = line.rounds[is_infinite].tolist()
            strip = {"y": [height] * len(rounds), "yaxis": "y2", "hovertemplate": "ε = ∞"}
            data.append(common | {"name": f"{text.plotly_label(name)}: ∞", "x": rounds} | strip)
            height += 1
    return data


def _epsilon_layout(lines: Sequence[_EpsilonLine], data: Sequence[Mapping[str, Any]]) -> Json:
    """Plotly's layout: a y axis for finite values, and a strip above it for infinite ones, if there are any.

    ``data``: the traces of ``lines``.
    """
    finite = [float(v) for line in lines for v in (*line.values, line.budget) if math.isfinite(v)]
    infinite = sum(bool(np.isinf(line.values).any()) for line in lines)
    layout = over_legend(380, data) | {
        "showlegend": len(lines) > 1,
        "hovermode": "x unified",
        "xaxis": round_axis(r for trace in data for r in trace["x"]) | {"anchor": "y"},
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

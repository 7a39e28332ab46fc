"""The heatmap of ε between workers (Fig. 4 of the DP-OGL paper)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sfumato.privacy.claim import claim_holds
from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    ALL_RED,
    EPSILON_ENDS,
    EPSILON_SCALE,
    Figure,
    Json,
    epsilon_bar,
    epsilon_ends,
    epsilon_shade,
)
from sfumato.report.figures.heatmap import in_words
from sfumato.report.results.claim_words import formula_in_words
from sfumato.report.results.grouped_run import GroupedRun, WorkerPair

Pairs: TypeAlias = list[list[WorkerPair | None]]
"""By target and observer; ``None`` where there is no such pair."""

_TITLE = "ε between any two workers"
BUTTONS: Json = {
    **{"bgcolor": "#F4F4F2", "bordercolor": "#9AA1AA", "borderwidth": 1, "showactive": True},
    **{"font": {"color": "#1D2126", "size": 12}, "pad": {"t": 0, "b": 8, "l": 0, "r": 0}},
    **{"xanchor": "left", "yanchor": "bottom", "x": 0},
}


def workers_html(run: GroupedRun, place: Callable[[Figure], str]) -> str:
    """HTML of ε between any two workers: the figure, or a folded table where it would have one colour.

    It would where every finite ε is 100 or more. ``place``: puts a figure on the page and returns its HTML.
    """
    pairs = pairs_of_cells(run)
    known = [pair.epsilon for row in pairs for pair in row if pair is not None]
    finite = [value for value in known if value < math.inf]
    if not finite or min(finite) < 10 ** EPSILON_ENDS[1]:
        return place(worker_heatmap_figure(run, pairs))
    least, most = text.epsilon(min(finite)), text.epsilon(max(finite))
    said = (
        f"Every finite ε is between {least} and {most}, so that a heatmap would have one colour; the table "
        "has them by the groups of both workers."
    )
    folded = f"<details><summary>Show the numbers</summary>{_pair_table(run)}</details>"
    return f"<h3>ε between workers, by their groups</h3>{text.paragraphs([said])}{folded}"


def worker_heatmap_figure(run: GroupedRun, pairs: Pairs) -> Figure:
    """A heatmap of ε for every ordered pair of workers; buttons switch to the ε that papers claim.

    Of many workers one for every set of groups. ``pairs``: of all its cells, from `pairs_of_cells`.
    """
    workers = run.drawn_workers.tolist()
    views = ["rigorous", *run.claims]
    arrays = {view: _epsilon_array(pairs, view) for view in views}
    rigorous, ends = arrays["rigorous"], _colour_ends(arrays)
    names = [_worker_title(run, worker) for worker in workers]
    data = [trace for view in views for trace in _traces(pairs, view, names, ends)]
    classes = "" if run.draws_every_worker else ", one worker for every set of groups"
    low, high = _range_as_text(rigorous)
    red = any(np.isinf(values).any() for values in arrays.values())
    return Figure(
        title=_TITLE,
        caption=(
            "What the worker of a column can learn at most about all data of the worker of a row"
            f"{classes}, as ε at δ = {text.number(run.delta)}; Fig. 4 of the paper. "
            f"Darker cells have a larger ε{', red cells no guarantee' if red else ''}; "
            f"the diagonal is empty{', and ε = 0 has the lightest colour' if _has_zero(arrays) else ''}."
            + (
                " The buttons switch to the paper's claims: a cell that becomes lighter has a claim that is "
                "not proved here. Claims beyond the ends of the colours have the colour of that end."
                if run.claims
                else ""
            )
        ),
        description=(
            f"Heatmap of epsilon for {text.whole(len(workers))} by {text.whole(len(workers))} workers, "
            f"from {low} to {high}."
        ),
        data=data,
        layout=_layout(run, names, data, ends, from_zero=_has_zero(arrays)),
        table=_pair_table(run),
        kind="workers",
        min_width=560,
    )


def _has_zero(arrays: Mapping[str, Any]) -> bool:
    """Whether any exact ε, or claimed one, is 0."""
    return any(bool((values == 0).any()) for values in arrays.values())


def _colour_ends(arrays: Mapping[str, Any]) -> tuple[float, float]:
    """Ends of the colour scale, as logarithms to base 10, by exact ε; lower if some ε are 0.

    ε = 0 then has a colour of its own. ``arrays``: ε of all pairs, exact (``rigorous``) and by each claim.
    """
    low, high = epsilon_ends(arrays["rigorous"].flat)
    if (low, high) == EPSILON_ENDS or not _has_zero(arrays):
        return low, high
    return low - max(0.3, high - low), high


def _traces(pairs: Pairs, view: str, names: Sequence[str], ends: tuple[float, float]) -> Iterator[Json]:
    """The cells of one view with a finite ε, and in red those without a guarantee.

    Args:
        pairs: by target and observer.
        view: ``rigorous``, or the name of a claim.
        names: of the workers.
        ends: of the colour scale.
    """
    values = _epsilon_array(pairs, view)
    gap = 0 if len(names) > 40 else 1
    kind = "rigorous" if view == "rigorous" else "claimed"
    hover = f"about %{{y}}<br>observer %{{x}}<br>ε = <b>%{{text}}</b> ({kind})<br>%{{customdata}}"
    common = {
        **{"type": "heatmap", "name": view, "x": list(names), "y": list(names), "xgap": gap, "ygap": gap},
        **{"visible": view == "rigorous", "hoverongaps": False, "hovertemplate": f"{hover}<extra></extra>"},
    }
    shades = np.array([[epsilon_shade(value, ends) for value in row] for row in values], dtype=float)
    finite = _heatmap_cells(np.where(np.isinf(values), np.nan, shades), values, pairs, view)
    yield common | finite | {"coloraxis": "coloraxis"}
    if np.isinf(values).any():
        red = np.where(np.isinf(values), 1.0, np.nan)
        yield common | _heatmap_cells(red, values, pairs, view) | ALL_RED


def _layout(
    run: GroupedRun,
    names: Sequence[str],
    data: Sequence[Json],
    ends: tuple[float, float],
    *,
    from_zero: bool,
) -> Json:
    """Plotly's layout: axes with some workers' names, the colour scale, and a button for every view.

    Args:
        names: of the workers in the figure.
        data: the traces, of which buttons show some.
        ends: of the colour scale.
        from_zero: whether its lower end is the colour of ε = 0.
    """
    ticks, workers = _ticks(len(names)), run.drawn_workers.tolist()
    titles = [run.worker_title(workers[t]) for t in ticks]
    axis = {"type": "category", "tickvals": [names[t] for t in ticks], "ticktext": titles, "tickangle": 0}
    axis |= {"constrain": "domain", "fixedrange": False}
    axis |= dict.fromkeys(("showgrid", "showline", "showspikes"), False)
    down = {"title": {"text": "worker that ε is about"}, "scaleanchor": "x", "autorange": "reversed"}
    layout: Json = {
        "height": 660,
        "margin": {"l": 64, "r": 16, "t": 56 if run.claims else 16, "b": 56},
        "xaxis": axis | {"title": {"text": "observer (another worker)"}},
        "yaxis": axis | down,
        "coloraxis": {
            **{"cmin": ends[0], "cmax": ends[1]},
            **{"colorscale": EPSILON_SCALE, "colorbar": epsilon_bar(ends, from_zero=from_zero)},
        },
    }
    if run.claims:
        shown = {view: [trace["name"] == view for trace in data] for view in ["rigorous", *run.claims]}
        buttons = [
            {
                "label": text.plotly_label(formula_in_words(view)),
                "method": "restyle",
                "args": [{"visible": visible}],
            }
            for view, visible in shown.items()
        ]
        row = {"type": "buttons", "direction": "right", "y": 1.01, "buttons": buttons}
        layout["updatemenus"] = [BUTTONS | row]
    return layout


def pairs_of_cells(run: GroupedRun) -> Pairs:
    """The pair of every cell of the heatmap, by target and observer, in the order of the drawn workers.

    ``None`` on the diagonal, unless a cell stands for several workers: then it is that of two of these.
    """
    workers = run.drawn_workers.tolist()
    return [[_pair_of_cell(run, unit, observer) for observer in workers] for unit in workers]


def _pair_of_cell(run: GroupedRun, unit: int, observer: int) -> WorkerPair | None:
    """The privacy of ``unit`` towards ``observer``.

    On the diagonal, that of two workers in the same groups if a cell stands for several workers; else
    ``None``.
    """
    if unit == observer:
        others = np.flatnonzero(run.releases.kinds.of == run.releases.kinds.of[unit])
        others = others[others != unit]
        if run.draws_every_worker or not len(others):
            return None
        observer = int(others[0])
    return run.pair(unit, observer)


def _epsilon_array(pairs: Pairs, view: str) -> Any:
    """ε by target and observer, ``[targets, observers]``; NaN where there is none.

    ``view``: "rigorous", or the name of a claim.
    """

    def value(pair: WorkerPair | None) -> float:
        """ε of a pair in this view; NaN where there is none."""
        if pair is None:
            return math.nan
        return pair.epsilon if view == "rigorous" else pair.claimed.get(view, math.nan)

    return np.array([[value(pair) for pair in row] for row in pairs], dtype=float)


def _heatmap_cells(z: Any, epsilons: Any, pairs: Pairs, view: str) -> Json:
    """``z``, ``text`` and ``customdata`` of a Plotly heatmap; blank where ``z`` is NaN.

    Args:
        z: values on the colour scale.
        epsilons: ε that are written.
        view: "rigorous", or the name of a claim, for hover texts.
    """
    blank = np.isnan(z)
    return {
        "z": [[None if math.isnan(v) else round(float(v), 4) for v in row] for row in z],
        "text": [
            ["" if none else text.epsilon(float(v)) for v, none in zip(row, nones, strict=True)]
            for row, nones in zip(epsilons, blank, strict=True)
        ],
        "customdata": [
            ["" if none else _pair_details(pair, view) for pair, none in zip(row, nones, strict=True)]
            for row, nones in zip(pairs, blank, strict=True)
        ],
    }


def _worker_title(run: GroupedRun, worker: int) -> str:
    """The title of a worker with its groups, ``3 (in groups 0 and 1)``, and how many workers are like it."""
    groups = run.groups_of(worker)
    listed = text.join_names(list(map(str, groups)), 6)
    size = int(run.releases.kinds.size[run.releases.kinds.of[worker]])
    like = "" if run.draws_every_worker or size == 1 else f" and {text.whole(size - 1)} like it"
    called = run.plan.parties.titled(f"device:{worker}")
    return f"{called}{like} (in {text.pluralise('group', len(groups))} {listed})"


def _pair_details(pair: WorkerPair | None, view: str) -> str:
    """The hover text of one pair of workers, in the view "rigorous" or of a claim; "" without a pair."""
    if pair is None:
        return ""
    if view != "rigorous":
        holds = claim_holds(pair.claimed.get(view, math.inf), pair.epsilon)
        return f"rigorous {text.epsilon(pair.epsilon)}{'' if holds else ': the claim is not proved'}"
    if pair.hops is None:
        return "not connected"
    away = "a common group" if pair.hops == 0 else f"{pair.hops} {text.pluralise('group', pair.hops)} away"
    facts = f"{away} · {text.whole(pair.releases)} releases · charged: {in_words(pair.bound)}"
    claimed = ", ".join(text.number(value) for value in pair.claimed.values())
    return f"{facts}<br>claimed {claimed}" if claimed else facts


def _range_as_text(z: Any) -> tuple[str, str]:
    """The least and the largest value that is not NaN, as text; "nothing" twice where all are."""
    measured = z[~np.isnan(z)]
    if not measured.size:
        return "nothing", "nothing"
    return text.epsilon(float(measured.min())), text.epsilon(float(measured.max()))


def _ticks(count: int) -> list[int]:
    """Positions, from 0, of at most 20 ticks on an axis of ``count`` rows; every 50th of more than 1,000."""
    step = next(s for s in (1, 2, 5, 10, 20, 50) if count / s <= 20 or s == 50)
    return list(range(0, count, step))


def _pair_table(run: GroupedRun) -> str:
    """An HTML table of ε between every two classes of workers that are drawn, the largest ε first."""
    kinds, rows = np.unique(run.releases.kinds.of[run.drawn_workers]).tolist(), []
    for a in kinds:
        for b in kinds:
            if a == b and int(run.releases.kinds.size[a]) == 1:
                continue
            unit = int(run.releases.kinds.first[a])
            members = np.flatnonzero(run.releases.kinds.of == b)
            pair = run.pair(unit, int(members[members != unit][0]))
            groups = [text.join_names(list(map(str, run.groups_of(int(w)))), 6) for w in (unit, members[0])]
            rows.append((pair.epsilon, groups, pair))
    rows.sort(key=lambda row: -row[0])
    left = len(rows) - 100
    titles = ("groups of the worker", "of the observer", "groups away", "releases", "charged", "ε")
    return text.html_table(
        [*titles, *(f"ε, {formula_in_words(name)}" for name in run.claims)],
        [
            (
                *groups, "–" if pair.hops is None else pair.hops, text.whole(pair.releases),
                in_words(pair.bound) if pair.epsilon < math.inf else "–",
                text.epsilon(pair.epsilon),
                *(text.number(pair.claimed[n]) if n in pair.claimed else "–" for n in run.claims),
            )
            for _, groups, pair in rows[:100]
        ],
        caption=f"ε by the groups of both workers (δ = {text.number(run.delta)})"
        + (f" (the 100 with the largest ε; {left} more)" if left > 0 else ""),
        numeric=tuple(range(2, 6 + len(run.claims))),
    )  # fmt: skip

"""The group graph, and the round in which the release of one group arrives in each of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from sfumato.network.groups import BoolArray, FloatArray, Groups
from sfumato.report import formatting as text
from sfumato.report.drawings.group_figure import groups_in_words
from sfumato.report.drawings.network_canvas import MOST_LEAVES
from sfumato.report.figures.figure import NEUTRAL, Figure, Json
from sfumato.report.figures.worker_heatmap import BUTTONS
from sfumato.report.results.grouped_run import GroupedRun

_MOST_GROUPS = 60
_MOST_SOURCES = 24
_SCALE = [[0.0, "#D55E00"], [0.35, "#F0A35E"], [0.7, "#F6D9B8"], [1.0, "#F4F4F2"]]
_HEIGHT = 480.0
Places: TypeAlias = list[tuple[float, float]]
"""Where the groups in the drawing are."""


def spread_html(run: GroupedRun, place: Callable[[Figure], str]) -> str:
    """HTML on when the release of one group arrives in each of the others: the group graph, or a table.

    It is a table where the drawing of the network shows all groups and which of them share workers; only a
    sentence where no groups share workers. ``place``: puts a figure on the page and returns its HTML.
    """
    groups = run.plan.groups
    if groups.count > MOST_LEAVES:
        return place(group_graph_figure(run))
    order = list(range(groups.count))
    rounds = run.releases.rounds
    said, linked = _caption(groups, len(order), run.releases.merge_every)
    table = _arrival_table(groups, order, order, _arrivals(run, order, order), rounds) if linked else ""
    return f"<h3>How releases spread</h3>{text.paragraphs([said])}{table}"


def group_graph_figure(run: GroupedRun) -> Figure:
    """The groups of a run as nodes and shared workers as edges.

    A menu chooses a group; every node then says in which round it first trains from what that one released.
    At most `_MOST_GROUPS` groups are drawn, and the first `_MOST_SOURCES` of them are in the menu.
    """
    groups = run.plan.groups
    order = _order_along_graph(groups)[: min(groups.count, _MOST_GROUPS)]
    places = _node_places(groups, order)
    every, rounds = run.releases.merge_every, run.releases.rounds
    sources = order[:_MOST_SOURCES]
    arrivals = _arrivals(run, order, sources)
    views = [_node_properties(groups, order, source, arrivals[source], rounds) for source in sources]
    said, linked = _caption(groups, len(order), every)
    said = f"{said} Under a node: that round, of {rounds}." if linked else said
    drawn = [
        _edge_trace(groups, order, places),
        _node_trace(places, views[0]),
        _name_trace(groups, order, places),
    ]
    return Figure(
        title="The group graph, and how releases spread",
        caption=said,
        description=said,
        data=drawn,
        layout=_layout(groups, places, _shared_count_labels(groups, order, places), sources, views),
        table=_arrival_table(groups, order, sources, arrivals, rounds),
        kind="spread",
        min_width=480,
    )


def _arrivals(run: GroupedRun, order: Sequence[int], sources: Sequence[int]) -> dict[int, FloatArray]:
    """For each group of ``sources`` the round in which each of ``order`` first trains from its release.

    ∞ where no path leads there. Rounds count from 1; one array ``[len(order)]`` a source.
    """
    every, distances = run.releases.merge_every, run.plan.groups.distances
    return {source: 1 + every * distances[source][list(order)] for source in sources}


def _trace_on_nodes(places: Places, mode: str, hover: str, font: Json) -> Json:
    """A Plotly scatter trace with a point at every node.

    Args:
        mode: Plotly's ``mode``.
        hover: Plotly's ``hoverinfo``.
        font: Plotly's ``textfont``.
    """
    points = {"x": [x for x, _ in places], "y": [y for _, y in places]}
    look = {"mode": mode, "hoverinfo": hover, "cliponaxis": False, "textfont": font}
    return {"type": "scatter"} | points | look


def _node_trace(places: Places, view: Json) -> Json:
    """The trace of the nodes, with the properties ``view`` of `_node_properties`."""
    first = {name: view[name][0] for name in ("hovertext", "text", "marker")}
    nodes = _trace_on_nodes(places, "markers+text", "text", {"size": 12})
    return nodes | first | {"textposition": "bottom center"}


def _group_label(groups: Groups, group: int) -> str:
    """The title of a group, escaped for plotly."""
    return text.plotly_label(groups.group_title(group))


def _name_trace(groups: Groups, order: Sequence[int], places: Places) -> Json:
    """The trace with the name or number of each group of ``order`` at its place."""
    font = {"size": 11 if len(order) > 24 else 13, "color": "#1D2126"}
    return _trace_on_nodes(places, "text", "skip", font) | {
        "text": [f"<b>{_group_label(groups, g)}</b>" for g in order]
    }


def _layout(
    groups: Groups, places: Places, labels: list[Json], sources: Sequence[int], views: Sequence[Json]
) -> Json:
    """Plotly's layout: axes that hold all nodes, the labels, and a menu with an entry for each source.

    ``views``: of each group in ``sources``, the properties of nodes that the menu sets.
    """
    xs, ys = [x for x, _ in places], [y for _, y in places]
    hidden = {"visible": False, "fixedrange": True}
    layout: Json = {
        "height": _HEIGHT if max(ys) > min(ys) else 260,
        "margin": {"l": 8, "r": 8, "t": 52, "b": 30},
        "xaxis": hidden | {"range": [min(xs) - 0.35, max(xs) + 0.35]},
        "yaxis": hidden | {"range": [min(ys) - 0.4, max(ys) + 0.3]},
        "annotations": labels,
        "showlegend": False,
        "hovermode": "closest",
    }
    if len(sources) > 1:
        buttons = [
            {
                "label": f"released by group {_group_label(groups, source)}",
                "method": "restyle",
                "args": [view, [1]],
            }
            for source, view in zip(sources, views, strict=True)
        ]
        layout["updatemenus"] = [BUTTONS | {"type": "dropdown", "y": 1.02, "buttons": buttons}]
    return layout


def _caption(groups: Groups, drawn: int, every: int) -> tuple[str, bool]:
    """Sentences on how releases spread, and whether any two groups share workers.

    Args:
        drawn: number of groups in the drawing.
        every: rounds from one merge of groups to the next.
    """
    hidden = groups.count - drawn
    pairs = int((groups.shared.toarray()[np.triu_indices(groups.count, 1)] > 0).sum())
    said = (
        f"{groups_in_words(groups)}, {text.how_many(pairs, 'pair')} of groups with "
        f"workers in common{f' ({text.whole(hidden)} more groups are not drawn)' if hidden else ''}. "
    )
    if pairs == 0:
        return f"{said}No two groups share a worker: nothing travels from one to another.", False
    if every == 1:
        said += (
            "Groups merge in every round: the first release of a group reaches groups d links away in round "
            "1 + d"
        )
    else:
        said += (
            f"Groups merge every {every} rounds, so the first release of a group is in the models from which "
            f"groups d links away train in round 1 + {every}d"
        )
    return f"{said}. A path that passes through the worker that ε is about does not count.", True


def _groups_that_share(groups: Groups) -> BoolArray:
    """Whether two different groups share workers, ``[M, M]`` for M groups."""
    linked = groups.shared.toarray() > 0
    np.fill_diagonal(linked, False)
    return np.asarray(linked)


def _order_along_graph(groups: Groups) -> list[int]:
    """All groups in the order of a depth-first walk along shared workers, so that neighbours are close."""
    linked = _groups_that_share(groups)
    degrees = linked.sum(axis=1)
    left, order = set(range(groups.count)), []
    while left:
        stack = [min(left, key=lambda g: (int(degrees[g]) != 1, g))]
        while stack:
            group = stack.pop()
            if group in left:
                left.discard(group)
                order.append(group)
                near = [int(g) for g in np.flatnonzero(linked[group]) if int(g) in left]
                stack += sorted(near, reverse=True)
    return order


def _node_places(groups: Groups, order: Sequence[int]) -> Places:
    """(x, y) of each group in ``order``: on a line if the graph is a short path, otherwise on an ellipse."""
    linked = _groups_that_share(groups)
    degrees = linked.sum(axis=1)
    path = len(order) <= 12 and int(degrees.max()) <= 2 and int((degrees == 1).sum()) == 2
    path = path and all(linked[a, b] for a, b in pairwise(order))
    if path or len(order) <= 2:
        return [(1.2 * i, 0.0) for i in range(len(order))]
    angles = [math.pi / 2 - 2 * math.pi * i / len(order) for i in range(len(order))]
    return [(2.0 * math.cos(a), 1.0 * math.sin(a)) for a in angles]


def _edge_trace(groups: Groups, order: Sequence[int], places: Places) -> Json:
    """The Plotly trace of lines between drawn groups that share workers."""
    at = dict(zip(order, places, strict=True))
    x: list[float | None] = []
    y: list[float | None] = []
    for a, b, _ in _linked_pairs(groups, order):
        x += [at[a][0], at[b][0], None]
        y += [at[a][1], at[b][1], None]
    line = {"color": NEUTRAL, "width": 1.5 if len(order) <= 12 else 0.8}
    return {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "line": line, "x": x, "y": y}


def _linked_pairs(groups: Groups, order: Sequence[int]) -> list[tuple[int, int, int]]:
    """(group, group, number of shared workers) for each two groups of ``order`` that share any, once."""
    shared = groups.shared.tocoo()
    kept = set(order)
    return [
        (int(a), int(b), int(n))
        for a, b, n in zip(shared.row, shared.col, shared.data, strict=True)
        if a < b and int(a) in kept and int(b) in kept
    ]


def _shared_count_labels(groups: Groups, order: Sequence[int], places: Places) -> list[Json]:
    """Plotly annotations with the number of workers that two groups share; [] for more than 16 links."""
    links = _linked_pairs(groups, order)
    if len(links) > 16:
        return []
    at = dict(zip(order, places, strict=True))
    return [
        {
            "x": (at[a][0] + at[b][0]) / 2,
            "y": (at[a][1] + at[b][1]) / 2,
            "showarrow": False,
            "text": f"{text.whole(n)} in common" if len(links) <= 8 else text.whole(n),
            "font": {"size": 11},
            "yshift": 10 if at[a][1] == at[b][1] else 0,
            "xshift": 0 if at[a][1] == at[b][1] else (44 if at[a][0] + at[b][0] > 0 else -44),
        }
        for a, b, n in links
    ]


def _node_properties(
    groups: Groups,
    order: Sequence[int],
    source: int,
    arrivals: FloatArray,
    rounds: int,
) -> Json:
    """The properties of nodes that the menu changes: colours, texts below, hover texts.

    Args:
        source: the group whose first release is followed.
        arrivals: for each group of ``order``, the round in which it first trains from it; ∞ if never.
        rounds: of the training.
    """
    big = len(order) <= 24
    words, hovers, colours = [], [], []
    last = max((float(a) for a in arrivals if a <= rounds), default=1.0)
    for group, arrival in zip(order, arrivals, strict=True):
        size = f"{text.whole(int(groups.sizes[group]))} workers"
        if group == source:
            said, short = "is the one that releases", "source"
        elif math.isinf(arrival):
            said, short = "is never reached", "never"
        elif arrival > rounds:
            said, short = f"would be reached in round {arrival:.0f}, after the last", "not in time"
        else:
            said, short = f"is reached in round {arrival:.0f}", f"round {arrival:.0f}"
        words.append(
            f"{short}<br>{size}" if big else short.removeprefix("round ") if len(order) > 40 else short
        )
        hovers.append(f"<b>group {_group_label(groups, group)}</b><br>{size}<br>{said}")
        late = 0.15 + 0.7 * (float(arrival) - 1) / max(1.0, last - 1) if arrival <= rounds else 1.0
        colours.append(0.0 if group == source else late)
    largest = float(groups.sizes.max())
    sizes = [(22 if not big else 30) + 18 * math.sqrt(float(groups.sizes[g]) / largest) * big for g in order]
    marker = {"size": sizes, "color": colours, "cmin": 0, "cmax": 1, "colorscale": _SCALE, "opacity": 1}
    marker |= {"line": {"color": "#5B6470", "width": 1.2}}
    return {"text": [words], "hovertext": [hovers], "marker": [marker]}


def _arrival_table(
    groups: Groups, order: Sequence[int], sources: Sequence[int], arrivals: dict[int, FloatArray], rounds: int
) -> str:
    """An HTML table of the round from which each group trains on models that hold another's first release.

    Args:
        order: the groups that receive.
        sources: the groups that release.
        arrivals: of every source, the rounds by group as in ``order``; ∞ if never.
        rounds: of the training.
    """

    def said(arrival: float) -> str:
        """A cell: the round, "never", or "not in time"."""
        return "never" if math.isinf(arrival) else "not in time" if arrival > rounds else f"{arrival:.0f}"

    head = sorted(order)[:24]
    at = {group: i for i, group in enumerate(order)}
    return text.html_table(
        ["released by", *(f"group {_group_label(groups, g)}" for g in head)],
        [
            (
                f"group {_group_label(groups, s)}",
                *("–" if g == s else said(arrivals[s][at[g]]) for g in head),
            )
            for s in sorted(sources)
        ],
        caption="Round in which a group first trains from models that hold another's first release",
        numeric=tuple(range(1, len(head) + 1)),
    )

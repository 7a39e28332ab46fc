"""A network that moves: who was under which edge in which round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sfumato.network.groups import BoolArray
from sfumato.network.tree import IntArray
from sfumato.report import formatting as text
from sfumato.report.figures.figure import NEUTRAL, Figure, Json
from sfumato.report.results.network import Network
from sfumato.report.results.tree_labels import edge_titles, edges_over_time

_MOST_DEVICES = 24
_MOST_MARKS = 4_000
_PIXELS = 17
EDGE_COLOURS = ("#7466C4", "#C2578F", "#3A8C5F", "#8A8445", "#A8654F", "#9A83C9", "#2F8FA0")
"""Of edges: none is a colour of the drawing of the network, where colours mean trust and noise."""
_SQUARE: Json = {"symbol": "square-open", "size": 9, "color": "#FFFFFF", "line": {"width": 2}}


KNOWN_MOVES = (
    "Which device is under which edge, and who is trusted, is taken as known for every round before the run, "
    "as independent of all data, and as public: that a device moved is not hidden. ε, and noise that was "
    "sized for a target, are for exactly these rounds. Other moves have other ε: account for them first."
)
"""What ε does not cover where devices move or trust changes (docs/accounting.md, A network that moves)."""


def moved_sentence(network: Network) -> list[str]:
    """A list with one sentence on how many devices ever change their edge; [] if neither edges nor trust do.

    It says, too, that every ε is for exactly these moves.
    """
    if not network.trees:
        return []
    return [
        f"{_who_moves(network)}; every ε is for exactly these changes, known beforehand and public. With "
        "other changes the same noise may give another ε."
    ]


def _who_moves(network: Network) -> str:
    """A clause on how many devices ever change their edge, or that only trust changes.

    ``3 of 50 devices change their edge``, without a full stop.
    """
    places, name = edges_over_time(network), network.trees[0][1].tiers[-1].name
    moved, count = int(_moves(places).sum()), places.shape[1]
    if not moved:
        return f"No device changes its {name}, but trust changes"
    change = "changes its" if moved == 1 else "change their"
    return f"{text.whole(moved)} of {text.how_many(count, 'device')} {change} {name}"


def places_figure(network: Network) -> Figure | None:
    """A heatmap of the edge that each device was under in each round, with trusted edges marked.

    At most `_MOST_DEVICES` devices have a row. ``None`` if neither places nor trust change.
    """
    if not network.trees:
        return None
    trees, places = network.trees, edges_over_time(network)
    name, titles = trees[0][1].tiers[-1].name, edge_titles(trees[0][1])
    count = places.shape[1]
    chosen = _shown_devices(places)
    shown = places[:, chosen]
    starts = [first + 1 for first, _ in trees]
    bounds = [start - 0.5 for start in [*starts, network.rounds + 1]]
    shorter = _shown_sentence(places, chosen) if count > len(chosen) else ""
    marks = _trusted_marks(network, shown, bounds)
    said = (
        f"{_who_moves(network)}. "
        f"Each row is a device, each colour the {name} that it is under.{_meaning_of_squares(marks, name)}"
        f"{shorter} The drawing above shows round 1."
    )
    legend = _legend_traces(titles, trusted=bool(marks))
    return Figure(
        title=f"Who was under which {name}",
        caption=said,
        description=said,
        data=[_place_trace(shown, chosen, bounds, titles), *marks, *legend],
        layout={
            "height": 130 + _PIXELS * max(6, shown.shape[1]),
            "margin": {"l": 8, "r": 8, "t": 40, "b": 8},
            "showlegend": bool(legend),
            "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom", "itemclick": False},
            "xaxis": {"title": {"text": "round"}, "tickformat": "d", "automargin": True, "showgrid": False},
            "yaxis": {
                "title": {"text": "device"}, "autorange": "reversed", "automargin": True, "showgrid": False,
                "tickvals": list(range(len(chosen))), "ticktext": list(map(str, chosen)),
                "tickfont": {"size": 11},
            },
        },
        table=_era_table(network, places, starts, name),
        kind="places",
        min_width=300,
    )  # fmt: skip


def _moves(places: IntArray) -> BoolArray:
    """Which devices ever change their edge, ``[devices]``; ``places``: edge by era and device."""
    return np.asarray((places != places[0]).any(axis=0))


def _shown_devices(places: IntArray) -> IntArray:
    """Numbers of the devices that are drawn, at most `_MOST_DEVICES`, ``[shown]``.

    First those that move, evenly spaced, then, where these are fewer, some of the others, evenly spaced.
    ``places``: edge by era and device, ``[eras, devices]``.
    """
    moves = _moves(places)
    moving = _evenly_spaced(np.flatnonzero(moves), _MOST_DEVICES)
    others = _evenly_spaced(np.flatnonzero(~moves), _MOST_DEVICES - len(moving))
    return np.concatenate([moving, others])


def _shown_sentence(places: IntArray, chosen: IntArray) -> str:
    """A sentence, after a space, on which devices are drawn; arguments as of `_place_trace`, all devices."""
    moves = _moves(places)
    moving, drawn = int(moves.sum()), int(moves[chosen].sum())
    said = f" {text.whole(len(chosen))} of {text.how_many(len(moves), 'device')} are shown"
    if not moving:
        return f"{said}, evenly spaced by number."
    if drawn < moving:
        return f"{said}: of the {text.whole(moving)} that move, evenly spaced by number."
    others = len(chosen) - drawn
    rest = f", then {text.whole(others)} of the others, evenly spaced by number" if others else ""
    return f"{said}: first the {text.whole(moving)} that move{rest}."


def _evenly_spaced(numbers: IntArray, most: int) -> IntArray:
    """At most ``most`` of ``numbers``, evenly spaced, the first and the last with them."""
    places = np.linspace(0, len(numbers) - 1, min(len(numbers), most)).round().astype(int)
    return np.take(numbers, np.unique(places))


def _meaning_of_squares(marks: Sequence[Json], name: str) -> str:
    """A sentence, after a space, on the squares of `_trusted_marks`; "" without any."""
    if not marks:
        return ""
    return f" A white square: in these rounds, up to the next change, the {name} is trusted with raw updates."


def _legend_traces(titles: Sequence[str], *, trusted: bool) -> list[Json]:
    """Traces without points, one for each entry of the legend: the edges, and what a square means."""
    if len(titles) > len(EDGE_COLOURS):
        return []  # colours repeat: the cells name their edge
    empty: Json = {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "showlegend": True}
    entries = [
        empty
        | {
            "name": text.plotly_label(title),
            "marker": {"symbol": "square", "size": 12, "color": EDGE_COLOURS[edge]},
        }
        for edge, title in enumerate(titles)
    ]
    outline = _SQUARE | {"size": 10, "color": NEUTRAL}  # white is not seen beside the drawing
    square = empty | {"name": "square: trusted with raw updates in these rounds", "marker": outline}
    return [*entries, *([square] if trusted else [])]


def _place_trace(shown: IntArray, chosen: IntArray, bounds: list[float], titles: Sequence[str]) -> Json:
    """The Plotly heatmap of the edge of every shown device.

    Args:
        shown: edge by era and shown device, ``[eras, shown]``.
        chosen: the numbers of these devices, ``[shown]``.
        bounds: rounds at which eras begin and end, ``[eras + 1]``.
        titles: of the edges.
    """
    edges = len(titles)
    ends = [(edge, position / edges) for edge in range(edges) for position in (edge, edge + 1)]
    steps = [[position, EDGE_COLOURS[edge % len(EDGE_COLOURS)]] for edge, position in ends]
    small = shown.shape[0] <= 40 and shown.shape[1] <= 40
    scale = {"zmin": -0.5, "zmax": edges - 0.5, "colorscale": steps, "showscale": False}
    return scale | {
        **{"type": "heatmap", "x": bounds, "y": list(range(shown.shape[1])), "z": shown.T.tolist()},
        **{"xgap": 1 if small else 0, "ygap": 1},
        "text": [[text.plotly_label(titles[edge]) for edge in row] for row in shown.T.tolist()],
        "texttemplate": "%{text}" if small and edges > len(EDGE_COLOURS) else "",
        "textfont": {"color": "#FFFFFF", "size": 11},
        "customdata": [[int(device)] * len(shown) for device in chosen],
        "hovertemplate": "device %{customdata}, %{text}<extra></extra>",
    }


def _trusted_marks(network: Network, shown: IntArray, bounds: list[float]) -> list[Json]:
    """A Plotly trace with a square in every cell whose edge is trusted then; [] for none or too many.

    ``shown`` and ``bounds`` as of `_place_trace`.
    """
    x, y = list[float](), list[int]()
    for era, (_, tree) in enumerate(network.trees):
        for device in np.flatnonzero(tree.tiers[-1].trusted[shown[era]]).tolist():
            x.append((bounds[era] + bounds[era + 1]) / 2)
            y.append(device)
    if not x or len(x) > _MOST_MARKS:
        return []
    points: Json = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": _SQUARE}
    return [points | {"hoverinfo": "skip", "showlegend": False}]


def _era_table(network: Network, places: IntArray, starts: list[int], name: str) -> str:
    """An HTML table of every era: devices of each edge, trusted edges, and which devices moved.

    Args:
        places: edge by era and device, ``[eras, devices]``.
        starts: first round of every era, from 1.
        name: of the tier of edges.
    """
    rows, titles = [], edge_titles(network.trees[0][1])
    for era, (_, tree) in enumerate(network.trees[:200]):
        counts = np.bincount(places[era], minlength=tree.leaf_count).tolist()
        sizes = ", ".join(f"{title} {count}" for title, count in zip(titles, counts, strict=True))
        trusted = (
            ", ".join(titles[edge] for edge in np.flatnonzero(tree.tiers[-1].trusted).tolist()) or "none"
        )
        went = np.flatnonzero(places[era] != places[era - 1]).tolist() if era else []
        moves = ", ".join(f"device {device} to {titles[places[era, device]]}" for device in went[:12])
        rows.append((str(starts[era]), sizes, trusted, moves + (" …" if len(went) > 12 else "")))
    heads = ["from round", f"devices of each {name}", f"trusted {text.pluralise(name)}", "devices that moved"]
    return text.html_table(heads, rows, caption=f"Devices under each {name}, and trust, over the rounds")

"""A network that moves: who was under which edge in which round, and what units and observers are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sfumato.network.tree import IntArray, Tree
from sfumato.report import formatting as text
from sfumato.report.figures.figure import PALETTE, TRUSTED, Figure
from sfumato.report.results.network import Network
from sfumato.report.results.observer_labels import Column, Row, TreeLabels

_MOST_DEVICES = 60
_MOST_MARKS = 4_000
_PIXELS = 17


@dataclass(frozen=True)
class MovingLabels(TreeLabels):
    """Labels where devices move: a unit by the edges that it is under, in turn."""

    @cached_property
    def _places(self) -> IntArray:
        """The edge of every device, ``[eras, devices]``."""
        return _places(self.network)

    def _row(self, unit: str, sites: Sequence[str]) -> Row:
        """Devices that are under the same edges in the same rounds."""
        device = self._device(unit)
        if device is None:
            return Row((1 << 60, unit), unit, "")
        alike = np.flatnonzero((self._places == self._places[:, [device]]).all(axis=0)).tolist()
        name = self.tree.tiers[-1].name
        visited = ", ".join(str(edge) for edge in _in_turn(self._places[:, device])[:12])
        more = " …" if len(_in_turn(self._places[:, device])) > 12 else ""
        title = f"device {device}" if len(alike) == 1 else f"device {device} and {len(alike) - 1} like it"
        return Row((alike[0], ""), title, f"{name} {visited}{more}")

    def _party(self, unit: str, observer: str) -> Column:
        device, other = self._device(unit), self._device(observer)
        kind, _, number = observer.partition(":")
        if device is None:
            return super()._party(unit, observer)
        mine, name = self._places[:, device], self.tree.tiers[-1].name
        if other is not None:
            if (mine == self._places[:, other]).any():
                return Column((0, ""), f"peers (ever under the same {name})")
            return Column((20, ""), "devices elsewhere")
        if kind == name and number.isdecimal():
            if int(number) in mine.tolist():
                own = text.pluralise(name)
                if self._is_trusted_by(device, int(number)):
                    return Column((2, ""), f"trusted {own} it is ever under")
                return Column((1, ""), f"untrusted {own} it is ever under", own_aggregator=True)
            return Column((22, ""), f"{text.pluralise(name)} elsewhere")
        return super()._party(unit, observer)

    def _is_trusted_by(self, device: int, edge: int) -> bool:
        """Whether the edge is trusted in some round in which the device is under it."""
        trees = zip(self.network.trees, self._places[:, device], strict=True)
        return any(place == edge and bool(tree.tiers[-1].trusted[edge]) for (_, tree), place in trees)


def tree_labels(network: Network, tree: Tree) -> TreeLabels:
    """The labels of a tree, which may move."""
    return MovingLabels(network, tree) if network.trees else TreeLabels(network, tree)


def _in_turn(places: IntArray) -> list[int]:
    """The edges that a device is under, one after the other."""
    kept = np.flatnonzero(np.diff(places, prepend=-1))
    return [int(edge) for edge in places[kept]]


def _places(network: Network) -> IntArray:
    everybody = np.arange(network.trees[0][1].device_count)
    return np.stack([tree.leaves_of(everybody) for _, tree in network.trees])


def moved_sentence(network: Network) -> list[str]:
    """How many devices change their edge; nothing where none can."""
    if not network.trees:
        return []
    places, name = _places(network), network.trees[0][1].tiers[-1].name
    moved, count = int((places != places[0]).any(axis=0).sum()), places.shape[1]
    return [
        f"{text.whole(moved)} of {text.whole(count)} {text.pluralise('device', count)} change their {name}."
    ]


def places_figure(network: Network) -> Figure | None:
    """Who was under which edge, and which edges were trusted, in which round; ``None`` if nothing changes."""
    if not network.trees:
        return None
    trees, places = network.trees, _places(network)
    name, edges = trees[0][1].tiers[-1].name, trees[0][1].leaf_count
    shown = places[:, :_MOST_DEVICES]
    starts = [first + 1 for first, _ in trees]
    bounds = [start - 0.5 for start in [*starts, network.rounds + 1]]
    count = places.shape[1]
    shorter = (
        f" The first {_MOST_DEVICES} of {text.whole(count)} devices are shown."
        if count > _MOST_DEVICES
        else ""
    )
    said = (
        f"{moved_sentence(network)[0]} "
        f"Each row is a device, each colour an {name}, named in the cell. A square marks rounds in which "
        f"that {name} is trusted with raw updates.{shorter} The drawing above shows round 1."
    )
    return Figure(
        title=f"Who was under which {name}",
        caption=said,
        description=said,
        data=[_cells(shown, bounds, edges, name), *_trusted_marks(network, shown, bounds)],
        layout={
            "height": 90 + _PIXELS * max(6, shown.shape[1]),
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "showlegend": False,
            "xaxis": {"title": {"text": "round"}, "tickformat": "d", "automargin": True, "showgrid": False},
            "yaxis": {
                "title": {"text": "device"}, "autorange": "reversed", "tickformat": "d",
                "automargin": True, "showgrid": False,
            },
        },
        table=_table(network, places, starts, name),
        kind="places",
        min_width=520,
    )  # fmt: skip


def _cells(shown: IntArray, bounds: list[float], edges: int, name: str) -> dict[str, Any]:
    steps = [
        [position, PALETTE[edge % len(PALETTE)]]
        for edge in range(edges)
        for position in (edge / edges, (edge + 1) / edges)
    ]
    small = shown.shape[0] <= 40 and shown.shape[1] <= 40
    return {
        "type": "heatmap",
        "x": bounds,
        "y": list(range(shown.shape[1])),
        "z": shown.T.tolist(),
        "zmin": -0.5,
        "zmax": edges - 0.5,
        "colorscale": steps,
        "showscale": False,
        "xgap": 1 if small else 0,
        "ygap": 1,
        "text": [[str(edge) for edge in row] for row in shown.T.tolist()],
        "texttemplate": "%{text}" if small else "",
        "textfont": {"color": "#FFFFFF", "size": 11},
        "hovertemplate": f"device %{{y}}, {text.label(name)} %{{z}}<extra></extra>",
    }


def _trusted_marks(network: Network, shown: IntArray, bounds: list[float]) -> list[dict[str, Any]]:
    """A square in every cell whose edge is trusted then."""
    x, y = list[float](), list[int]()
    for era, (_, tree) in enumerate(network.trees):
        for device in np.flatnonzero(tree.tiers[-1].trusted[shown[era]]).tolist():
            left, right = bounds[era], bounds[era + 1]
            x.append(left + min(0.25, 0.3 * (right - left)))
            y.append(device)
    if not x or len(x) > _MOST_MARKS:
        return []
    line = {"color": "#FFFFFF", "width": 1.2}
    mark = {"symbol": "square", "size": 8, "color": TRUSTED, "line": line}
    return [
        {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": mark, "hoverinfo": "skip"},
    ]


def _table(network: Network, places: IntArray, starts: list[int], name: str) -> str:
    rows = []
    for era, (_, tree) in enumerate(network.trees[:200]):
        sizes = ", ".join(map(str, np.bincount(places[era], minlength=tree.leaf_count).tolist()))
        trusted = ", ".join(map(str, np.flatnonzero(tree.tiers[-1].trusted).tolist())) or "none"
        went = np.flatnonzero(places[era] != places[era - 1]).tolist() if era else []
        moves = ", ".join(f"{device} to {places[era, device]}" for device in went[:12])
        rows.append((str(starts[era]), sizes, trusted, moves + (" …" if len(went) > 12 else "")))
    heads = ["from round", f"devices of each {name}", f"trusted {text.pluralise(name)}", "devices that went"]
    return text.table(heads, rows, caption=f"Devices under each {name}, and trust, over the rounds")

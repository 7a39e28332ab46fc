"""The drawings of the page: those of reports, with the parties that were chosen marked in the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.report.drawings.network_canvas import ADDS_NOISE
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.figures.figure import PALETTE, Figure
from sfumato.report.figures.heatmap import heatmap_figure
from sfumato.user_text import decimal

_RINGS = {
    "coalition": {"symbol": "hexagon2-open", "size": 34, "color": PALETTE[3], "line": {"width": 3}},
    "protected unit": {"symbol": "star-diamond-open", "size": 22, "color": PALETTE[2], "line": {"width": 3}},
}


def network_figure(accounted: AccountedSetting, *, unit: str, coalition: Sequence[str]) -> Figure | None:
    """The network with the protected unit and the members of the coalition marked.

    Args:
        accounted: of a setting.
        unit: ``device:N``, ``record:N`` or ``person:N``, or with a name for the number.
        coalition: names of its members; those that are not drawn are not marked.

    Returns:
        The figure, or ``None`` where the network is not drawn.
    """
    figure = topology_figure(accounted.network)
    if figure is None:
        return None
    titled = accounted.network.titled
    places = {titled(name): place for name, place in _party_positions(figure)}
    named = unit.rpartition(":")[2]
    device = named if decimal(named) is None else f"device:{named}"
    for kind, names in (("coalition", coalition), ("protected unit", [device])):
        drawn = [places[titled(name)] for name in names if titled(name) in places]
        if drawn:
            figure.data.append({
                "type": "scatter", "mode": "markers", "name": kind, "marker": _RINGS[kind],
                "x": [x for x, _ in drawn], "y": [y for _, y in drawn], "hoverinfo": "skip",
                "cliponaxis": False,
            })  # fmt: skip
    return figure


def _party_positions(figure: Figure) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield (name, (x, y)) of every party that is drawn; (x, y) in coordinates of the figure."""
    for trace in figure.data:
        if "customdata" in trace and trace["name"] != ADDS_NOISE:
            yield from zip(trace["customdata"], zip(trace["x"], trace["y"], strict=True), strict=True)


def heatmaps(
    accounted: AccountedSetting, kept: AccountedSetting | None
) -> tuple[Figure | None, Figure | None]:
    """The heatmap of the setting, and that of the ``kept`` one.

    ``None`` for a setting without guarantees, and in the second place where ``kept`` is ``None``.
    """
    both = [accounted] if kept is None else [accounted, kept]
    drawn = [heatmap_figure(one.matrix, one.report.delta) for one in both]
    return drawn[0], drawn[1] if kept is not None else None


def as_plotly(figure: Figure | None) -> dict[str, Any] | None:
    """A figure as the browser draws it: ``data``, ``layout`` and ``min_width``; ``None`` without a figure."""
    if figure is None:
        return None
    layout = figure.layout | {"clickmode": "event", "dragmode": False}
    return {"data": figure.data, "layout": layout, "min_width": figure.min_width}

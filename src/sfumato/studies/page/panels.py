"""Chooses how a panel is drawn, from the rows of the table that it is about."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.report.figures.figure import Figure
from sfumato.studies.page.curves import grouped_figure, line_figure
from sfumato.studies.page.matrices import axis_heatmap, worker_heatmaps
from sfumato.studies.page.panel_data import PanelData


def figures_of(data: PanelData, pairs: Sequence[PanelData] = ()) -> list[Figure]:
    """The figures of a panel that is no table: those of `worker_heatmaps` for pairs of workers, else one.

    ``pairs``: all panels of pairs of workers on the page.
    """
    match data.panel.kind:
        case "lines":
            return [line_figure(data)]
        case "bars" | "dots":
            return [grouped_figure(data)]
        case "heatmap":
            return [axis_heatmap(data)]
        case _:
            return worker_heatmaps(data, pairs)

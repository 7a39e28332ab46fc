"""Chooses how a panel is drawn, from the rows of the table that it is about."""

from __future__ import annotations

import pandas as pd

from sfumato.report.figures.figure import Figure
from sfumato.studies.grids import StudyPlan
from sfumato.studies.page.curves import bar_figure, line_figure
from sfumato.studies.page.matrices import axis_heatmap, worker_heatmaps
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.study import Panel


def figures_of(plan: StudyPlan, panel: Panel, table: pd.DataFrame) -> list[Figure]:
    """The figures of a panel that is no table: one, or of pairs of workers one a series."""
    data = PanelData.of(plan, panel, table)
    match panel.kind:
        case "lines":
            return [line_figure(data)]
        case "bars":
            return [bar_figure(data)]
        case "heatmap":
            return [axis_heatmap(data)]
        case _:
            return worker_heatmaps(data)

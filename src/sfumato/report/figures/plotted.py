"""Runs drawn for Python: the figures of the report as one Plotly figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from sfumato.report.figures.curves import score_figures
from sfumato.report.figures.epsilon_curves import epsilon_figures
from sfumato.report.results.series import load_series

_HEIGHT = 380


def plotted_runs(folders: Sequence[Path]) -> go.Figure:
    """A Plotly figure of the score over rounds and, where a watched ε is finite, of ε over rounds.

    ``folders``: run folders; folders of the seeds of one run are drawn as one run. Titles name the observers
    towards whom ε is infinite, which is not drawn.

    Raises:
        SpecError: no folder was given, or one of them is not a run.
        RunError: a run is damaged.
    """
    series = load_series(folders)
    figures = [*score_figures(series), *epsilon_figures(series)]
    endless = [trace["name"] for figure in figures for trace in figure.data if "yaxis" in trace]
    titles = [one.title for one in figures]
    if endless:
        titles[-1] += f" ({', '.join(endless)})"
    drawn = make_subplots(rows=1, cols=max(1, len(figures)), subplot_titles=titles)
    for place, figure in enumerate(figures, 1):
        for trace in (trace for trace in figure.data if "yaxis" not in trace):
            drawn.add_trace(go.Figure(data=[trace]).data[0], row=1, col=place)
        for axis in ("xaxis", "yaxis"):
            name = axis if place == 1 else f"{axis}{place}"
            kept = {key: value for key, value in figure.layout[axis].items() if key != "domain"}
            drawn.update_layout({name: kept})
    return drawn.update_layout(height=_HEIGHT, showlegend=True)

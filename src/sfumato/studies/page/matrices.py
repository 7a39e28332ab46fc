"""Heatmaps on colour scales of their own: a measure by two axes, and ε of workers towards each other."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from sfumato.report import formatting as text
from sfumato.report.figures.figure import NO_GUARANTEE, Figure, Json
from sfumato.report.figures.worker_heatmap import WORKER_SCALE
from sfumato.report.results.series import FloatArray
from sfumato.studies.page.panel_data import PanelData, setting_text

MOST_WRITTEN = 12
"""Workers of a matrix with a number in every cell."""


def axis_heatmap(data: PanelData) -> Figure:
    """The means of a measure by two axes, written into the cells."""
    panel, measure = data.panel, data.panel.measures[0]
    across, down = data.axis(panel.x), data.axis(panel.y)
    assert across is not None
    assert down is not None
    z: list[list[float | None]] = []
    cells: list[list[str]] = []
    series = next(iter(data.series(measure)), "")
    for row in down.settings:
        found = []
        for column in across.settings:
            wanted = {panel.x: column, panel.y: row}
            point = next((point for point in data.points if point.matches(wanted)), None)
            found.append(None if point is None else data.mean_at(point, measure, series))
        z.append([None if one is None or not math.isfinite(one.value) else one.value for one in found])
        cells.append([data.figure_of(measure, one) for one in found])
    trace: Json = {
        "type": "heatmap", "z": z, "text": cells, "texttemplate": "%{text}", "xgap": 2, "ygap": 2,
        "x": [setting_text(s) for s in across.settings], "y": [setting_text(s) for s in down.settings],
        "colorscale": WORKER_SCALE, "hoverinfo": "skip",
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": text.label(data.title)}},
    }  # fmt: skip
    layout: Json = {
        "height": 150 + 52 * len(down.settings),
        "margin": {"l": 70, "r": 16, "t": 16, "b": 60},
        "xaxis": {"type": "category", "title": {"text": text.label(across.words)}, "showgrid": False},
        "yaxis": {"type": "category", "title": {"text": text.label(down.words)}, "showgrid": False},
    }
    seeds = data.rows["seed"].nunique()
    shown = (
        f"Mean of {text.how_many(seeds, 'seed')} ± half of its 95 % interval." if seeds > 1 else "One seed."
    )
    caption = f"{text.sentence(panel.about) + ' ' if panel.about else ''}{shown}"
    return Figure(
        panel.title, caption, f"{panel.title}. {caption}", [trace], layout, kind="heatmap", min_width=420
    )


def worker_heatmaps(data: PanelData) -> list[Figure]:
    """ε of every worker (row) towards every other (column), a figure for each series."""
    of_pairs = data.rows[data.rows["unit"] >= 0]
    return [
        _workers(data, of_pairs[of_pairs["series"] == series], series)
        for series in of_pairs["series"].unique()
    ]


def _workers(data: PanelData, rows: pd.DataFrame, series: str) -> Figure:
    """One matrix; small ones have their numbers in the cells."""
    count = 1 + int(max(data.rows["unit"].max(), data.rows["observer"].max()))
    values = np.full((count, count), np.nan)
    worst = rows.groupby(["unit", "observer"])["value"].max().reset_index()
    values[worst["unit"].to_numpy(), worst["observer"].to_numpy()] = worst["value"].to_numpy()
    finite = values[np.isfinite(values)]
    trusted = int(np.isnan(values).sum()) - count
    traces: list[Json] = [
        _cells(values, np.isfinite(values)) | {"colorscale": WORKER_SCALE, "colorbar": _bar()}
    ]
    if count <= MOST_WRITTEN:
        traces[0] |= {"texttemplate": "%{z:.4~g}", "textfont": {"size": 15}}
    if len(finite):
        traces[0] |= {"zmin": float(min(finite.min(), finite.max() * 0.8)), "zmax": float(finite.max())}
    if np.isinf(values).any():
        red = [[0, NO_GUARANTEE], [1, NO_GUARANTEE]]
        traces.append(
            _cells(np.ones_like(values), np.isinf(values)) | {"colorscale": red, "showscale": False}
        )
    axis: Json = {"showgrid": False, "constrain": "domain", "ticks": ""}
    layout: Json = {
        "height": 400,
        "margin": {"l": 56, "r": 8, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": "observer"}},
        "yaxis": axis | {"title": {"text": "worker"}, "autorange": "reversed", "scaleanchor": "x"},
    }
    low, high = (
        ("–", "–") if not len(finite) else map(text.epsilon, (float(finite.min()), float(finite.max())))
    )
    said = [f"ε from {low} to {high}."]
    if np.isinf(values).any():
        said.append(f"Red: no guarantee ({text.whole(int(np.isinf(values).sum()))} pairs).")
    if trusted > 0:
        said.append(f"Empty: {text.whole(trusted)} pairs, about which nothing is claimed.")
    title = f"{data.panel.title}: {series}"
    return Figure(
        title, " ".join(said), f"{title}. {' '.join(said)}", traces, layout, kind="workers", min_width=320
    )


def _cells(values: FloatArray, shown: npt.NDArray[np.bool_]) -> Json:
    """The cells of a matrix that are ``shown``."""
    z = [
        [round(float(value), 4) if is_shown else None for value, is_shown in zip(row, mask, strict=True)]
        for row, mask in zip(values, shown, strict=True)
    ]
    hover = "worker %{y} towards %{x}: ε = %{z}<extra></extra>"
    return {"type": "heatmap", "z": z, "hoverongaps": False, "hovertemplate": hover}


def _bar() -> Json:
    return {"thickness": 12, "outlinewidth": 0, "title": {"text": "ε"}}

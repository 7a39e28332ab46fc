"""Heatmaps: a measure by two axes, and ε, or releases, of workers towards each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.report import formatting as text
from sfumato.report.figures.figure import (
    ALL_RED,
    EPSILON_COLOURS,
    Figure,
    Json,
    epsilon_shade,
)
from sfumato.report.results.series import FloatArray
from sfumato.studies.grids import setting_text
from sfumato.studies.measures.registry import measure_named
from sfumato.studies.measures.workers import COUNTED, RELEASES, RIGOROUS
from sfumato.studies.page.panel_data import PanelData
from sfumato.studies.page.tables import with_heading

MOST_WRITTEN = 12
"""Workers of a matrix with a number in every cell."""
_ALIKE = 4.0  # the largest ε of a matrix over that of another, up to which they have the same colours
_LINEAR = 10.0  # the largest ε over the smallest, below which their colours are not logarithmic
# dark digits can be read on all of it
_UNDER_DIGITS = [(0.0, "#EFF5FB"), (1.0, "#7FB8E0")]
_MOST_IN_TABLE = 4  # workers whose pairs are a table and no heatmaps
_SERIES = {RIGOROUS: "rigorous ε", RELEASES: "releases", COUNTED: "releases by Theorem 1"}


def axis_heatmap(data: PanelData) -> Figure:
    """A heatmap of the means over seeds (of ε the largest) of a measure by two axes, written into the cells.

    Only the first series of the panel's first measure. A cell is empty where nothing was measured or the
    value is not finite.
    """
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
        "colorscale": _UNDER_DIGITS, "hoverinfo": "skip",
        "colorbar": {"thickness": 12, "outlinewidth": 0, "title": {"text": text.plotly_label(data.title)}},
    }  # fmt: skip
    layout: Json = {
        "height": 150 + 52 * len(down.settings),
        "margin": {"l": 70, "r": 16, "t": 16, "b": 60},
        "xaxis": {"type": "category", "title": {"text": text.plotly_label(across.words)}, "showgrid": False},
        "yaxis": {"type": "category", "title": {"text": text.plotly_label(down.words)}, "showgrid": False},
    }
    shown = f"{data.means_in_words}{' ± half of its 95 % interval' if data.seeds > 1 else ''}."
    if measure_named(measure)[0].is_epsilon:
        shown = "The largest ε over the seeds." if data.seeds > 1 else ""
    caption = " ".join(filter(None, (text.sentence(panel.about) if panel.about else "", shown)))
    return Figure(
        panel.title, caption, f"{panel.title}. {caption}", [trace], layout, kind="heatmap", min_width=420
    )


def worker_heatmaps(data: PanelData, beside: Sequence[PanelData] = ()) -> list[Figure]:
    """Heatmaps of ε, or of numbers of releases, of every worker (row) towards every other (column).

    ``beside``: all panels of pairs on the page; ε of one size have the same colours in all of them.

    One for each series. A series that is the same for all pairs has none, nor have at most `_MOST_IN_TABLE`
    workers: `pairs_in_words` tells of both.
    """
    matrices = _matrices(data)
    if _are_few(matrices):
        return []
    others = [other for one in beside for other in _matrices(one)]
    return [
        _workers(data, matrix, _common_ends(matrix, others)) for matrix in matrices if not matrix.is_constant
    ]


def _common_ends(matrix: _Matrix, others: Sequence[_Matrix]) -> tuple[float, float]:
    """The least and the largest finite value of ``matrix`` and of those of ``others`` of about its size.

    Of about its size is a matrix of ε on a linear scale whose largest is within a factor of `_ALIKE`; of
    counts none is.
    """
    most = float(matrix.finite.max()) if len(matrix.finite) else math.nan
    alike = [
        other.finite
        for other in others
        if not matrix.is_count
        and not other.is_count
        and other.is_linear
        and most <= _ALIKE * float(other.finite.max()) <= _ALIKE**2 * most
    ]
    values = np.concatenate([matrix.finite, *alike])
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def pairs_in_words(data: PanelData) -> str:
    """HTML for pairs of workers without a heatmap.

    Of few workers a table of all pairs; of many the value of each series that is the same for all. "" else.
    """
    matrices = _matrices(data)
    if _are_few(matrices):
        return _pair_table(data, matrices)
    said = [
        f"{matrix.series_title}: {matrix.words_of(float(matrix.known[0]))}"
        for matrix in matrices
        if matrix.is_constant
    ]
    words = f"The same for every pair of workers: {'; '.join(said)}."
    return f"<h3>{text.escape(data.panel.title)}</h3>{text.paragraphs([words])}" if said else ""


@dataclass(frozen=True)
class _Matrix:
    """The values of one series.

    Attributes:
        series: its name.
        values: by worker and observer, ``[W, W]`` for W workers; NaN where there is none.
        first: the number of worker 0 in the paper.
    """

    series: str
    values: FloatArray
    first: int

    @property
    def is_count(self) -> bool:
        """Whether the values are counts of releases, not ε."""
        return self.series.startswith(RELEASES)

    @property
    def series_title(self) -> str:
        """What the values are, in words."""
        return _SERIES.get(self.series, f"{self.series} ε")

    @property
    def known(self) -> FloatArray:
        """The values of all pairs that have one."""
        return np.asarray(self.values[~np.isnan(self.values)])

    @property
    def is_constant(self) -> bool:
        """Whether every pair of different workers has the same value."""
        every = len(self.known) == len(self.values) * (len(self.values) - 1)
        return every and len(set(map(self.words_of, self.known.tolist()))) == 1

    def words_of(self, value: float) -> str:
        """A value as text: a count as it is, an ε rounded up."""
        return text.number(value) if self.is_count else text.epsilon(value)

    @property
    def finite(self) -> FloatArray:
        """The values of all pairs that have a finite one."""
        return np.asarray(self.values[np.isfinite(self.values)])

    @property
    def is_linear(self) -> bool:
        """Whether colours stand for the values themselves, and not for their logarithms.

        They do for counts, and for ε that include 0 or are within a factor of `_LINEAR`.
        """
        if self.is_count or not len(self.finite):
            return self.is_count
        low, high = float(self.finite.min()), float(self.finite.max())
        return low == 0 or high < _LINEAR * low

    def scale(self, ends: tuple[float, float]) -> Json:
        """Plotly's ends, colours and colour bar of a linear scale: of counts from 0, of ε from ``ends``."""
        low, high = ends
        bar = {"thickness": 12, "outlinewidth": 0, "title": {"text": "releases" if self.is_count else "ε"}}
        if self.is_count:
            ticks = sorted(set(self.finite.tolist()))
            return {"zmin": 0.0, "zmax": high or 1.0, "colorbar": bar | {"tickvals": ticks}}
        ticks = [low, (low + high) / 2, high]
        words = [text.number(tick, 3) for tick in ticks]
        return {"zmin": low, "zmax": high, "colorbar": bar | {"tickvals": ticks, "ticktext": words}}

    def _shade(self, value: float) -> float:
        """The place of a value on the colour scale; 1 for ∞, which has one colour."""
        if math.isinf(value):
            return 1.0
        return value if self.is_linear else round(epsilon_shade(value), 4)

    def shown(self, mask: npt.NDArray[np.bool_]) -> Json:
        """A Plotly trace of a heatmap that shows the cells where ``mask`` ``[W, W]`` is set, others empty."""
        workers = [str(self.first + worker) for worker in range(len(self.values))]
        names = "releases" if self.is_count else "ε"
        z: list[list[float | None]] = []
        words: list[list[str]] = []
        for line, kept in zip(self.values, mask, strict=True):
            pairs = list(zip(line.tolist(), kept, strict=True))
            z.append([None if not one else self._shade(value) for value, one in pairs])
            words.append([self.words_of(value) if one else "" for value, one in pairs])
        return {
            "type": "heatmap", "z": z, "x": workers, "y": workers, "text": words, "hoverongaps": False,
            "hovertemplate": f"worker %{{y}} towards %{{x}}: {names} = %{{text}}<extra></extra>",
        }  # fmt: skip


def _matrices(data: PanelData) -> list[_Matrix]:
    """A matrix ``[W, W]`` of every series, in the order of the rows: the largest value of each pair.

    W is one more than the largest number of a worker in the rows, which are counted from 0.
    """
    of_pairs = data.rows[data.rows["unit"] >= 0]
    found = []
    for series in of_pairs["series"].unique():
        rows = of_pairs[of_pairs["series"] == series]
        count = 1 + int(max(data.rows["unit"].max(), data.rows["observer"].max()))
        values = np.full((count, count), np.nan)
        worst = rows.groupby(["unit", "observer"])["value"].max().reset_index()
        values[worst["unit"].to_numpy(), worst["observer"].to_numpy()] = worst["value"].to_numpy()
        found.append(_Matrix(str(series), values, data.panel.first_worker))
    return found


def _are_few(matrices: Sequence[_Matrix]) -> bool:
    """Whether there are so few workers in ``matrices`` that a table shows all pairs."""
    return bool(matrices) and len(matrices[0].values) <= _MOST_IN_TABLE


def _pair_table(data: PanelData, matrices: Sequence[_Matrix]) -> str:
    """HTML of a table with a row for all pairs that have the same values, and a column for each matrix."""
    workers = range(len(matrices[0].values))
    pairs = [(unit, observer) for unit in workers for observer in workers if unit != observer]
    first = matrices[0].first
    alike: dict[tuple[str, ...], list[str]] = {}
    for unit, observer in pairs:
        values = [float(matrix.values[unit, observer]) for matrix in matrices]
        words = (
            "–" if math.isnan(value) else "∞ (no guarantee)" if math.isinf(value) else matrix.words_of(value)
            for matrix, value in zip(matrices, values, strict=True)
        )
        alike.setdefault(tuple(words), []).append(f"{first + unit}\u00a0→\u00a0{first + observer}")
    rows = [
        ("every pair" if len(who) == len(pairs) > 1 else ", ".join(who), *words)
        for words, who in alike.items()
    ]
    table = text.html_table(
        ["worker → observer", *(matrix.series_title for matrix in matrices)],
        rows,
        caption="How much the observer learns about the worker",
        numeric=range(1, len(matrices) + 1),
    )
    return with_heading(data.panel, table)


def _workers(data: PanelData, matrix: _Matrix, ends: tuple[float, float]) -> Figure:
    """The heatmap of one series; of at most `MOST_WRITTEN` workers with numbers in the cells, ∞ in red.

    ``ends``: of its colours, if these are linear.
    """
    values, count = matrix.values, len(matrix.values)
    finite = matrix.finite
    none, without = int(np.isnan(values).sum()) - count, int(np.isinf(values).sum())
    traces = [matrix.shown(np.isfinite(values)) | EPSILON_COLOURS]
    if matrix.is_linear and len(finite):
        traces[0] |= matrix.scale(ends)
    if count <= MOST_WRITTEN:
        traces[0] |= {"texttemplate": "%{text}", "textfont": {"size": 15}}
    if without:
        traces.append(matrix.shown(np.isinf(values)) | ALL_RED)
        if count <= MOST_WRITTEN:
            traces[1] |= {"texttemplate": "%{text}", "textfont": {"size": 15, "color": "#FFFFFF"}}
    axis: Json = {"showgrid": False, "constrain": "domain", "ticks": "", "type": "category"}
    axis |= {"dtick": max(1, math.ceil(count / MOST_WRITTEN))}
    layout: Json = {
        "height": 400,
        "margin": {"l": 56, "r": 8, "t": 8, "b": 48},
        "xaxis": axis | {"title": {"text": "observer"}},
        "yaxis": axis | {"title": {"text": "worker"}, "autorange": "reversed", "scaleanchor": "x"},
    }
    extremes = (
        list(dict.fromkeys(map(matrix.words_of, (finite.min(), finite.max())))) if len(finite) else ["–"]
    )
    title = matrix.series_title
    said = [text.sentence(data.panel.about)] if data.panel.about else []
    said.append(f"{text.title(title)}: {' to '.join(extremes)}.")
    if without:
        said.append(f"Red: no guarantee ({text.how_many(without, 'pair')}).")
    if none > 0:
        said.append(f"Empty: {text.how_many(none, 'pair')}, of which the paper gives no figure.")
    title = f"{data.panel.title}: {title}"
    return Figure(
        title, " ".join(said), f"{title}. {' '.join(said)}", traces, layout, kind="workers", min_width=320
    )

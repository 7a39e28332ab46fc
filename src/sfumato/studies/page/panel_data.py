"""What a panel shows: the means over seeds of its rows, and the paper's values that belong to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd

from sfumato.report import formatting as text
from sfumato.report.results.series import Mean, mean
from sfumato.rounding import upper_bound
from sfumato.studies.best_point import best_point
from sfumato.studies.grids import StudyPlan, StudyPoint, named_setting, points_of
from sfumato.studies.measures.base import SPREAD
from sfumato.studies.measures.registry import PERCENTAGE_POINTS, Measure, measure_named
from sfumato.studies.observations import last_by_seed
from sfumato.studies.page.numbers import with_half_width
from sfumato.studies.study import Best, Panel, PaperValue, StudyAxis, with_minus


@dataclass(frozen=True)
class PanelData:
    """A panel and the rows of the table that it shows.

    Attributes:
        plan: of the study.
        panel: of it.
        name: of its grid.
        axes: of the grid, with the values of this form.
        points: of the grid that the panel's ``where`` selects; without those that a ``minus`` subtracts.
        rows: of the grid's points that ``where`` selects, and of those that are subtracted, of the panel's
            measures.
    """

    plan: StudyPlan
    panel: Panel
    name: str
    axes: tuple[StudyAxis, ...]
    points: tuple[StudyPoint, ...]
    rows: pd.DataFrame

    @classmethod
    def of(cls, plan: StudyPlan, panel: Panel, table: pd.DataFrame) -> PanelData:
        """The panel with those rows of ``table`` that it shows; ``table``: of `collect_observations`.

        Of a panel with ``best`` only the best points and their rows are kept.
        """
        name = plan.study.grid_name(panel.grid)
        axes = plan.axes(name)
        points = tuple(point for point in points_of(axes) if point.matches(panel.where))
        subtracted = [p for p in points_of(axes) if panel.minus and p.matches(with_minus(panel))]
        if panel.minus:
            points = tuple(point for point in points if not point.matches(panel.minus))
        measures = [*panel.measures, panel.measure_of_x([axis.name for axis in axes])]
        chosen = (table["grid"] == name) & table["measure"].isin(measures)
        chosen &= table["point"].isin([point.folder_name for point in (*points, *subtracted)])
        if panel.series:
            kept = [*panel.series, *(name + SPREAD for name in panel.series)]
            chosen &= table["series"].isin(kept) | (table["measure"] == measures[-1])
        rows = table[chosen]
        if panel.best is not None:
            x = panel.x if any(axis.name == panel.x for axis in axes) else ""
            names = [name for name in (x, panel.lines, *panel.per) if name]
            points = _best_of_each(panel.best, names, points, rows[rows["measure"] == panel.measures[0]])
            rows = rows[rows["point"].isin([point.folder_name for point in points])]
        return cls(plan, panel, name, axes, points, rows)

    @property
    def title(self) -> str:
        """The title of the panel's first measure, with its unit; of differences, with what is subtracted."""
        title = self.title_of(self.panel.measures[0])
        if not self.panel.minus:
            return title
        named = [(self.axis(name), setting) for name, setting in self.panel.minus.items()]
        whose = ", ".join(named_setting(axis, setting) for axis, setting in named if axis is not None)
        what = title.removesuffix(", %") if self._first.unit == PERCENTAGE_POINTS else title
        return f"{what} less that of {whose}{', points' if self._first.unit == PERCENTAGE_POINTS else ''}"

    def title_of(self, measure: str) -> str:
        """The title of a measure, with its unit."""
        return self.plan.study.title_of(measure)

    @property
    def _first(self) -> Measure:
        """The panel's first measure."""
        return measure_named(self.panel.measures[0])[0]

    @property
    def is_computed(self) -> bool:
        """Whether all measures of the panel follow from specs, without training and without timing."""
        return all(measure_named(measure)[0].is_exact for measure in self.panel.measures)

    @property
    def seeds(self) -> int:
        """The number of seeds of its rows."""
        return int(self.rows["seed"].nunique())

    @property
    def means_in_words(self) -> str:
        """What its values are means of, such as ``Mean of 5 seeds``, or that there is one, or none is needed.

        Times of one spec are repetitions, not seeds.
        """
        timed = any(measure_named(measure)[0].is_timed for measure in self.panel.measures)
        noun = "repetition" if timed else "seed"
        if self.seeds > 1:
            return f"Mean of {text.how_many(self.seeds, noun)}"
        return "Computed without training" if self.is_computed else f"One {noun}"

    @property
    def measure_of_x(self) -> str:
        """The measure that is the panel's x; "" where its x is an axis, or rounds."""
        return self.panel.measure_of_x([axis.name for axis in self.axes])

    @property
    def title_of_x(self) -> str:
        """The title of the x axis: of its measure, its axis, or rounds."""
        if self.measure_of_x:
            return self.title_of(self.measure_of_x)
        axis = self.axis(self.panel.x)
        return self.plan.study.round_name if axis is None else axis.words

    def axis(self, name: str) -> StudyAxis | None:
        """The grid's axis called ``name``; ``None`` if there is none."""
        return next((axis for axis in self.axes if axis.name == name), None)

    def series(self, measure: str) -> list[str]:
        """The names of the series of a measure in the rows, without those of standard deviations."""
        found = self.rows[self.rows["measure"] == measure]["series"]
        return [str(name) for name in dict.fromkeys(found) if not str(name).endswith(SPREAD)]

    def mean_at(self, point: StudyPoint, measure: str, series: str) -> Mean | None:
        """The mean over seeds of ``measure`` and ``series`` at a point; ``None`` if it was not measured.

        Of a measure over rounds it is that of the last round. Of ε it is the largest over seeds. NaN where a
        seed has no value, as it never reached an accuracy: those that did are not like all. In a panel with
        ``minus`` it is the mean of the seeds' differences; ``None`` where a term was not measured.
        """
        chosen = self._of(point, measure, series)
        if not len(chosen):
            return None
        last = last_by_seed(chosen)
        if self.panel.minus and measure != self.measure_of_x:
            other = self._of(point.with_settings(self.panel.minus, points_of(self.axes)), measure, series)
            if not len(other):
                return None
            last = last.sub(last_by_seed(other))
        if last.isna().any():
            return Mean(math.nan, math.nan)
        if measure_named(measure)[0].is_epsilon:
            return Mean(float(last.max()), math.nan)
        return mean(last)

    def curve(self, point: StudyPoint, measure: str, series: str) -> list[tuple[float, Mean]]:
        """Pairs (round, mean over seeds) of ``measure`` and ``series`` at a point, in the order of rounds.

        Of ε, too, it is the mean. [] if nothing was measured.
        """
        chosen = self._of(point, measure, series)
        found = chosen.groupby("at")["value"]
        return [(cast(float, at), mean(values)) for at, values in found]

    def _of(self, point: StudyPoint, measure: str, series: str) -> pd.DataFrame:
        """The rows of one point, measure and series."""
        rows = self.rows
        same = (
            (rows["point"] == point.folder_name) & (rows["measure"] == measure) & (rows["series"] == series)
        )
        return rows[same]

    def paper_values(self, measure: str) -> Iterator[tuple[PaperValue, StudyPoint]]:
        """Yield the values that the paper states of a measure, each with its point, at the panel's points."""
        study = self.plan.study
        for value in study.values:
            if value.measure != measure or study.grid_name(value.grid) != self.name:
                continue
            if value.minus != self.panel.minus:
                continue
            for point in self.points:
                if point.matches(value.where):
                    yield value, point

    def figure_of(self, measure: str, found: Mean | None) -> str:
        """A measured value as text; "–" for none.

        ε is rounded up; other values have half of their 95 % interval where seeds differ.
        """
        if found is None:
            return "–"
        if measure_named(measure)[0].is_epsilon:
            return upper_bound(found.value)
        return with_half_width(found.value, found.half_width)


def _best_of_each(
    best: Best, names: Sequence[str], points: Sequence[StudyPoint], rows: pd.DataFrame
) -> tuple[StudyPoint, ...]:
    """Of ``points`` that are alike in the axes ``names`` only the best one each.

    ``rows``: of the measure that decides.
    """
    alike: dict[tuple[Any, ...], list[StudyPoint]] = {}
    for point in points:
        alike.setdefault(tuple(point.settings[name] for name in names), []).append(point)
    found = (best_point(several, rows, best) for several in alike.values())
    return tuple(point for point in found if point is not None)

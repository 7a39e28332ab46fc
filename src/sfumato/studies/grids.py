"""A study in one form: the sweeps of its grids, and what its points are called."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.rounding import number
from sfumato.studies.measures.registry import watched_observer
from sfumato.studies.references import same_setting
from sfumato.studies.study import Panel, Study, StudyAxis, with_minus
from sfumato.sweeps.grid import Axis, as_yaml, grid
from sfumato.sweeps.request import SweepRequest

PAPER_FORM = "paper"
TABLE_FILE = "results.parquet"
"""Of a study that was run, in its folder."""


@dataclass(frozen=True)
class StudyPlan:
    """A study in one form, before anything is computed.

    Attributes:
        name: of the study.
        study: the content of its file, with the grids of this form.
        form: name of the form, which chooses data and model.
        quick: whether it is shortened; then no statement is judged.
        seeds: number of seeds of grids that do not state their own.
    """

    name: str
    study: Study
    form: str
    quick: bool
    seeds: int

    @classmethod
    def of(
        cls, name: str, study: Study, *, paper: bool = False, quick: bool = False, seeds: int | None = None
    ) -> StudyPlan:
        """The plan of a study in its default form, or in the paper's.

        Args:
            name: of the study.
            study: the content of its file.
            paper: whether to use the paper's own data and model.
            quick: whether to shorten it; a study that cannot be shortened stays as it is.
            seeds: number of seeds; ``None``: as the study states.

        Raises:
            SpecError: the study has no form with the paper's own data and model.
        """
        form = PAPER_FORM if paper else study.first_form
        if form not in study.forms:
            raise SpecError(Argument("paper"), name, f"has no such form; it has {', '.join(study.forms)}")
        study = study.in_form(form)
        quick = quick and study.can_be_shortened
        return cls(name, study, form, quick, seeds or (study.quick.seeds if quick else study.seeds))

    def folder(self, out: Path) -> Path:
        """The folder of its results: one for each form within ``out``, the folder of all studies.

        Such as ``OUT/h2fdp/fig6/fmnist``, or ``fmnist-quick`` where it is shortened.
        """
        return out / self.name / (f"{self.form}-quick" if self.quick else self.form)

    @property
    def axis_names(self) -> list[str]:
        """Names of the axes of all grids, each once, in order."""
        return list(dict.fromkeys(axis.name for grid in self.study.grids for axis in self.axes(grid)))

    def axes(self, name: str) -> tuple[StudyAxis, ...]:
        """The axes of the grid ``name`` in order, with the values that this form keeps.

        Raises:
            KeyError: the form has no such grid.
        """
        return tuple(map(self._kept, self.study.grids[name].over))

    def _kept(self, axis: StudyAxis) -> StudyAxis:
        """The axis with the settings that a shortened study keeps of it.

        Keys that the form sets have the form's value in every case.
        """
        kept = self.study.quick.keep.get(axis.name, axis.settings) if self.quick else axis.settings
        if not axis.cases:
            return axis.model_copy(update={"values": tuple(value for value in axis.values if value in kept)})
        sets = self._form_changes
        cases = {
            name: {key: sets.get(key, value) for key, value in keys.items()}
            for name, keys in axis.cases.items()
            if name in kept
        }
        return axis.model_copy(update={"cases": cases})

    def seeds_of(self, name: str) -> int:
        """The number of seeds of the grid ``name``: its own, else that of the study."""
        own = self.study.grids[name].seeds
        return self.seeds if own is None else own

    def request(self, name: str, out: Path) -> SweepRequest:
        """The sweep that computes the grid ``name`` in the folder ``out`` of all studies.

        Raises:
            SpecError: no point of it has a valid spec, or its folder holds something else.
        """
        section = self.study.grids[name]
        return SweepRequest.of(
            section.spec,
            self.sweep_axes(name),
            seeds=self.seeds_of(name),
            out=self.folder(out) / name,
            account_only=not section.trains,
            overrides=self.overrides(name),
        )

    def sweep_axes(self, name: str) -> list[Axis]:
        """The axes of the grid ``name``, in the type of a sweep."""
        return [_sweep_axis(axis) for axis in self.axes(name)]

    def overrides(self, name: str) -> list[str]:
        """`changes` of the grid ``name`` as ``key=value`` texts, as ``--set`` takes them."""
        return [f"{key}={as_yaml(value)}" for key, value in self.changes(name).items()]

    def changes(self, name: str) -> dict[str, Any]:
        """Keys and values that are set in every spec of the grid ``name``, by the form and by shortening.

        ``watch`` is among them where ε is measured: it lists the observers that measures name.
        """
        changes = self._form_changes
        seen = {
            observer for measure in self.measures(name) if (observer := watched_observer(measure)) is not None
        }
        return changes | ({"watch": sorted(seen)} if seen else {})

    @property
    def _form_changes(self) -> dict[str, Any]:
        """Keys, such as ``data.name``, with the values that the form, and shortening, set in every spec."""
        return self.study.forms[self.form].changes | (self.study.quick.changes if self.quick else {})

    def measures(self, name: str) -> list[str]:
        """The measures of the grid ``name`` that any panel, statement or value of the paper uses.

        Each once; [] where none is used.
        """
        return list(dict.fromkeys(measure for measure, _ in self._asked(name)))

    def is_asked(self, name: str, measure: str, point: StudyPoint) -> bool:
        """Whether a panel, statement or value of the paper uses ``measure`` at ``point`` of a grid.

        ``name``: of the grid.
        """
        return any(one == measure and point.matches(where) for one, where in self._asked(name))

    def series_of(self, name: str, measure: str) -> set[str] | None:
        """The series of a measure of the grid ``name`` that are used; ``None``: all of them.

        The empty name is the series of a measure that has only one.
        """
        found: set[str] = set()
        for panel in self._panels(name):
            if measure in panel.measures:
                if not panel.series:
                    return None
                found |= set(panel.series)
        if any(self._measure_of_x(panel) == measure for panel in self._panels(name)):
            return None
        terms = [*self.study.values, *(term for one in self.study.statements for term in one.terms)]
        return found | {term.series for term in terms if term.measure == measure}

    def _asked(self, name: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The measures of the grid ``name`` that panels, values and statements use.

        A value is one of the axis, or a list of them; several uses of a measure are several pairs.

        Returns:
            Pairs of a measure and the values of axes, by name, at the points where it is used.
        """
        panels = self.study.panels
        asked = [(panel.grid, measure, panel.where) for panel in panels for measure in panel.measures]
        asked += [(p.grid, name, with_minus(p)) for p in panels if p.minus for name in p.measures]
        asked += [(panel.grid, x, panel.where) for panel in panels if (x := self._measure_of_x(panel))]
        asked += [(value.grid, value.measure, value.where) for value in self.study.values]
        for statement in self.study.statements:
            asked += [(term.grid, term.measure, term.where) for term in statement.terms]
            asked += [
                (term.grid, term.measure, with_minus(term)) for term in statement.compared if term.minus
            ]
        return [(measure, where) for grid, measure, where in asked if self.study.grid_name(grid) == name]

    def _panels(self, name: str) -> list[Panel]:
        """The panels of the grid ``name``."""
        return [panel for panel in self.study.panels if self.study.grid_name(panel.grid) == name]

    def _measure_of_x(self, panel: Panel) -> str:
        """The measure that is the x of ``panel``; "" where an axis is, or rounds are."""
        grid = self.study.grids[self.study.grid_name(panel.grid)]
        return panel.measure_of_x([axis.name for axis in grid.over])


@dataclass(frozen=True)
class StudyPoint:
    """A point of a grid.

    Attributes:
        folder_name: of its folder in the sweep.
        settings: the value of every axis, by the axis's name.
    """

    folder_name: str
    settings: Mapping[str, Any]

    def matches(self, where: Mapping[str, Any]) -> bool:
        """Whether the point has the values in ``where``, by name of the axis: one value, or any of a list.

        Axes that ``where`` leaves out may have any value.

        Raises:
            KeyError: ``where`` names an axis that the point does not have.
        """
        return all(
            any(same_setting(self.settings[name], value) for value in _listed(wanted))
            for name, wanted in where.items()
        )

    def with_settings(self, settings: Mapping[str, Any], points: Sequence[StudyPoint]) -> StudyPoint:
        """The one of ``points`` that has these ``settings``, by name of the axis, and else the point's own.

        Raises:
            StopIteration: there is none.
        """
        wanted = {**self.settings, **settings}
        return next(point for point in points if point.matches(wanted))


def points_of(axes: Sequence[StudyAxis]) -> tuple[StudyPoint, ...]:
    """Every point of the grid with these ``axes``, in the order of a sweep: the last axis varies fastest."""
    names = [axis.name for axis in axes]
    chosen = itertools.product(*(axis.settings for axis in axes))  # in the order of `grid`
    return tuple(
        StudyPoint(point.name, dict(zip(names, settings, strict=True)))
        for point, settings in zip(grid([_sweep_axis(axis) for axis in axes]), chosen, strict=True)
    )


def setting_text(value: Any) -> str:
    """The value of an axis as text."""
    return number(value) if isinstance(value, float) else str(value)


def named_setting(axis: StudyAxis, setting: Any) -> str:
    """A setting with the name of its axis, ``s = 5``; a case is named without, unless it is but a number."""
    written = setting_text(setting)
    if axis.cases and re.search(r"[^\d.,]", written):
        return written
    return f"{axis.words.partition(',')[0]} = {written}"


def _listed(wanted: Any) -> Sequence[Any]:
    """The values in ``wanted``: those of a list, else it alone."""
    return wanted if isinstance(wanted, list | tuple) else (wanted,)


def _sweep_axis(axis: StudyAxis) -> Axis:
    """The axis as a sweep has it: the keys of cases vary together."""
    if not axis.cases:
        assert axis.key is not None
        return Axis.of(axis.key, axis.values)
    keys = tuple(next(iter(axis.cases.values())))
    return Axis.of(keys, [tuple(case[key] for key in keys) for case in axis.cases.values()])

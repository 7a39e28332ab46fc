"""Refuses what a study names but does not have: grids, axes, values of axes, measures, and forms."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sfumato.errors import SpecError
from sfumato.spec.base import closest_hint
from sfumato.spec.refusals import Refused
from sfumato.studies.measures.registry import is_measure, measure_named
from sfumato.studies.study import Panel, PaperStatement, PaperValue, Study, StudyAxis, StudyGrid, StudyTerm


def check_references(study: Study) -> Iterator[Refused]:
    """Yield a refusal for everything that a study names but does not have, and for a form without a panel.

    It may name grids, axes, values of an axis, measures and forms. Raises nothing: what is wrong is in the
    refusals, each with its dotted key, value and what is allowed.
    """
    for number, panel in enumerate(study.panels):
        yield from _of_panel(study, panel, f"panels[{number}]")
    for number, value in enumerate(study.values):
        yield from _of_point(study, value, f"values[{number}]", whole=False)
        yield from _of_minus(study, value, f"values[{number}]")
    for number, statement in enumerate(study.statements):
        yield from _of_statement(study, statement, f"statements[{number}]")
    yield from _of_titles(study)
    yield from _of_forms(study)
    for axis, kept in study.quick.keep.items():
        found = [one for grid in study.grids.values() if (one := grid.axis(axis)) is not None]
        if not found:
            names = dict.fromkeys(a.name for grid in study.grids.values() for a in grid.over)
            yield Refused(f"quick.keep.{axis}", None, f"is no axis; axes: {', '.join(names)}")
            continue
        known = tuple(dict.fromkeys(setting for one in found for setting in one.settings))
        if any(setting not in known for setting in kept):
            yield Refused(f"quick.keep.{axis}", list(kept), f"must be some of {_listed(known)}")
        elif any(not set(kept) & set(one.settings) for one in found):
            yield Refused(f"quick.keep.{axis}", list(kept), "leaves a grid without any point")


def _of_titles(study: Study) -> Iterator[Refused]:
    """Yield refusals of titles of measures that no panel shows."""
    shown = {name for panel in study.panels for name in (*panel.measures, panel.x)}
    for name in study.titles:
        if name not in shown:
            yield Refused(f"titles.{name}", None, "is a measure of no panel; titles are those of panels")


def _of_forms(study: Study) -> Iterator[Refused]:
    """Yield refusals of forms that are missing or show nothing, and of statements that no form can check."""
    if not any(grid.forms for grid in study.grids.values()):
        return
    for name, grid in study.grids.items():
        for unknown in sorted(set(grid.forms) - set(study.forms)):
            yield Refused(f"grids.{name}.forms", unknown, f"is no form; forms: {', '.join(study.forms)}")
    in_forms = [study.in_form(form) for form in study.forms]
    for form, restricted in zip(study.forms, in_forms, strict=True):
        if not restricted.panels:
            yield Refused(f"forms.{form}", None, "shows nothing: no panel is of a grid of this form")
    for number, statement in enumerate(study.statements):
        if not any(statement in restricted.statements for restricted in in_forms):
            yield Refused(f"statements[{number}]", None, "compares grids that no form has together")


def _of_panel(study: Study, panel: Panel, place: str) -> Iterator[Refused]:
    """Yield refusals of ``panel``, at the dotted key ``place``: of its grid, measures, axes and points."""
    grid = yield from _known_grid(study, panel.grid, place)
    if grid is None:
        return
    for measure in panel.measures:
        yield from _known_measure(measure, grid, f"{place}.measures")
    unknown = False
    for key in ("x", "y", "lines"):
        name = getattr(panel, key)
        if not name or grid.axis(name) is not None or (key == "x" and panel.is_over_rounds):
            continue
        if key == "x" and panel.kind == "lines" and is_measure(name):
            yield from _measure_of_x(panel, grid, place)
        else:
            yield Refused(f"{place}.{key}", name, _no_axis(grid))
        unknown = True
    yield from _known_settings(grid, panel.where, f"{place}.where")
    yield from _known_settings(grid, panel.minus, f"{place}.minus")
    for name in panel.per:
        if grid.axis(name) is None:
            yield Refused(f"{place}.per", name, _no_axis(grid))
    if panel.kind != "table" and panel.best is None and not unknown:
        drawn = {name for name in (panel.x, panel.y, panel.lines) if name}
        yield from _one_point(grid, fixed_axes(panel.where) | drawn, f"{place}.where")


def _measure_of_x(panel: Panel, grid: StudyGrid, place: str) -> Iterator[Refused]:
    """Yield refusals of the measure that is the x of ``panel``, at the dotted key ``place``.

    Each point of a line must have one place on x, the same for every seed, and one axis varies along it.
    """
    refused = list(_known_measure(panel.x, grid, f"{place}.x"))
    yield from refused
    if refused:
        return
    measure, _ = measure_named(panel.x)
    if not measure.is_exact or measure.has_several:
        allowed = "must be an axis, at (rounds), or a measure with one value for a spec, known without "
        yield Refused(f"{place}.x", panel.x, f"{allowed}training, such as epsilon:public")
        return
    left = _left(grid, fixed_axes(panel.where) | {panel.lines, *panel.per})
    if panel.best is None and len(left) > 1:
        names = ", ".join(axis.name for axis in left)
        allowed = f"has a line through {math.prod(len(axis.settings) for axis in left)} points of the axes"
        yield Refused(f"{place}.x", panel.x, f"{allowed} {names}; give all but one of them in lines or where")


def _of_term(study: Study, term: StudyTerm, place: str) -> Iterator[Refused]:
    """Yield refusals of the point and the minus of ``term``, of a statement, at the dotted key ``place``."""
    yield from _of_point(study, term, place, whole=term.best is None)
    yield from _of_minus(study, term, place)


def _of_minus(study: Study, term: StudyTerm | PaperValue, place: str) -> Iterator[Refused]:
    """Yield refusals of the settings that ``term``, at the dotted key ``place``, subtracts."""
    if (grid := study.grids.get(study.grid_name(term.grid))) is not None:
        yield from _known_settings(grid, term.minus, f"{place}.minus")


def _of_point(study: Study, term: Any, place: str, *, whole: bool = True) -> Iterator[Refused]:
    """Yield refusals of ``term``, a measure at a point, at the dotted key ``place``.

    ``whole``: whether its ``where`` must leave exactly one point.
    """
    grid = yield from _known_grid(study, term.grid, place)
    if grid is None:
        return
    yield from _known_measure(term.measure, grid, f"{place}.measure")
    yield from _known_settings(grid, term.where, f"{place}.where")
    if whole:
        yield from _one_point(grid, term.where, f"{place}.where")


def _of_statement(study: Study, statement: PaperStatement, place: str) -> Iterator[Refused]:
    """Yield refusals of the terms and directions of ``statement``, at the dotted key ``place``."""
    for key in ("value", "minus", "relative_to"):
        term: StudyTerm | None = getattr(statement, key)
        if term is not None:
            yield from _of_term(study, term, f"{place}.{key}")
    for key in ("rises", "falls"):
        along = getattr(statement, key)
        if along is None:
            continue
        yield from _of_point(study, along, f"{place}.{key}", whole=False)
        grid = study.grids.get(study.grid_name(along.grid))
        if grid is None:
            continue
        if grid.axis(along.along) is None:
            yield Refused(f"{place}.{key}.along", along.along, _no_axis(grid))
        else:
            yield from _one_point(grid, {*along.where, along.along}, f"{place}.{key}.where")


def _known_grid(study: Study, name: str, place: str) -> Any:
    """Look up the grid ``name``; yields a refusal at ``place`` if there is none, and returns it or ``None``.

    An empty name stands for the study's only grid (`Study.grid_name`).
    """
    grid = study.grids.get(study.grid_name(name))
    if grid is None:
        listed = ", ".join(study.grids)
        yield Refused(
            f"{place}.grid", name or None, f"must be one of {listed}{closest_hint(name, study.grids)}"
        )
    return grid


def _known_measure(name: str, grid: StudyGrid, place: str) -> Iterator[Refused]:
    """Yield a refusal at ``place`` unless there is such a measure, and ``grid`` trains if it is of runs."""
    try:
        measure, _ = measure_named(name)
    except SpecError as error:
        yield Refused(place, error.value, error.allowed)
        return
    if measure.source == "run" and not grid.trains:
        yield Refused(place, name, "is measured of runs, and this grid has trains: false")


def _known_settings(grid: StudyGrid, where: Mapping[str, Any], place: str) -> Iterator[Refused]:
    """Yield a refusal at ``place`` for each axis or value in ``where`` that ``grid`` does not have."""
    for name, value in where.items():
        axis = grid.axis(name)
        if axis is None:
            yield Refused(f"{place}.{name}", None, _no_axis(grid))
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            if not any(same_setting(one, setting) for setting in axis.settings):
                yield Refused(f"{place}.{name}", one, f"must be one of {_listed(axis.settings)}")


def _one_point(grid: StudyGrid, fixed: Collection[str], place: str) -> Iterator[Refused]:
    """Yield a refusal at ``place`` unless the axes that ``fixed`` names leave one point of ``grid``."""
    left = _left(grid, fixed)
    if left:
        points = math.prod(len(axis.settings) for axis in left)
        yield Refused(
            place, None, f"selects {points} points; give {', '.join(axis.name for axis in left)} too"
        )


def _left(grid: StudyGrid, fixed: Collection[str]) -> list[StudyAxis]:
    """The axes of ``grid`` that still vary where those that ``fixed`` names do not."""
    return [axis for axis in grid.over if axis.name not in fixed and len(axis.settings) > 1]


def fixed_axes(where: Mapping[str, Any]) -> set[str]:
    """Names of the axes of which ``where`` gives one setting, and no list of them."""
    return {name for name, wanted in where.items() if not isinstance(wanted, list | tuple)}


def same_setting(one: Any, other: Any) -> bool:
    """Whether two values of an axis are equal: 1 equals 1.0, but true does not equal 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _no_axis(grid: StudyGrid) -> str:
    """What is allowed in place of an axis that ``grid`` does not have: the names of its axes."""
    return f"is no axis of this grid; axes: {', '.join(axis.name for axis in grid.over)}"


def _listed(settings: tuple[Any, ...]) -> str:
    """Values of an axis as text, joined by commas."""
    return ", ".join(map(str, settings))

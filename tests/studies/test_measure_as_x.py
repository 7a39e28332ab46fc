"""Panels of lines over a measure that follows from the spec, such as an ε: checked, computed, drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_study_files import tiny, written

from sfumato.errors import SpecError
from sfumato.report.figures.figure import Figure
from sfumato.studies.grids import StudyPlan, points_of
from sfumato.studies.load import load_study
from sfumato.studies.page.curves import line_figure
from sfumato.studies.page.panel_data import PanelData

EPSILON = "epsilon:public"
OVER_EPSILON = {"kind": "lines", "title": "A", "measures": ["accuracy"], "x": EPSILON, "lines": "trust"}


def planned(folder: Path, panel: dict[str, Any]) -> StudyPlan:
    document = tiny()
    document["panels"] = [panel]
    return StudyPlan.of(*load_study(written(folder, document)))


def drawn(folder: Path, epsilons: dict[tuple[float, str], float], panel: dict[str, Any]) -> Figure:
    """The figure where the points (z, trust) have these ε; z is the accuracy of each, in percent."""
    plan = planned(folder, panel)
    rows = [
        {"grid": "main", "point": point.folder_name, "seed": seed, "measure": measure, "series": "",
         "at": math.nan, "unit": -1, "observer": -1, "value": value}
        for point in points_of(plan.axes("main"))
        for seed in (0, 1)
        for measure, value in (
            ("accuracy", point.settings["z"]),
            (EPSILON, epsilons[point.settings["z"], point.settings["trust"]]),
        )
    ]  # fmt: skip
    return line_figure(PanelData.of(plan, plan.study.panels[0], pd.DataFrame(rows)))


ALL_FINITE = {(1.0, "none"): 4.0, (2.0, "none"): 0.123456, (1.0, "all"): 3.0, (2.0, "all"): 2.0}


def test_lines_go_from_the_least_to_the_largest_epsilon(tmp_path: Path) -> None:
    figure = drawn(tmp_path, ALL_FINITE, OVER_EPSILON)
    lines = {trace["name"]: trace for trace in figure.data if trace["mode"] == "lines+markers"}
    assert lines["none"]["x"] == [0.123456, 4.0]
    assert lines["none"]["y"] == [2.0, 1.0]
    assert lines["all"]["x"] == [2.0, 3.0]
    assert lines["all"]["text"] == ["z = 2", "z = 1"]  # which point is which
    assert figure.layout["xaxis"]["title"]["text"] == "rigorous ε towards the public"
    assert ">none, z = 2</td>" in figure.table
    assert ">0.1235</td>" in figure.table  # rounded up


def test_the_papers_value_stands_at_the_epsilon_of_its_point(tmp_path: Path) -> None:
    marks = [
        trace for trace in drawn(tmp_path, ALL_FINITE, OVER_EPSILON).data if trace["name"] == "the paper"
    ]
    assert [(mark["x"], mark["y"]) for mark in marks] == [([3.0], [50.0])]


def test_a_point_without_a_finite_epsilon_is_not_drawn_but_said(tmp_path: Path) -> None:
    figure = drawn(tmp_path, ALL_FINITE | {(1.0, "all"): math.inf}, OVER_EPSILON)
    shown = [trace["x"] for trace in figure.data if trace["name"] == "all"]
    assert shown == [[2.0]]
    assert "so not drawn: z = 1, all." in figure.caption


def test_the_measure_is_computed_and_watched_where_the_panel_needs_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, OVER_EPSILON | {"where": {"z": [1.0, 2.0], "trust": ["all"]}})
    assert plan.measures("main") == ["accuracy", EPSILON]
    assert plan.changes("main")["watch"] == ["public"]
    assert plan.series_of("main", EPSILON) is None
    asked = {p.settings["trust"] for p in points_of(plan.axes("main")) if plan.is_asked("main", EPSILON, p)}
    assert asked == {"all"}


def test_of_tuned_points_the_best_of_each_setting_is_drawn(tmp_path: Path) -> None:
    figure = drawn(tmp_path, ALL_FINITE, OVER_EPSILON | {"best": "highest"})
    shown = {trace["name"]: trace["x"] for trace in figure.data if trace["mode"] == "lines+markers"}
    assert shown == {"none": [0.123456], "all": [2.0]}


@pytest.mark.parametrize(("panel", "said"), [
    (OVER_EPSILON | {"x": "loss"},
     "panels[0].x: got 'loss'; must be an axis, at (rounds), or a measure with one value for a spec, known "
     "without training, such as epsilon:public"),
    (OVER_EPSILON | {"x": "pairs"}, "got 'pairs'; must be an axis, at (rounds), or a measure with one value"),
    (OVER_EPSILON | {"x": "election_seconds"}, "got 'election_seconds'; must be an axis, at (rounds)"),
    (OVER_EPSILON | {"x": "epsilon"}, "panels[0].x: got 'epsilon'; needs an argument: epsilon:..."),
    (OVER_EPSILON | {"x": "nothing"}, "panels[0].x: got 'nothing'; is no axis of this grid; axes: z, trust"),
    (OVER_EPSILON | {"kind": "bars"}, f"panels[0].x: got '{EPSILON}'; is no axis of this grid"),
    ({key: value for key, value in OVER_EPSILON.items() if key != "lines"},
     "has a line through 4 points of the axes z, trust; give all but one of them in lines or where"),
])  # fmt: skip
def test_a_measure_that_cannot_be_x_is_refused_in_one_line(
    panel: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as raised:
        planned(tmp_path, panel)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)

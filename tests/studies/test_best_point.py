"""Panels that show of several points only the best."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest
from test_study_files import tiny, written

from sfumato.studies.grids import StudyPlan, points_of
from sfumato.studies.load import load_study
from sfumato.studies.page.panel_data import PanelData

ACCURACY = {("none", 1.0): 30.0, ("all", 1.0): 50.0, ("none", 2.0): 60.0, ("all", 2.0): 40.0}
"""By trust and z, of both seeds."""


@pytest.mark.parametrize(
    ("panel", "shown"),
    [
        ({"kind": "bars", "x": "z", "best": "highest"}, {("all", 1.0), ("none", 2.0)}),
        ({"kind": "bars", "x": "z", "best": "lowest"}, {("none", 1.0), ("all", 2.0)}),
        ({"kind": "table", "best": "highest", "per": ["trust"]}, {("all", 1.0), ("none", 2.0)}),
        ({"kind": "table", "best": "highest"}, {("none", 2.0)}),
    ],
)
def test_points_that_are_alike_in_x_lines_and_per_are_one(
    panel: dict[str, object], shown: set[tuple[str, float]], tmp_path: Path
) -> None:
    document = tiny()
    document["panels"] = [{"title": "Best", "measures": ["accuracy"]} | panel]
    _, study = load_study(written(tmp_path, document))
    plan = StudyPlan.of("mine", study)
    rows = [
        {"grid": "main", "point": point.folder_name, "seed": seed, "measure": "accuracy", "series": "",
         "at": math.nan, "value": ACCURACY[point.settings["trust"], point.settings["z"]] + seed}
        for point in points_of(plan.axes("main"))
        for seed in range(2)
    ]  # fmt: skip
    data = PanelData.of(plan, study.panels[0], pd.DataFrame(rows))
    assert {(point.settings["trust"], point.settings["z"]) for point in data.points} == shown
    assert set(data.rows["point"]) == {point.folder_name for point in data.points}

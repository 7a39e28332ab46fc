"""Measures of finished runs, beside what follows by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest

from sfumato.studies.measures.base import Measurement, PointFolder
from sfumato.studies.measures.computing import measure_folder

NONE = math.nan


def folder(**columns: list[float]) -> PointFolder:
    """A point's folder whose run has these columns of metrics, from round 1."""
    metrics = pd.DataFrame({"round": range(1, 1 + len(next(iter(columns.values())))), **columns})
    return cast(PointFolder, SimpleNamespace(run=SimpleNamespace(metrics=metrics)))


def test_volatility_is_of_changes_in_the_second_half() -> None:
    """Of .5, .6, .5, .8 at rounds 4 to 7 of 7: changes of 10, -10 and 30 points; standard deviation 20."""
    (found,) = measure_folder("volatility", folder(accuracy=[0.1, 0.9, 0.2, 0.5, 0.6, 0.5, 0.8]))
    assert found.value == pytest.approx(20.0)


def test_volatility_is_of_evaluated_rounds_only() -> None:
    (found,) = measure_folder("volatility", folder(accuracy=[NONE, 0.5, NONE, 0.6, NONE, 0.5, NONE, 0.8]))
    assert found.value == pytest.approx(100 * math.sqrt(0.08))  # 4, 6 and 8 of 8: -10 and 30 points
    (found,) = measure_folder("volatility", folder(accuracy=[0.1, NONE, 0.5, 0.6]))
    assert math.isnan(found.value)  # a single change
    (found,) = measure_folder("volatility", folder(loss=[1.0, 2.0]))
    assert math.isnan(found.value)


def test_intervals_of_control_are_at_their_rounds_and_without_control_there_are_none() -> None:
    found = measure_folder("interval_by_round", folder(interval=[7.0, NONE, 4.0]))
    assert found == [Measurement(7.0, at=1.0), Measurement(4.0, at=3.0)]
    assert measure_folder("interval_by_round", folder(loss=[1.0])) == []

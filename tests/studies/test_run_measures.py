"""Measures of finished runs, beside what follows by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from report_factory import make_folder, metrics

from sfumato.studies.measures.base import Measurement, PointFolder
from sfumato.studies.measures.computing import measure_folder


def test_a_steady_rise_has_no_volatility(tmp_path: Path) -> None:
    frame = metrics(5).assign(accuracy=[0.9, 0.1, 0.2, 0.3, 0.4])
    folder = PointFolder(make_folder(tmp_path / "steady", frame=frame))
    (found,) = measure_folder("volatility:2", folder)
    assert found.value == pytest.approx(0.0, abs=1e-9)


def test_volatility_is_the_deviation_of_changes_between_evaluations(tmp_path: Path) -> None:
    """Changes of 10, −10 and 10 points, whose mean is 10/3."""
    frame = metrics(5).assign(accuracy=[0.3, math.nan, 0.4, 0.3, 0.4])
    folder = PointFolder(make_folder(tmp_path / "volatile", frame=frame))
    (found,) = measure_folder("volatility:1", folder)
    assert found.value == pytest.approx(((2 * (20 / 3) ** 2 + (40 / 3) ** 2) / 2) ** 0.5)


def test_rounds_with_a_larger_smoothness_are_counted_among_those_that_have_one(tmp_path: Path) -> None:
    frame = metrics(5).assign(smoothness=[math.nan, 0.1, 0.1, 4.0, 0.2])
    folder = PointFolder(make_folder(tmp_path / "controlled", frame=frame))
    assert measure_folder("smoothness_above:0.1", folder)[0].value == 50.0


def test_intervals_of_control_are_at_their_rounds_and_without_control_there_are_none(tmp_path: Path) -> None:
    controlled = metrics(3).assign(interval=[7.0, math.nan, 4.0])
    found = measure_folder(
        "interval_by_round", PointFolder(make_folder(tmp_path / "controlled", frame=controlled))
    )
    assert found == [Measurement(7.0, at=1.0), Measurement(4.0, at=3.0)]
    assert (
        measure_folder("interval_by_round", PointFolder(make_folder(tmp_path / "none", frame=metrics(3))))
        == []
    )


def test_accuracy_on_data_like_a_workers_own_is_the_last_evaluated_one(tmp_path: Path) -> None:
    frame = metrics(3).assign(personal_accuracy=[0.5, 0.75, math.nan])
    folder = PointFolder(make_folder(tmp_path / "groups", frame=frame))
    assert measure_folder("personal_accuracy", folder)[0].value == 75.0


def test_rounds_until_an_accuracy_end_with_the_first_evaluation_that_has_it(tmp_path: Path) -> None:
    frame = metrics(5).assign(accuracy=[0.1, math.nan, 0.5, 0.4, 0.75])
    folder = PointFolder(make_folder(tmp_path / "run", frame=frame))
    assert measure_folder("rounds_to:0.5", folder)[0].value == 3.0
    assert measure_folder("rounds_to:0.75", folder)[0].value == 5.0
    assert math.isnan(measure_folder("rounds_to:0.8", folder)[0].value)


def test_noise_of_control_and_its_longest_rounds(tmp_path: Path) -> None:
    frame = metrics(4).assign(interval=[7.0, 40.0, 40.0, 39.0], noise_factor=[2.0, 0.75, 0.75, 1.5])
    folder = PointFolder(make_folder(tmp_path / "controlled", frame=frame))
    assert [one.value for one in measure_folder("noise_factor_by_round", folder)] == [2.0, 0.75, 0.75, 1.5]
    assert measure_folder("interval_above:39", folder)[0].value == 50.0


def test_participants_of_control_have_a_series_for_each_kind_of_edge(tmp_path: Path) -> None:
    frame = metrics(3).assign(participants_trusted=[2.0, 3.0, 4.0], participants_untrusted=[5.0, 5.0, 2.0])
    folder = PointFolder(make_folder(tmp_path / "controlled", frame=frame))
    assert measure_folder("mean_participants", folder) == [
        Measurement(3.0, series="trusted edges"),
        Measurement(4.0, series="untrusted edges"),
    ]
    assert (
        measure_folder("mean_participants", PointFolder(make_folder(tmp_path / "none", frame=metrics(3))))
        == []
    )

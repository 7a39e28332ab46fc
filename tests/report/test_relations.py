"""ε under different neighbouring relations, or at different δ, are neither ranked nor drawn together."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report_factory import guarantee, metrics, quickstart_spec

from sfumato.report.figures.epsilon_curves import epsilon_figures
from sfumato.report.figures.score_against_epsilon import score_against_epsilon_figures
from sfumato.report.page.comparison import best_runs
from sfumato.report.results.comparability import have_comparable_epsilons, warnings_of_series
from sfumato.report.results.series import Series, load_series
from sfumato.report.results.summary import summarise

Make = Callable[..., Path]


def _runs(make: Make, *of: tuple[str, float, float]) -> tuple[Series, ...]:
    """Runs of (relation, ε towards the cloud, δ)."""
    folders = []
    for number, (neighbours, epsilon, delta) in enumerate(of):
        rows = [guarantee("device:0", "cloud", epsilon) | {"neighbours": neighbours}]
        privacy: dict[str, Any] = {"spec": "case", "delta": delta, "guarantees": rows, "claims": []}
        spec, frame = quickstart_spec(name=f"run-{number}"), metrics(5, epsilons={"cloud": epsilon})
        folders.append(make(f"run-{number}", spec=spec, frame=frame, privacy=privacy))
    return load_series(folders)


def _about_epsilon(series: tuple[Series, ...]) -> list[str]:
    summaries = [summarise(one) for one in series]
    drawn = [figure.title for figure in score_against_epsilon_figures(series, summaries)]
    return [*drawn, *(said for said in best_runs(series, summaries) if "ε" in said)]


def test_one_relation_is_compared(run_folder: Make) -> None:
    series = _runs(run_folder, ("replace", 1.0, 1e-5), ("replace", 2.0, 1e-5))
    assert have_comparable_epsilons(series)
    assert len(_about_epsilon(series)) == 2
    assert [figure.title.partition(",")[0] for figure in epsilon_figures(series)] == ["ε over rounds"]
    assert not warnings_of_series(series)


def test_two_relations_are_not_compared(run_folder: Make) -> None:
    series = _runs(run_folder, ("replace", 1.0, 1e-5), ("zero-out", 2.0, 1e-5))
    assert not have_comparable_epsilons(series)
    assert not _about_epsilon(series)
    assert len(epsilon_figures(series)) == 2
    (said,) = warnings_of_series(series)
    assert "replace in run-0; zero-out in run-1" in said


def test_two_deltas_are_not_compared(run_folder: Make) -> None:
    series = _runs(run_folder, ("zero-out", 1.0, 1e-5), ("zero-out", 2.0, 1e-6))
    assert not have_comparable_epsilons(series)
    assert not _about_epsilon(series)


def test_a_run_without_a_finite_epsilon_has_no_relation_to_compare(run_folder: Make) -> None:
    series = _runs(run_folder, ("replace", 1.0, 1e-5), ("zero-out", math.inf, 1e-5))
    assert have_comparable_epsilons(series)
    assert not warnings_of_series(series)

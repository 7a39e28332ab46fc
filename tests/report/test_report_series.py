"""Runs as lines: which folders are one series, and the mean and band over its seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from report_factory import metrics, quickstart_spec

from sfumato.errors import SpecError
from sfumato.report import compare
from sfumato.report.results.series import load_series, mean

Make = Callable[..., Path]


def test_mean_and_t_interval() -> None:
    # three values, two degrees of freedom: t = 4.30265
    found = mean([0.1, 0.2, 0.6, math.nan])
    assert found.value == pytest.approx(0.3)
    assert found.half_width == pytest.approx(
        4.30265 * np.std([0.1, 0.2, 0.6], ddof=1) / math.sqrt(3), rel=1e-5
    )


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_mean_of_nothing(values: list[float]) -> None:
    assert math.isnan(mean(values).value)


def test_a_single_seed_has_no_interval() -> None:
    assert mean([0.5]).value == 0.5
    assert math.isnan(mean([0.5]).half_width)


def test_seed_folders_are_one_series_however_they_are_given(run_folder: Make, tmp_path: Path) -> None:
    seeds = [
        run_folder(f"many/seed-{k}", quickstart_spec(seed=k), frame=metrics(4, seed=k)) for k in (0, 2, 10)
    ]
    run_folder("other", quickstart_spec(name="other"))
    together = load_series([tmp_path / "many", tmp_path / "other"])
    assert [(s.name, len(s.runs)) for s in together] == [("quickstart", 3), ("other", 1)]
    assert [run.path.name for run in together[0].runs] == ["seed-0", "seed-2", "seed-10"]
    (listed,) = load_series(seeds)
    assert len(listed.runs) == 3
    (twice,) = load_series([tmp_path / "many", seeds[0]])
    assert len(twice.runs) == 3


def test_runs_of_one_name_are_told_apart(run_folder: Make, tmp_path: Path) -> None:
    names = [s.name for s in load_series([run_folder("a"), run_folder("b")])]
    assert names == ["a", "b"]
    names = [s.name for s in load_series([run_folder("x/run"), run_folder("y/run")])]
    assert names == [str(tmp_path / "x/run"), str(tmp_path / "y/run")]
    other = run_folder("c", quickstart_spec(name="other"))
    names = [s.name for s in load_series([tmp_path / "a", tmp_path / "b", other])]
    assert names == ["quickstart (a)", "quickstart (b)", "other"]


def test_no_folder_is_refused() -> None:
    with pytest.raises(SpecError, match="at least one"):
        load_series([])


def test_curves(run_folder: Make) -> None:
    frames = [metrics(6, seed=k, every=2) for k in range(3)]
    folders = [run_folder(f"s/seed-{k}", frame=frame) for k, frame in enumerate(frames)]
    (series,) = load_series(folders)
    curve = series.curve("accuracy")
    assert curve.rounds.tolist() == [2, 4, 6]
    last = [frame["accuracy"].iloc[-1] for frame in frames]
    assert curve.mean[-1] == pytest.approx(np.mean(last))
    assert curve.high[-1] - curve.mean[-1] == pytest.approx(mean(last).half_width)
    assert series.final("accuracy").value == pytest.approx(np.mean(last))
    assert series.curve("bytes_up", cumulative=True).mean.tolist() == [520_000 * k for k in range(1, 7)]
    assert series.total("bytes_up", "bytes_down").value == 6 * 780_000
    assert len(series.curve("epsilon:nobody").rounds) == 0


def test_the_worst_seed_counts_for_epsilon(run_folder: Make) -> None:
    frames = [metrics(3, epsilons={"cloud": epsilon}) for epsilon in (2.0, math.inf)]
    (series,) = load_series([run_folder(f"s/seed-{k}", frame=frame) for k, frame in enumerate(frames)])
    rounds, worst = series.worst("epsilon:cloud")
    assert rounds.tolist() == [1, 2, 3]
    assert np.isinf(worst).all()


def test_comparison_table(run_folder: Make, tmp_path: Path) -> None:
    for k in range(3):
        run_folder(
            f"many/seed-{k}", quickstart_spec(name="many", seed=k), frame=metrics(4, seed=k, radio=False)
        )
    frame = metrics(15)
    table = compare([run_folder("one", frame=frame), tmp_path / "many"]).table()
    assert list(table["run"]) == ["quickstart", "many"]
    assert list(table["seeds"]) == [1, 3]
    assert list(table["rounds"]) == [15, 4]
    one, many = table.iloc[0], table.iloc[1]
    assert one["protocol"] == "h2fdp"
    assert one["final_accuracy"] == frame["accuracy"].iloc[-1]
    assert one["best_accuracy"] == frame["accuracy"].max()
    assert math.isnan(one["final_accuracy_half_width"])
    assert many["final_accuracy_half_width"] > 0
    assert one["epsilon_cloud"] == 8.0
    assert one["epsilon_own_edge"] == 71.3
    assert one["epsilon_other_edge"] == 6.4
    assert one["raw_to_trusted_edge"] == "120 of 200"
    assert one["energy_j"] == pytest.approx(frame["energy_j"].sum())
    assert math.isnan(many["energy_j"])
    assert math.isnan(many["delay_s"])
    assert one["total_bytes"] == 15 * 780_000


def test_comparison_is_drawn(run_folder: Make, tmp_path: Path) -> None:
    out = compare([run_folder("a"), run_folder("b")]).report(tmp_path / "both.html")
    page = out.read_text(encoding="utf-8")
    assert "<h1>a and b</h1>" in page
    assert "spec quickstart · protocol" in page

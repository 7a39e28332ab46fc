"""Accuracies come from finished runs that are named, and nothing is extrapolated."""

from __future__ import annotations

from pathlib import Path

import pytest
from explore_specs import TREE, edited

import sfumato as sf
from sfumato.explore import accuracy
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.accuracy import FinishedRun, estimate, finished_runs, first_accuracy
from sfumato.schedule.resolve import resolve
from sfumato.simulation.run import run_rounds


def done(name: str, accuracy: float, *overrides: str) -> FinishedRun:
    """A run that was done with these changes."""
    return FinishedRun(Path("runs") / name, resolve(sf.load_spec(TREE, overrides)).spec, accuracy)


VIEW = account_setting(edited(TREE))


def test_runs_of_the_same_setting_are_averaged_over_seeds():
    runs = [done("a", 0.5), done("b", 0.6, "seed=1"), done("c", 0.9, "training.rounds=4")]
    (said,) = estimate(VIEW, runs)
    assert said.startswith("Measured: 55.0 % ± ")
    assert "2 finished runs of this setting (seeds 0 and 1): runs/a and runs/b." in said


def test_a_seed_counts_once():
    runs = [done("a", 0.925), done("copy", 0.925)]
    (said,) = estimate(VIEW, runs)
    assert said.startswith("Measured: 92.5 % on held-out data, by 2 finished runs of this setting (seed 0)")
    (said,) = estimate(VIEW, [*runs, done("other", 0.825, "seed=1")])
    (once,) = estimate(VIEW, [runs[0], done("other", 0.825, "seed=1")])
    assert said.startswith("Measured: 87.5 % ± ")
    assert said.partition(" on held-out")[0] == once.partition(" on held-out")[0]


def test_the_name_and_what_is_shown_make_no_other_setting():
    (said,) = estimate(VIEW, [done("a", 0.5, "name=other", "watch=[public]", "evaluate_every=3")])
    assert said.startswith("Measured: 50.0 % on held-out data, by 1 finished run of this setting (seed 0)")


@pytest.mark.parametrize(
    "override",
    ["data.partition={labels_per_device: 2}", "model={kind: mlp, hidden: 4}", "topology.edges=4"],
)
def test_other_data_models_and_networks_say_nothing(override):
    assert estimate(VIEW, [done("a", 0.5, override)]) == [
        "No finished run has the same data, model and network: there is no estimate."
    ]


def test_near_runs_are_named_with_what_differs():
    runs = [
        done("far", 0.4, "training.rounds=9", "privacy.noise.epsilon=1", "trust={}"),
        done("near", 0.7, "privacy.noise.epsilon=16"),
    ]
    said = estimate(VIEW, runs)
    assert said[:2] == ["No finished run has this setting.", "The nearest finished runs:"]
    assert said[2] == "runs/near: 70.0 %, which differs in target ε (16 instead of 8)."
    assert said[3].startswith("runs/far: 40.0 %, which differs in target ε (1 instead of 8), ")


def test_between_two_runs_both_are_named_and_beyond_them_nothing_is_said():
    sides = [done("low", 0.4, "privacy.noise.epsilon=2"), done("high", 0.7, "privacy.noise.epsilon=16")]
    said = estimate(VIEW, sides)
    assert said[1] == (
        "Between two finished runs: 40.0 % with target ε 2 (runs/low), 70.0 % with target ε 16 (runs/high)."
    )
    beyond = account_setting(edited(TREE, "privacy.noise.epsilon=32"))
    assert not any("Between" in one for one in estimate(beyond, sides))
    both = [sides[0], done("two", 0.7, "privacy.noise.epsilon=16", "training.rounds=9")]
    assert not any("Between" in one for one in estimate(VIEW, both))


def test_a_pilot_of_the_setting_is_named_with_its_rounds():
    resolved = VIEW.report.plan.spec
    noise = resolved.privacy.noise.model_copy(update={"calibrated_from": None})
    pilot = resolved.model_copy(
        update={
            "training": resolved.training.model_copy(update={"rounds": 2}),
            "privacy": resolved.privacy.model_copy(update={"noise": noise}),
        }
    )
    said = estimate(VIEW, [FinishedRun(Path("runs/pilot"), pilot, 0.3)])
    assert "A pilot with the noise of this setting: 30.0 % after 2 of 3 rounds (runs/pilot)." in said
    differs = (
        "rounds (2 instead of 3) and noise (multipliers of single parties instead of "
        "sized for ε = 8 towards the cloud)"
    )
    assert said[-1] == f"runs/pilot: 30.0 %, which differs in {differs}."
    other = account_setting(edited(TREE, "privacy.noise.epsilon=4"))
    assert not any("pilot with" in one for one in estimate(other, [FinishedRun(Path("a"), pilot, 0.3)]))


def test_finished_runs_are_read_from_their_folders(tmp_path, no_report):
    assert finished_runs(tmp_path / "runs") == ((), 0)
    spec = sf.load_spec(TREE, ["training.rounds=1"])
    run = sf.run(spec, out=tmp_path / "runs" / "one")
    sf.run(spec.model_copy(update={"seed": 3}), out=tmp_path / "runs" / "two" / "seed-3")
    sf.run(spec, out=tmp_path / "runs" / "damaged")
    (tmp_path / "runs" / "damaged" / "metrics.parquet").write_bytes(b"")
    (tmp_path / "runs" / "empty").mkdir()
    playing = run_rounds(sf.load_spec(TREE), out=tmp_path / "runs" / "unfinished")
    next(playing)
    playing.close()
    found = {
        one.folder.relative_to(tmp_path).as_posix(): one for one in finished_runs(tmp_path / "runs").runs
    }
    assert sorted(found) == ["runs/one", "runs/two/seed-3"]
    assert found["runs/one"].accuracy == run.metrics["accuracy"].iloc[-1]
    accounted = account_setting(edited(TREE, "training.rounds=1"))
    assert estimate(accounted, [found["runs/one"]])[0].startswith("Measured: ")


def test_runs_of_sweeps_are_found_and_what_is_not_read_is_counted(tmp_path, no_report, monkeypatch):
    """Points of a sweep in the folder, and those of a sweep that is the folder itself."""
    spec, at = sf.load_spec(TREE, ["training.rounds=1"]), tmp_path / "runs"
    sf.run(spec, out=at / "one")
    sf.run(spec.model_copy(update={"seed": 1}), out=at / "sweep" / "points" / "epsilon=2" / "seed-1")
    names = sorted(run.folder.relative_to(at).as_posix() for run in finished_runs(at).runs)
    assert names == ["one", "sweep/points/epsilon=2/seed-1"]
    (alone,) = finished_runs(at / "sweep").runs
    assert alone.folder.name == "seed-1"
    monkeypatch.setattr(accuracy, "_MOST_RUNS", 1)
    found = finished_runs(at)
    assert (len(found.runs), found.unread) == (1, 1)


def test_the_first_screen_has_the_accuracy_of_this_setting_or_of_the_nearest_run():
    assert first_accuracy(VIEW, [done("a", 0.925)]) == ("accuracy, measured", "92.5 %", "")
    runs = [done("far", 0.4, "training.rounds=9", "trust={}"), done("near", 0.7, "training.rounds=9")]
    name, value, differs = first_accuracy(VIEW, runs)
    assert (name, value) == ("", "")  # no tile for another setting
    assert differs.startswith(
        "No finished run has this setting. The nearest, with accuracy 70.0 %, differs in rounds (9 "
        "instead of "
    )
    assert first_accuracy(VIEW, []) == ("", "", "")


def test_another_kind_of_participation_is_one_difference():
    fixed = account_setting(edited(TREE, "training.participation={kind: fixed, count: 2}"))
    _, _, differs = first_accuracy(fixed, [done("a", 0.7)])
    assert differs == (
        "No finished run has this setting. The nearest, with accuracy 70.0 %, differs in who takes part (all "
        "instead of fixed)."
    )

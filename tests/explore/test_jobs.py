"""Runs that are started from the page, without a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from explore_specs import TREE, edited

import sfumato as sf
from sfumato.errors import RunError
from sfumato.explore.accounted_setting import account_setting
from sfumato.explore.jobs import PILOT_ROUNDS, Jobs, curves, new_folder
from sfumato.spec.document import MAX_NAME


@pytest.fixture
def jobs(tmp_path: Path, fast_jobs: None) -> Iterator[Jobs]:
    """Runs in a folder that is not there yet."""
    started = Jobs(tmp_path / "runs")
    yield started
    started.close()


def test_a_new_run_gets_a_new_folder(tmp_path):
    assert new_folder(tmp_path, "small") == tmp_path / "small"
    (tmp_path / "small").mkdir()
    assert new_folder(tmp_path, "small") == tmp_path / "small-2"
    long = "x" * MAX_NAME
    (tmp_path / long).mkdir()
    assert len(new_folder(tmp_path, long).name) <= MAX_NAME


def test_a_run_is_that_of_the_command(jobs, tmp_path):
    (tmp_path / "runs" / "small").mkdir(parents=True)
    job = jobs.start(sf.load_spec(TREE))
    assert job.process.wait(120) == 0
    assert job.folder == tmp_path / "runs" / "small-2"
    assert job.state_sentence() == f"The run in {job.folder} is finished."
    assert job.report == job.folder / "report.html"
    run = sf.load_run(job.folder)
    assert run.name == "small-2"
    accuracy, epsilon, rounds = curves(job)
    assert rounds == 3
    assert accuracy is not None
    assert epsilon is not None
    assert pytest.approx(run.metrics["accuracy"].tolist()) in [list(trace["y"]) for trace in accuracy.data]


def test_a_pilot_keeps_the_noise_of_all_rounds(jobs):
    accounted = account_setting(edited(TREE, "training.rounds=40"))
    job = jobs.pilot(accounted.spec, accounted.report.plan.spec)
    assert job.process.wait(120) == 0
    run = sf.load_run(job.folder)
    assert (run.name, len(run.metrics), job.rounds) == ("small-pilot", PILOT_ROUNDS, 40)
    said = run.folder.spec_dict["privacy"]["noise"]
    noise = accounted.report.plan.spec.privacy.noise.model_dump(mode="json")
    assert said["sources"] == noise["sources"]
    assert "calibrated_from" not in said
    assert sf.account(sf.load_spec(job.folder / "spec.yaml")).epsilon(0, "cloud") < 8


def test_a_run_is_stopped_and_can_be_continued(jobs):
    spec = sf.load_spec(TREE, ["training.rounds=1000000", "evaluate_every=1000"])
    job = jobs.start(spec)
    with pytest.raises(RunError, match="another run is not finished"):
        jobs.start(spec)
    until = time.monotonic() + 120
    while not (job.folder / "spec.yaml").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert job.state == "running"
    assert job.state_sentence() == f"The run in {job.folder} is running."
    job.stop()
    job.process.wait(120)
    assert job.state == "stopped"
    assert f"sfumato run {job.folder / 'spec.yaml'} --out {job.folder} --resume" in job.state_sentence()


def test_why_a_run_failed_is_said(jobs, tmp_path):
    (tmp_path / "runs").write_text("a file")
    job = jobs.start(sf.load_spec(TREE))
    assert job.process.wait(120) == 2
    assert job.state == "failed"
    assert "is a file, or is inside of one" in job.state_sentence()
    assert curves(job) == (None, None, 0)
    assert job.report is None


def test_at_the_end_runs_are_stopped(jobs):
    job = jobs.start(sf.load_spec(TREE, ["training.rounds=1000000"]))
    jobs.close()
    assert job.process.poll() is not None

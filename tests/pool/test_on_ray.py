"""Workers of a Ray cluster of this machine: the same jobs, and the same when one is killed or stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pool_jobs
import pytest

import sfumato as sf
from sfumato.errors import RunError
from sfumato.pool.jobs import Job, run_jobs
from sfumato.pool.location import Location
from sfumato.run_folder.seal import read_seal

pytestmark = [pytest.mark.needs("ray"), pytest.mark.slow]
SMALL = ["topology.edges=2", "topology.devices_per_edge=4", "training.rounds=2"]


@pytest.mark.filterwarnings("ignore:Ray Client connection timed out")
def test_a_cluster_that_cannot_be_reached_is_one_message(tmp_path: Path) -> None:
    """Before the others: Ray takes a cluster that it is connected to already."""

    def begin() -> None:
        with Location.named("ray://127.0.0.1:1").workers(1, tmp_path / "log"):
            pass

    with pytest.raises(RunError, match=r"^on='ray://127.0.0.1:1': the cluster cannot be reached: "):
        begin()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_interrupted_has_saved_all_rounds(end: signal.Signals, tmp_path: Path) -> None:
    sets = [part for change in [*SMALL, "training.rounds=50000"] for part in ("--set", change)]
    command = ["sweep", "quickstart", "--over", "seed=1,2", "--on", "ray", "--workers", "2", *sets]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "sfumato", *command, "--out", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        until = time.monotonic() + 200
        while len(before := sealed(tmp_path)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1.0)  # further rounds, not saved yet
        sweep.send_signal(end)
        _, said = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
    assert sweep.returncode == 130, said
    assert "interrupted; continue with: sfumato sweep quickstart" in said
    after = sealed(tmp_path)
    assert len(before) == 2
    assert all(after[folder] > before[folder] for folder in before)
    assert "Traceback" not in said + (tmp_path / "workers.log").read_text()


def sealed(sweep: Path) -> dict[Path, int]:
    """Rounds that are saved, by run; only runs with any."""
    seals = {path.parent: read_seal(path.parent) for path in sweep.glob("points/*/*/checkpoint.pt")}
    return {folder: seal.rounds.rounds for folder, seal in seals.items() if seal.rounds.rounds}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ModuleType]:
    import ray

    ray.init(num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
    yield ray
    ray.shutdown()


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    return lambda work, *arguments: Job(work, arguments, tmp_path)


def test_only_the_job_of_the_killed_worker_is_tried_again(
    job: Callable[..., Job], tmp_path: Path, cluster: ModuleType
) -> None:
    dying, begun, done = tmp_path / "dying", tmp_path / "begun", tmp_path / "done"
    jobs = [
        job(pool_jobs.dies_at_first, dying, begun),
        job(pool_jobs.waits_for, done, begun),
        job(pool_jobs.write, done, "by the worker that comes after"),
        job(pool_jobs.fails, "here"),
    ]
    with Location.named("ray").workers(2, tmp_path / "log") as workers:
        told = {one.number: one.failure for one in run_jobs(workers, jobs) if one.finished}
    assert [told[n] for n in range(3)] == ["", "", ""]
    assert told[3].startswith("code that was called failed: KeyError: 'here' (")
    assert dying.read_text() == "done"
    assert begun.read_text() == "x"  # the other worker went on
    assert "here on standard output" in (tmp_path / "log").read_text()
    assert cluster.is_initialized()  # it was there before, and stays


def test_what_is_at_work_saves_when_the_block_ends_by_an_exception(
    job: Callable[..., Job], tmp_path: Path, cluster: ModuleType
) -> None:
    saved = tmp_path / "a"

    def interrupted() -> None:
        with Location.named("ray").workers(None, tmp_path / "log") as workers:
            workers.begin(0, job(pool_jobs.saves_when_stopped, saved))
            assert workers.size == 2
            until = time.monotonic() + 60
            while not (saved.exists() and saved.read_text()) and time.monotonic() < until:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert saved.read_text() == "saved"


def test_a_machine_that_does_not_share_the_folder_says_so(
    job: Callable[..., Job], tmp_path: Path, cluster: ModuleType
) -> None:
    with Location.named("ray").workers(1, tmp_path / "elsewhere" / "log") as workers:
        (told,) = run_jobs(workers, [job(pool_jobs.write, tmp_path / "a", "")])
    assert f"has no folder {tmp_path / 'elsewhere'}; the cluster's machines must share it" in told.failure


def test_a_sweep_has_the_results_that_it_has_without_ray(tmp_path: Path, cluster: ModuleType) -> None:
    over = {"seed": [1, 2]}
    swept = [
        sf.sweep("quickstart", over, out=tmp_path / on, on=on, workers=2, overrides=SMALL)
        for on in ("ray", "local")
    ]
    assert not swept[0].failures
    tables = [one.table.drop(columns="wall_time_s") for one in swept]
    assert tables[0].equals(tables[1])

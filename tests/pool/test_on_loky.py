"""Workers of this machine: what they are given, and what is lost when one is killed or stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pool_jobs
import pytest

from sfumato.pool.jobs import Job, run_jobs
from sfumato.pool.on_loky import LokyWorkers

pytestmark = pytest.mark.usefixtures("fast_workers")


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    return lambda work, *arguments: Job(work, arguments, tmp_path)


def test_only_the_job_of_the_killed_worker_is_tried_again(job: Callable[..., Job], tmp_path: Path) -> None:
    dying, begun = tmp_path / "dying", tmp_path / "begun"
    done = tmp_path / "done"
    jobs = [
        job(pool_jobs.dies_at_first, dying, begun),
        job(pool_jobs.waits_for, done, begun),
        job(pool_jobs.write, done, "by the worker that comes after"),
    ]
    with LokyWorkers(2, tmp_path / "log") as workers:
        told = [(one.number, one.failure) for one in run_jobs(workers, jobs) if one.finished]
    assert sorted(told) == [(0, ""), (1, ""), (2, "")]
    assert dying.read_text() == "done"
    assert begun.read_text() == "x"  # the other worker went on


def test_a_worker_that_dies_without_a_job_is_replaced(job: Callable[..., Job], tmp_path: Path) -> None:
    with LokyWorkers(1, tmp_path / "log") as workers:
        list(run_jobs(workers, [job(pool_jobs.write, tmp_path / "a", "")]))
        (idle,) = workers._idle
        (process,) = idle._processes.values()
        process.kill()
        process.join()
        assert [one.failure for one in run_jobs(workers, [job(pool_jobs.write, tmp_path / "b", "")])] == [""]
    assert (tmp_path / "b").exists()


def test_what_is_at_work_saves_when_the_block_ends_by_an_exception(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]

    def interrupted() -> None:
        with LokyWorkers(2, tmp_path / "log") as workers:
            for number, path in enumerate(paths):
                workers.begin(number, job(pool_jobs.saves_when_stopped, path))
            until = time.monotonic() + 60
            while [read(path) for path in paths] != ["begun", "begun"] and time.monotonic() < until:
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [read(path) for path in paths] == ["saved", "saved"]
    assert "Traceback" not in (tmp_path / "log").read_text()


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_job_that_no_worker_can_read_is_a_failure(job: Callable[..., Job], tmp_path: Path) -> None:
    with LokyWorkers(1, tmp_path / "log") as workers:
        (told,) = run_jobs(workers, [job(pool_jobs.write, tmp_path / "a", _Unreadable())])
    assert told.finished
    assert "given up after 3 tries" in told.failure


class _Unreadable:
    def __reduce__(self) -> tuple[object, ...]:
        return int, ("x",)


@pytest.mark.slow
def test_a_worker_that_is_started_afresh_has_one_thread_and_a_session_of_its_own(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    from sfumato.pool import on_loky

    monkeypatch.setattr(on_loky, "ProcessPoolExecutor", ProcessPoolExecutor)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with LokyWorkers(1, tmp_path / "log") as workers:
        list(run_jobs(workers, [job(pool_jobs.threads_and_session, tmp_path / "a")]))
    assert (tmp_path / "a").read_text() == "1 True"

"""A list of jobs is worked through: what is begun when, what is told, and what is tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from sfumato.pool.jobs import MOST_TRIES, Ending, Job, JobProgress, run_jobs
from sfumato.run_folder.rounds_log import ROUNDS_FILE

LOST = Ending("its process was killed", is_lost=True)


class Workers:
    """Two workers that end jobs as ``endings`` says, one call of `ended` after another."""

    size = 2

    def __init__(self, endings: list[Callable[[], list[tuple[int, Ending]]]]) -> None:
        self.begun: list[int] = []
        self.running: set[int] = set()
        self._endings = iter(endings)

    def begin(self, number: int, job: Job) -> None:
        self.begun.append(number)
        self.running.add(number)
        assert len(self.running) <= self.size

    def wait_for_endings(self, seconds: float) -> list[tuple[int, Ending]]:
        found = next(self._endings)()
        self.running -= {number for number, _ in found}
        return found


def jobs_in(folder: Path, count: int) -> list[Job]:
    return [Job(print, (), folder / str(number)) for number in range(count)]


def ends(*found: tuple[int, Ending]) -> Callable[[], list[tuple[int, Ending]]]:
    return lambda: list(found)


def test_no_more_are_begun_than_there_are_workers_and_none_stops_another(tmp_path: Path) -> None:
    workers = Workers([ends((1, Ending("it failed"))), ends((0, Ending()), (2, Ending()))])
    told = list(run_jobs(workers, jobs_in(tmp_path, 3)))
    assert workers.begun == [0, 1, 2]
    assert [(one.number, one.finished, one.failure) for one in told] == [
        (1, True, "it failed"),
        (0, True, ""),
        (2, True, ""),
    ]


def test_a_lost_job_is_tried_again_and_at_last_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    workers = Workers([ends((0, LOST))] * MOST_TRIES)
    with caplog.at_level(logging.WARNING):
        (told,) = run_jobs(workers, jobs_in(tmp_path, 1))
    assert workers.begun == [0] * MOST_TRIES
    assert told == JobProgress(
        0, finished=True, failure=f"its process was killed; given up after {MOST_TRIES} tries"
    )
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / '0'}: its process was killed; it is tried again ({n} of {MOST_TRIES})"
        for n in range(2, MOST_TRIES + 1)
    ]


def test_a_job_that_fails_is_not_tried_again_nor_is_one_that_is_lost_once(tmp_path: Path) -> None:
    workers = Workers([ends((0, Ending("it failed")), (1, LOST)), ends((1, Ending()))])
    told = list(run_jobs(workers, jobs_in(tmp_path, 2)))
    assert workers.begun == [0, 1, 1]
    assert [one.failure for one in told] == ["it failed", ""]


def test_progress_is_the_lines_of_the_log_of_rounds(tmp_path: Path) -> None:
    log = tmp_path / "0" / ROUNDS_FILE

    def wrote(text: str, mode: str = "a") -> Callable[[], list[tuple[int, Ending]]]:
        def write() -> list[tuple[int, Ending]]:
            log.parent.mkdir(exist_ok=True)
            with log.open(mode) as file:
                file.write(text)
            return []

        return write

    nothing_new = ends()
    steps = [
        nothing_new,
        wrote("{}\n{}\n"),
        nothing_new,
        wrote("{}\n{"),  # the fourth line is being written
        wrote("}\n"),
        ends((0, LOST)),
        wrote("{}\n{}\n", "w"),  # resumed: what the checkpoint does not seal is dropped
        wrote("{}\n{}\n{}\n"),
        ends((0, Ending())),
    ]
    told = list(run_jobs(Workers(steps), jobs_in(tmp_path, 1)))
    assert [one.rounds for one in told] == [2, 3, 4, 2, 5, 5]
    assert [one.finished for one in told] == [False] * 5 + [True]

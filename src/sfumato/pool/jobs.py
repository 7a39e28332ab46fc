"""Works through a list of jobs: tells their progress, and tries again those whose worker was lost."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sfumato.run_folder.rounds_log import ROUNDS_FILE

LOG = logging.getLogger("sfumato")
MOST_TRIES = 3
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Job:
    """What a worker is to do.

    It may be begun again after its worker was killed, so what it has done by then must do no harm: a run is
    resumed from its checkpoint, which costs what was computed since, at most five seconds and a round.

    Attributes:
        work: a function of a module, which workers import by its name.
        arguments: of ``work``; they can be pickled.
        folder: that ``work`` writes to. The ``rounds.jsonl`` of a run there is the progress.
        device: what it computes on: auto, cpu or cuda.
    """

    work: Callable[..., None]
    arguments: tuple[Any, ...]
    folder: Path
    device: str = "cpu"


@dataclass(frozen=True)
class JobProgress:
    """The progress of one job.

    Attributes:
        number: of the job, in the order in which jobs were given, from 0.
        rounds: that its run has saved.
        finished: whether it is done or has failed.
        failure: the error if it failed, otherwise empty.
    """

    number: int
    rounds: int = 0
    finished: bool = False
    failure: str = ""


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes:
        failure: why it is not done; empty if it is.
        is_lost: whether its worker ended before the job did, so that the job itself may be sound.
    """

    failure: str = ""
    is_lost: bool = False


class Workers(Protocol):
    """Processes that do jobs, a job each at a time."""

    @property
    def size(self) -> int:
        """How many jobs can be done at once."""

    def begin(self, number: int, job: Job) -> None:
        """Give job ``number`` to a worker that has none; returns at once."""

    def wait_for_endings(self, seconds: float) -> list[tuple[int, Ending]]:
        """Wait up to ``seconds`` seconds for jobs to end; returns (number, ending) of some that have ended.

        Empty if none has.
        """


def run_jobs(workers: Workers, jobs: Sequence[Job]) -> Iterator[JobProgress]:
    """Do ``jobs``, ``workers.size`` at once; yields changes of progress, and each job once when it ends.

    A job that fails stops no other. One whose worker is lost is tried again, ``MOST_TRIES`` times in all.
    """
    waiting = deque(range(len(jobs)))
    running: dict[int, _SavedRounds] = {}
    tries: Counter[int] = Counter()
    while waiting or running:
        while waiting and len(running) < workers.size:
            number = waiting.popleft()
            tries[number] += 1
            workers.begin(number, jobs[number])
            running[number] = _SavedRounds(jobs[number].folder)
        for number, ending in workers.wait_for_endings(_SECONDS_BETWEEN_LOOKS):
            rounds = running.pop(number).count()
            if ending.is_lost and tries[number] < MOST_TRIES:
                again = f"it is tried again ({tries[number] + 1} of {MOST_TRIES})"
                LOG.warning("%s: %s; %s", jobs[number].folder, ending.failure, again)
                waiting.appendleft(number)
                continue
            failure = ending.failure
            if ending.is_lost:
                failure += f"; given up after {MOST_TRIES} tries"
            yield JobProgress(number, rounds, finished=True, failure=failure)
        for number, saved in running.items():
            before = saved.rounds
            if saved.count() != before:
                yield JobProgress(number, saved.rounds)


class _SavedRounds:
    """How many rounds a run has saved, from the lines of its log; only new lines are read."""

    def __init__(self, folder: Path) -> None:
        """Prepare to count the rounds that the run in ``folder`` saves."""
        self._path = folder / ROUNDS_FILE
        self._size = self.rounds = 0

    def count(self) -> int:
        """The number of rounds that the job's run has saved now."""
        try:
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._size:  # a resumed run has dropped what was not sealed
                    self._size = self.rounds = 0
                file.seek(self._size)
                new = file.read()
        except OSError:
            return self.rounds  # there is none yet
        self._size += len(new)
        self.rounds += new.count(b"\n")
        return self.rounds

"""Workers of this machine: processes of joblib's loky, started afresh, not forked.

loky ends all workers of an executor when one of them is killed. So every worker has an executor of its own:
only the job of the worker that was killed is lost.
"""

from __future__ import annotations

import re
import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path
from types import TracebackType

from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from sfumato.pool.jobs import Ending, Job
from sfumato.pool.worker import do_job, environment, leave_terminal

_SECONDS_TO_STOP = 15.0
# What loky says of workers that it ends or replaces; a lost job is told by `run_jobs`.
_SAID_OF_WORKERS = "A worker stopped while some jobs were given|Failed to kill subprocesses on this platform"


class LokyWorkers:
    """At most ``size`` worker processes; a context manager that stops them at its end.

    Args:
        size: number of processes.
        log: file for the output of jobs and libraries, and for tracebacks.
    """

    def __init__(self, size: int, log: Path) -> None:
        self.size = size
        self._log = log
        self._idle: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[str], tuple[int, ProcessPoolExecutor]] = {}
        self._alive, self._me = Pipe(duplex=False)
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> LokyWorkers:
        self._warnings.__enter__()
        warnings.filterwarnings("ignore", _SAID_OF_WORKERS, UserWarning)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._busy:
            self._me.close()
            wait(self._busy, timeout=_SECONDS_TO_STOP)
        workers = [*self._idle, *(worker for _, worker in self._busy.values())]
        if workers:
            with ThreadPoolExecutor(len(workers)) as threads:  # all at once: each waits for its process
                list(threads.map(lambda worker: worker.shutdown(kill_workers=bool(self._busy)), workers))
        self._alive.close()
        self._me.close()
        self._warnings.__exit__(kind, error, trace)

    def begin(self, number: int, job: Job) -> None:
        """Give job ``number`` to a worker that has none; returns at once."""
        while True:
            worker = self._idle.pop() if self._idle else self._new_executor()
            try:
                with _uninterrupted():
                    future = worker.submit(do_job, job.work, job.arguments, self._log)
            except BrokenProcessPool:  # it was killed while it had nothing to do
                worker.shutdown(wait=False)
            else:
                self._busy[future] = number, worker
                return

    def wait_for_endings(self, seconds: float) -> list[tuple[int, Ending]]:
        """Wait up to ``seconds`` seconds for a job to end; returns (number, ending) of all that have ended.

        Empty if none has.
        """
        found = []
        for future in wait(self._busy, timeout=seconds, return_when=FIRST_COMPLETED).done:
            number, worker = self._busy.pop(future)
            error = future.exception()
            if error is None:
                self._idle.append(worker)
                found.append((number, Ending(future.result())))
            else:
                worker.shutdown(wait=False)
                found.append((number, Ending(_exit_reason(error), is_lost=True)))
        return found

    def _new_executor(self) -> ProcessPoolExecutor:
        """An executor with one process, which ends with this one."""
        return ProcessPoolExecutor(1, env=environment(), initializer=leave_terminal, initargs=(self._alive,))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Context in which signals are held back.

    A process that is started in it has them blocked until it unblocks them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_reason(error: BaseException) -> str:
    """A clause on why a worker's process ended, from loky's error."""
    if isinstance(error, KeyboardInterrupt):
        return "its process was stopped"
    found = re.search(r"\{(\w+)\((-?\d+)\)\}", str(error))  # how loky writes exit codes
    if found is None:
        return f"its process ended: {' '.join(str(error).split())}"
    name, code = found[1], int(found[2])
    if code >= 0:
        return f"its process ended with status {code}"
    return f"its process was killed ({name}{': out of memory?' if name == 'SIGKILL' else ''})"

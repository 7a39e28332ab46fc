"""A pool of worker processes that work through jobs; if a process ends, only its job is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO, Any

_SECONDS_TO_STOP = 15.0
# Every point runs with one thread, so that its results do not depend on the number of workers.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Job:
    """A job of a worker, see ``worker.run_job``; ``number`` is set by the caller to identify it."""

    number: int
    task: str
    spec: Mapping[str, Any]
    folder: Path
    device: str
    track: tuple[str, ...] = ()

    def line(self) -> str:
        """The job as the line that a worker reads."""
        request = {"task": self.task, "spec": self.spec, "folder": str(self.folder)}
        return json.dumps(request | {"device": self.device, "track": self.track}) + "\n"


class WorkerPool:
    """At most ``size`` worker processes; a context manager that stops them at its end.

    A worker that is stopped during a run saves its checkpoint.

    Args:
        size: number of processes.
        log: file for the output of workers and libraries, and for tracebacks.
    """

    def __init__(self, size: int, log: Path) -> None:
        self._size = size
        self._log = log
        self._workers: list[subprocess.Popen[str]] = []
        self._messages: SimpleQueue[tuple[subprocess.Popen[str], str | None]] = SimpleQueue()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            self._reap(worker)

    def run_jobs(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Do ``jobs``; yields the workers' messages, the last one of each job ``done`` or ``failed``."""
        waiting = deque(jobs)
        busy: dict[subprocess.Popen[str], Job] = {}
        idle = list(self._workers)
        while waiting or busy:
            while waiting and (idle or len(self._workers) < self._size):
                worker = idle.pop() if idle else self._start()
                busy[worker] = waiting.popleft()
                self._send(worker, busy[worker])
            worker, line = self._messages.get()
            if line is None:
                if worker in self._workers:
                    self._workers.remove(worker)
                    self._reap(worker)
                if worker in busy:
                    yield busy.pop(worker), {"failed": _exit_reason(worker.returncode)}
                elif worker in idle:
                    idle.remove(worker)
                continue
            said: dict[str, Any] = json.loads(line)
            if "round" in said:
                yield busy[worker], said
            else:
                idle.append(worker)
                yield busy.pop(worker), said

    def _start(self) -> subprocess.Popen[str]:
        search = os.pathsep.join(path or os.getcwd() for path in sys.path)  # includes a user's own models
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "sfumato.sweeps.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | _ONE_THREAD | {"PYTHONPATH": search},
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is sent to the parent only
            )
        self._workers.append(worker)
        assert worker.stdout is not None
        threading.Thread(target=self._listen, args=(worker, worker.stdout), daemon=True).start()
        return worker

    def _reap(self, worker: subprocess.Popen[str]) -> None:
        """Wait for the end of a worker that was stopped or has closed its output."""
        try:
            worker.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        assert worker.stdin is not None
        with suppress(BrokenPipeError):
            worker.stdin.close()

    def _send(self, worker: subprocess.Popen[str], job: Job) -> None:
        assert worker.stdin is not None
        with suppress(BrokenPipeError):  # it has ended; the listening thread reports that
            worker.stdin.write(job.line())
            worker.stdin.flush()

    def _listen(self, worker: subprocess.Popen[str], answers: IO[str]) -> None:
        with answers:
            for line in answers:
                self._messages.put((worker, line))
        self._messages.put((worker, None))


def _exit_reason(status: int) -> str:
    if status >= 0:
        return f"its process ended with status {status}"
    name = signal.Signals(-status).name
    return f"its process was killed ({name}{': out of memory?' if name == 'SIGKILL' else ''})"

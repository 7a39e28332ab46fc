"""Workers of a Ray cluster (extra ``ray``): every job is a task that has a core, or a GPU, to itself.

The machines of the cluster share their files: a job writes into its run folder, and its progress is read
there. They have the same versions of Python, of Sfumato and of Ray.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from sfumato.arguments import Argument
from sfumato.errors import RunError, first_line
from sfumato.pool.jobs import Ending, Job
from sfumato.pool.worker import do_job, environment

_SECONDS_TO_STOP = 15.0


class RayWorkers:
    """At most ``size`` tasks at once; a context manager that stops them at its end.

    Args:
        address: of a cluster's client server; empty: the cluster that runs on this machine, else one of this
            machine alone, which ends with the block.
        size: number of tasks; ``None``: the cluster's cores, or its GPUs where a job uses one.
        log: file for the output of jobs and libraries, and for tracebacks.
    """

    def __init__(self, address: str, size: int | None, log: Path) -> None:
        self._address, self._wanted = address, size
        self._log = log.absolute()
        self._ray: Any = import_module("ray")
        self._tasks: dict[Any, int] = {}
        self._is_own = False
        self._gpus, self._cores = 0, 1
        self.size = size or 1

    def __enter__(self) -> RayWorkers:
        if not self._ray.is_initialized():
            try:
                with _own_sigterm():
                    self._ray.init(self._address or None, log_to_driver=False, logging_level="warning")
            except Exception as error:  # Ray raises a bare one where its processes take over 30 seconds
                place = Argument("on", self._address or "ray")
                raise RunError(f"{place}: the cluster cannot be reached: {first_line(error)}") from error
            self._is_own = True
        resources = self._ray.cluster_resources()
        self._gpus, self._cores = int(resources.get("GPU", 0)), max(1, int(resources.get("CPU", 0)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = list(self._tasks)
        for task in left:
            self._ray.cancel(task)  # a KeyboardInterrupt there, so that a run saves its checkpoint
        if left:
            _, left = self._ray.wait(left, num_returns=len(left), timeout=_SECONDS_TO_STOP)
        for task in left:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(task, force=True)
        if self._is_own:
            self._ray.shutdown()

    def begin(self, number: int, job: Job) -> None:
        """Give job ``number`` to Ray, which chooses the machine; returns at once."""
        gpus = int(self._gpus > 0 and job.device != "cpu")
        if self._wanted is None:
            self.size = self._gpus if gpus else self._cores
        task = self._ray.remote(
            num_cpus=1, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": environment()}
        )(_do_on_cluster)
        self._tasks[task.remote(job.work, job.arguments, self._log, Path.cwd())] = number

    def wait_for_endings(self, seconds: float) -> list[tuple[int, Ending]]:
        """Wait up to ``seconds`` seconds for a job to end; returns (number, ending) of one that has ended.

        Empty if none has.
        """
        done, _ = self._ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        return [(self._tasks.pop(task), self._ending(task)) for task in done]

    def _ending(self, task: Any) -> Ending:
        """How a finished task of Ray ended: done, failed, or its worker lost."""
        errors = self._ray.exceptions
        try:
            return Ending(self._ray.get(task))
        except errors.RayTaskError as error:  # it could not begin: the cluster has no Sfumato, or another one
            return Ending(f"it cannot be done on the cluster: {first_line(error.cause or error)}")
        except errors.RayError as error:
            return Ending(f"its process ended: {first_line(error)}", is_lost=True)


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Context that restores the handler of SIGTERM at its end; in it Ray sets its own, which aborts."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _do_on_cluster(work: Callable[..., None], arguments: tuple[Any, ...], log: Path, folder: Path) -> str:
    """Do a job (`do_job`) on a machine of the cluster; returns why it failed, "" if it is done.

    ``folder``: the working folder of whoever asked for it, which the machines share. ``arguments``: of
    ``work``.
    """
    for needed in (folder, log.parent):
        if not needed.is_dir():
            return f"{socket.gethostname()} has no folder {needed}; the cluster's machines must share it"
    os.chdir(folder)
    return do_job(work, arguments, log)

"""What a worker process does, on this machine or on another: one job after another.

A job ends with a message, not with an exception, which another process may be unable to read. SIGTERM
interrupts a job like Ctrl-C: a run saves its checkpoint first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sfumato.errors import SfumatoError
from sfumato.interrupts import interrupted_by
from sfumato.user_code import describe_error, user_code_location

_OF_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_AT_WORK = threading.Lock()


def environment() -> dict[str, str]:
    """The environment variables that a worker's process is started with, by name.

    One thread for numerical libraries, so that results do not depend on the number of workers; and this
    process's search path, with the modules of a user's own models.
    """
    search = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return dict.fromkeys(_OF_THREADS, "1") | {"PYTHONPATH": search}


def do_job(work: Callable[..., None], arguments: tuple[Any, ...], log: Path) -> str:
    """Call ``work(*arguments)``; output and tracebacks are appended to the file ``log``.

    Returns:
        Why it failed; "" if it is done.

    Raises:
        KeyboardInterrupt: it was stopped; a run has saved its checkpoint.
    """
    with _AT_WORK, interrupted_by(signal.SIGTERM, once=True), _redirect_output(log):
        try:
            work(*arguments)
        except SfumatoError as error:
            return str(error)
        except (Exception, SystemExit) as error:  # a user's model may try to end the program
            traceback.print_exc()
            blame = "code that was called failed" if user_code_location(error) else "internal error"
            return f"{blame}: {describe_error(error)}"
    return ""


def leave_terminal(parent: Connection) -> None:
    """Prepare a worker's process on this machine: it ignores Ctrl-C and ends when its parent does.

    Args:
        parent: a pipe whose other end the parent alone has, and into which it writes nothing.
    """
    os.setsid()  # a terminal sends Ctrl-C and its own end to the parent only
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_die_with_parent, args=(parent,), daemon=True).start()


def _die_with_parent(parent: Connection) -> None:
    """Wait until the other end of the pipe ``parent`` is closed, then end this process."""
    parent.poll(None)  # until the other end is closed, by the parent or because there is none any more
    os.kill(os.getpid(), signal.SIGTERM)  # ends a process that has no job
    with _AT_WORK:
        os._exit(130)


@contextmanager
def _redirect_output(log: Path) -> Iterator[None]:
    """Context in which the output of this process goes to ``log``, also that of libraries not in Python."""
    kept = [(number, os.dup(number)) for number in (1, 2)]
    sys.stdout.flush()
    with log.open("ab") as file:
        for number, _ in kept:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)

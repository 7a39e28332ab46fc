"""Python processes that start at once: forked from one that has imported torch and all of sfumato.

To import them takes several seconds of a processor; a forked process has them. In every other respect it is
a process of its own: it can be killed, interrupted and waited for. Not for tests of what is imported, and not
for another ``PYTHONHASHSEED``: the first Python reads it when it starts.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

_SERVER = Path(__file__).with_name("fast_python_server.py")


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen` of a Python command: ``[sys.executable, "-m" or "-c" or a script, …]``."""

    def _execute_child(  # type: ignore[no-untyped-def]
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
        stdin, to_stdin, from_stdout, stdout, from_stderr, stderr, *others,
    ):  # fmt: skip
        start_new_session = others[5]
        command = [os.fspath(part) for part in args]
        assert command[0] == sys.executable
        assert preexec_fn is None
        self._status, status = os.pipe()
        request = {
            "arguments": command[1:],
            "folder": os.fspath(cwd or os.getcwd()),
            "environment": dict(os.environ if env is None else env),
            "new_session": start_new_session,
        }
        standard = [own if given == -1 else given for own, given in enumerate((stdin, stdout, stderr))]
        server = _server()
        data = json.dumps(request).encode()
        socket.send_fds(server, [len(data).to_bytes(8, "big")], [*standard, status])
        server.sendall(data)
        self.pid = int.from_bytes(server.recv(8, socket.MSG_WAITALL), "big")
        assert self.pid, "the process that forks has ended"
        self._child_created = True
        os.close(status)
        self._close_pipe_fds(stdin, to_stdin, from_stdout, stdout, from_stderr, stderr)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None, **others: Any) -> int | None:
        self._try_wait(os.WNOHANG)
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """(process, status) once it has ended, (0, 0) before."""
        if self.returncode is None:
            if wait_flags == os.WNOHANG and not self._has_ended():
                return 0, 0
            self.returncode = int(os.read(self._status, 16))
            os.close(self._status)
        status = self.returncode << 8 if self.returncode >= 0 else -self.returncode
        return self.pid, status

    def _has_ended(self) -> bool:
        status = select.poll()  # `select.select` refuses file descriptors above 1,023
        status.register(self._status, select.POLLIN)
        return bool(status.poll(0))


def run(
    command: Sequence[str | Path], *, text: bool = True, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of a Python command, whose output is captured."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen([str(part) for part in command], text=text, **pipes | options) as process:
        out, err = process.communicate()
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


@cache
def _server() -> socket.socket:
    """A connection to the process that forks; it ends when this one does."""
    mine, its = socket.socketpair()
    server = subprocess.Popen(
        [sys.executable, str(_SERVER), str(its.fileno())],
        pass_fds=[its.fileno()],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    its.close()

    def end() -> None:
        mine.close()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGKILL)
            server.wait()

    atexit.register(end)
    return mine

"""A process that starts others, and ends all of them, and theirs, when it has nobody to listen to any more.

It imports nothing of ours, so that a relay's user can run a copy of it. Each line of its standard input is a
command, a list in JSON. The end of the input is the end of its starter, however it came. Flower's processes
start others that may outlive them: these come to this process then (a subreaper, of Linux). It ends them at
once: a relay whose SuperLink was killed would keep its sockets and look for it, and parties would wait.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # of prctl
_POLL_S = 1.0
_changing = threading.Lock()  # held while a process is started or ended


def main() -> None:
    """Start every command on standard input, a JSON list a line; end all of them when the input ends.

    Raises:
        OSError: the system does not give it the orphans of what it starts.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    started: set[int] = set()
    threading.Thread(target=_end_orphans, args=(started,), daemon=True).start()
    try:
        for line in sys.stdin:
            with _changing:
                started.add(subprocess.Popen(json.loads(line), stdin=subprocess.DEVNULL).pid)
    finally:
        with _changing:
            _end_children()


def _end_orphans(started: set[int]) -> None:
    """End, for ever, the children that this process did not start: whoever started them has ended."""
    while True:
        with _changing:
            for child in _children():
                if child not in started:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
        time.sleep(_POLL_S)


def _end_children() -> None:
    """End all children, until there are none; those of a child that has ended are then this process's own."""
    while children := _children():
        for child in children:
            os.kill(child, signal.SIGKILL)
        os.wait()  # one of them, whichever ends first
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # and all that have ended by now
                pass


def _children() -> list[int]:
    """The numbers of this process's children."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if int(parent) == os.getpid():
            found.append(int(status.parent.name))
    return found


if __name__ == "__main__":
    main()

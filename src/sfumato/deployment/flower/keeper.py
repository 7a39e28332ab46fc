"""A process that starts others, and ends all of them, and theirs, when it has nobody to listen to any more.

It imports nothing of ours, so that a relay's user can run a copy of it. Each line of its standard input is a
command, a list in JSON. The end of the input is the end of its starter, however it came. Flower's processes
start others that may outlive them: these come to this process then (a subreaper, of Linux), which ends them
by their numbers until there are none.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_SET_CHILD_SUBREAPER = 36  # of prctl


def main() -> None:
    """Start what is asked for, until nobody can ask any more; then end it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        for line in sys.stdin:
            subprocess.Popen(json.loads(line), stdin=subprocess.DEVNULL)
    finally:
        _end_children()


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

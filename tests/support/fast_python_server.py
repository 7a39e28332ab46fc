"""Forks a process for every request of `fast_python`, and says how it ended.

    python fast_python_server.py DESCRIPTOR

A request is its length in 8 bytes and the descriptors of standard input, output, errors and of the status,
then JSON with the arguments of Python, the folder, the environment, and whether it starts a session.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from types import ModuleType
from typing import Any, NoReturn

from no_report import without_report_as_asked

LENGTH = 8


def load(package: ModuleType) -> None:
    """Import all modules of a package, and what they import."""
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def serve(requests: socket.socket) -> None:
    """Fork until the other end is closed."""
    woken, wake = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 512)
            report_ended(running)
        if requests in ready:
            head, given, _, _ = socket.recv_fds(requests, LENGTH, 4)
            if not head:
                return
            data = requests.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                for descriptor in (woken, wake, given[3], requests.detach(), *running.values()):
                    os.close(descriptor)
                become(json.loads(data), given[:3])
            running[process] = given[3]
            for descriptor in given[:3]:
                os.close(descriptor)
            requests.sendall(process.to_bytes(LENGTH, "big"))


def report_ended(running: dict[int, int]) -> None:
    """Write the status of every process that has ended to whoever waits for it."""
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        at = running.pop(process)
        os.write(at, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(at)


def become(request: dict[str, Any], standard: list[int]) -> NoReturn:
    """Be the Python that was asked for, to its end."""
    if request["new_session"]:
        os.setsid()
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0), write_through=True)  # noqa: SIM115
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    without_report_as_asked()
    try:
        execute(request["arguments"])
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        status = 1
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(status)


def execute(arguments: list[str]) -> None:
    """What ``python ARGUMENTS`` executes."""
    more = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    match arguments:
        case ["-P", "-m", name, *rest] | ["-m", name, *rest]:
            sys.path[:0] = more if arguments[0] == "-P" else ["", *more]
            sys.argv = [name, *rest]
            sys.modules.pop(name, None)  # loaded before, as all modules are
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.path[:0] = ["", *more]
            sys.argv = ["-c", *rest]
            main = ModuleType("__main__")
            sys.modules["__main__"] = main
            exec(compile(code, "<string>", "exec"), main.__dict__)
        case [script, *rest]:
            sys.path[:0] = [os.path.dirname(os.path.abspath(script)), *more]
            sys.argv = [script, *rest]
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    import no_fsync  # noqa: F401
    import torch._dynamo  # torch.func imports it where a model is first trained in batches  # noqa: F401

    import sfumato

    load(sfumato)
    sys.path.pop(0)  # the folder of this file
    serve(socket.socket(fileno=int(sys.argv[1])))

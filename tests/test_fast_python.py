"""Processes that are forked quickly behave as those that `subprocess` starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import fast_python
import pytest

SCRIPT = """
import os, sys
print(sys.argv[1:], os.getcwd(), os.environ.get("MINE"), sys.stdin.read())
print("said", file=sys.stderr)
"""


@pytest.mark.parametrize("way", ["-c", "-m", "script"])
def test_arguments_folder_environment_and_streams(way: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCRIPT)
    started = {"-c": ["-c", SCRIPT], "-m": ["-m", "own"], "script": [str(tmp_path / "own.py")]}[way]
    command = [sys.executable, *started, "one", "two"]
    options = {"cwd": tmp_path, "env": {"MINE": "x", "PATH": "/bin"}, "stdin": subprocess.DEVNULL}
    real = subprocess.run(command, capture_output=True, text=True, check=True, **options)  # type: ignore[call-overload]
    done = fast_python.run(command, **options)
    assert (done.returncode, done.stdout, done.stderr) == (0, real.stdout, real.stderr)


@pytest.mark.parametrize(
    ("code", "status"),
    [("raise SystemExit(3)", 3), ("raise SystemExit('why')", 1), ("1 / 0", 1), ("import os; os._exit(7)", 7),
     ("raise KeyboardInterrupt", -signal.SIGINT), ("pass", 0)],
)  # fmt: skip
def test_statuses(code: str, status: int) -> None:
    command = [sys.executable, "-c", code]
    assert fast_python.run(command).returncode == status
    assert subprocess.run(command, capture_output=True).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_signals_end_it(number: signal.Signals) -> None:
    waiting = "import time; print('up', flush=True); time.sleep(600)"
    with fast_python.Popen(
        [sys.executable, "-c", waiting], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == "up\n"
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == -number
        assert process.poll() == -number

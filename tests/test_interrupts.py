"""A process that watches its standard input ends with whoever holds the other end, however that one ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from lost_signals import send_lost

from sfumato.interrupts import interrupted_by, raise_lost_interrupt, wait_or_kill

WATCHING = """
import signal, sys, time
from sfumato.interrupts import interrupt_at_end_of, interrupted_by
try:
    with interrupted_by(signal.SIGTERM):
        interrupt_at_end_of(sys.stdin.fileno(), signal.SIGTERM)
        print("up", flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
DEAF = """
import os, signal, sys, time
from sfumato import interrupts
interrupts._AGAIN_S, interrupts._PATIENCE_S = 0.05, 0.5
signal.signal(signal.SIGTERM, lambda number, frame: os.write(1, b"came\\n"))
interrupts.interrupt_at_end_of({descriptor}, signal.SIGTERM)
while True:
    time.sleep(600)
"""
STARTER = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {WATCHING!r}], stdin=subprocess.PIPE)
time.sleep(600)
"""


def test_it_is_interrupted_when_its_standard_input_is_closed() -> None:
    command = [sys.executable, "-c", WATCHING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.stdin.write("what comes there is thrown away")
        process.stdin.flush()
        assert process.poll() is None
        process.stdin.close()
        assert process.stdout.read() == "interrupted\n"
        assert process.wait(60) == 0


def test_it_ends_when_its_starter_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"
        starter.send_signal(signal.SIGKILL)
        assert starter.stdout.read() == "interrupted\n"  # and its end: nobody writes there any more


def test_a_lost_interrupt_is_raised_again_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with interrupted_by(signal.SIGUSR1):
        raise_lost_interrupt()
        send_lost(signal.SIGUSR1)
        with pytest.raises(KeyboardInterrupt):
            raise_lost_interrupt()
    raise_lost_interrupt()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("descriptor", ["sys.stdin.fileno()", "987"], ids=["a pipe", "none that can be read"])
def test_one_that_takes_no_notice_is_asked_again_and_ends(descriptor: str) -> None:
    command = [sys.executable, "-c", DEAF.format(descriptor=descriptor)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)
        assert said.count("came\n") >= 2
        assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(("patience_s", "status"), [(60, 7), (0.2, -signal.SIGKILL)], ids=["ends", "lasts"])
def test_a_process_that_was_told_to_end_is_killed_when_it_does_not(patience_s: float, status: int) -> None:
    code = "import sys; sys.exit(7)" if status == 7 else "import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        wait_or_kill(process, patience_s)
        assert process.returncode == status

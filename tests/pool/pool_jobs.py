"""Jobs of the pool's tests, which workers import by name."""

import os
import signal
import sys
import time
from pathlib import Path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def threads_and_session(path: Path) -> None:
    path.write_text(f"{os.environ['OMP_NUM_THREADS']} {os.getsid(0) == os.getpid()}")


def dies_at_first(path: Path, begun: Path) -> None:
    """Killed, unless ``path`` is there; before, it waits until ``begun`` is."""
    if not path.exists():
        path.touch()
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    with path.open("a") as file:
        file.write("done")


def waits_for(path: Path, begun: Path) -> None:
    """Done when ``path`` is there; counts in ``begun`` how often it was begun."""
    with begun.open("a") as file:
        file.write("x")
    while not path.exists():
        time.sleep(0.01)


def fails(word: str) -> None:
    print(f"{word} on standard output")
    os.write(2, f"{word} on standard error".encode())
    raise KeyError(word)


def ends_the_program() -> None:
    sys.exit(3)


def is_stopped_twice(path: Path) -> None:
    """SIGTERM while it works, and again while it saves."""
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.raise_signal(signal.SIGTERM)
        path.write_text("all is saved")


def saves_when_stopped(path: Path) -> None:
    """Works until it is stopped, and saves then."""
    try:
        path.write_text("begun")
        for _ in range(6000):  # Ray interrupts between two steps of Python only
            time.sleep(0.01)
    finally:
        path.write_text("saved")

"""What ends work: signals like Ctrl-C, so that a run saves its checkpoint, or at once; killing a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

_AGAIN_S, _PATIENCE_S = 5.0, 30.0


@dataclass
class Interruption:
    """Whether a signal has come in a block of `interrupted_by`.

    Attributes:
        came: whether one has. Its KeyboardInterrupt may be lost: Python only prints what a destructor or a
            callback raises, and pydantic drops what comes while it tries the members of a union.
    """

    came: bool = False


_blocks: list[Interruption] = []  # that the main thread is in


def raise_lost_interrupt() -> None:
    """Raise KeyboardInterrupt if a signal came within `interrupted_by` and its exception was lost.

    To be called where a block waits for something that an interrupted callback will never do.

    Raises:
        KeyboardInterrupt: one was lost.
    """
    if any(block.came for block in _blocks):
        raise KeyboardInterrupt


def may_come_from_signal() -> bool:
    """Whether a KeyboardInterrupt may be due to a signal: one came, or no `interrupted_by` can tell."""
    return not _blocks or any(block.came for block in _blocks)


@contextmanager
def interrupted_by(*signals: int, once: bool = False) -> Iterator[Interruption]:
    """Context in which each of ``signals`` raises KeyboardInterrupt; it yields whether one has come.

    Nothing is printed of an interrupt that is lost in a destructor or a callback: see `raise_lost_interrupt`.
    Only the main thread receives signals; in others nothing changes.

    Args:
        signals: their numbers.
        once: whether later ones are ignored: they would interrupt what the first one made the block save.
    """
    interruption = Interruption()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not (once and interruption.came):
            interruption.came = True
            raise KeyboardInterrupt

    def tell(lost: sys.UnraisableHookArgs) -> None:
        if not (interruption.came and issubclass(lost.exc_type, KeyboardInterrupt)):
            printed(lost)

    with _handled(signals, interrupt):
        printed, sys.unraisablehook = sys.unraisablehook, tell
        _blocks.append(interruption)
        try:
            yield interruption
        finally:
            _blocks.remove(interruption)
            sys.unraisablehook = printed


@contextmanager
def ended_by(*signals: int) -> Iterator[None]:
    """Context in which ``signals`` end the process at once; for a block that has nothing to save.

    A Python exception would be raised only once a C call that waits for other processes returns.
    """
    with _handled(signals, signal.SIG_DFL):
        yield


def interrupt_at_end_of(descriptor: int, number: int) -> None:
    """Send the main thread a signal once a pipe has no writer any more, in a thread of its own.

    The signal is sent again while the process goes on: an exception that a signal raises may be lost, in a
    callback or a destructor. In the end the process ends at once, so it must be one that may be killed.

    Args:
        descriptor: of the pipe's reading end; what comes there is thrown away.
        number: of the signal.
    """

    def wait() -> None:
        with suppress(OSError):  # a descriptor that cannot be read has no writer either
            while os.read(descriptor, 1 << 10):
                pass
        main, ends = threading.main_thread().ident, time.monotonic() + _PATIENCE_S
        assert main is not None  # it runs
        while time.monotonic() < ends:
            signal.pthread_kill(main, number)
            time.sleep(_AGAIN_S)
        os._exit(128 + number)

    threading.Thread(target=wait, daemon=True).start()


def wait_or_kill(process: subprocess.Popen[Any], patience_s: float) -> None:
    """Wait for the end of ``process``, which was told to end; kill it after ``patience_s`` seconds."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _handled(
    signals: Sequence[int], handler: Callable[[int, FrameType | None], None] | signal.Handlers
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)

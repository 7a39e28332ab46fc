"""Signals that end what is at work like Ctrl-C, so that a run saves its checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by(*signals: int, once: bool = False) -> Iterator[None]:
    """A context in which each of ``signals`` raises KeyboardInterrupt.

    Only the main thread receives signals; in others nothing changes.

    Args:
        signals: their numbers.
        once: whether later ones are ignored: they would interrupt what the first one made the block save.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if not (once and came):
            came = True
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""Limits how often a log says something that others can cause: once in a while for each cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

QUIET_S = 60.0
"""How long nothing more is said about somebody."""


class RareLines:
    """Passes on a sentence unless one on the same cause was said in the last `QUIET_S` seconds. Thread-safe.

    Args:
        say: called with a sentence.
        most: number of causes remembered at a time; sentences on others are dropped while it is reached.
    """

    def __init__(self, say: Callable[[str], object], most: int) -> None:
        self._say, self._most = say, most
        self._said: dict[Hashable, float] = {}  # when something was said about each
        self._lock = threading.Lock()

    def say(self, about: Hashable, sentence: str) -> None:
        """Say ``sentence``, unless its cause was spoken of within `QUIET_S` seconds, or too many others were.

        Args:
            about: the cause, e.g. a network that connects again and again.
            sentence: a line to print.
        """
        now = time.monotonic()
        with self._lock:
            self._said = {other: when for other, when in self._said.items() if now - when < QUIET_S}
            if about in self._said or len(self._said) >= self._most:
                return
            self._said[about] = now
        self._say(sentence)

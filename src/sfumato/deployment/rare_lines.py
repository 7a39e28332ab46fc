"""Lines of a log that others can cause: about each of them one in a while, and not of too many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable

QUIET_S = 60.0
"""How long nothing more is said about somebody."""


class RareLines:
    """Says sentences, at most so many in `QUIET_S` seconds; used by several threads.

    Args:
        say: called with a sentence.
        most: about so many at the same time; of others nothing is said until some of these are forgotten.
    """

    def __init__(self, say: Callable[[str], object], most: int) -> None:
        self._say, self._most = say, most
        self._said: dict[Hashable, float] = {}  # when something was said about each
        self._lock = threading.Lock()

    def say(self, about: Hashable, sentence: str) -> None:
        """Say a sentence, unless one was said about ``about`` a while ago, or about too many others."""
        now = time.monotonic()
        with self._lock:
            self._said = {other: when for other, when in self._said.items() if now - when < QUIET_S}
            if about in self._said or len(self._said) >= self._most:
                return
            self._said[about] = now
        self._say(sentence)

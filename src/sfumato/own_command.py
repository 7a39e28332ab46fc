"""The words of a command of Sfumato's that is started in a process of its own."""

from __future__ import annotations

import sys


def own_command(*words: str) -> list[str]:
    """The words of a command that starts ``sfumato WORDS`` with this Python.

    ``-P``: without it Python looks for every module in the current folder first.
    """
    return [sys.executable, "-P", "-m", "sfumato", *words]

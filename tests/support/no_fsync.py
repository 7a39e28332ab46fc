"""Files are not flushed to the disk, for which runs of tests would wait: no test cuts the power.

A process that is killed loses nothing that it has written. Imported by every process that plays runs.
"""

import os
import sqlite3
from functools import partial
from typing import Any


def fsync(descriptor: int) -> None:
    """In place of `os.fsync`."""


class UnflushedConnection(sqlite3.Connection):
    """SQLite flushes its files by itself, as often as ``PRAGMA synchronous`` says: here never."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return super().execute(
            "PRAGMA synchronous = OFF" if statement.startswith("PRAGMA synchronous =") else statement, *values
        )


os.fsync = fsync  # type: ignore[assignment]
sqlite3.connect = partial(sqlite3.connect, factory=UnflushedConnection)

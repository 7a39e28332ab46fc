"""A file of records that one process at a time owns (SQLite): every change is on the disk when it returns.

Two processes that share an identity would both be that party, so the file is locked while it is open. Its
lock is the empty file ``PATH.lock``, which stays; the lock ends with the process. Only the file's owner can
read it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import BaseFileLock, FileLock, Timeout

from sfumato.durable_files import sync_folder
from sfumato.wire.errors import SessionMemoryError

# held while a file is locked or freed: filelock counts holders, but not atomically
_LOCKING = threading.Lock()
_POLL_S = 0.05


class OwnedFile:
    """An open file of records.

    Args:
        path: of a file that `create_owned_file` made.
        what: it is, for errors.
        queries: that every such file answers.
        patience_s: how long to wait for another process that has it open.

    Raises:
        SessionMemoryError: the file is missing, damaged, of another kind, or open in another process.
    """

    def __init__(
        self, path: str | Path, what: str, queries: Sequence[str], *, patience_s: float = 0.0
    ) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise SessionMemoryError(
                f"{path}: no {what}; put the file back that was there, as another one would not know what "
                "was done before"
            )
        self._opened = ExitStack()
        lock = self._take_lock(time.monotonic() + patience_s)

        def free() -> None:
            with _LOCKING:
                lock.release()

        self._opened.callback(free)
        try:
            self._file = sqlite3.connect(
                f"file:{quote(str(self.path.resolve()))}?mode=rw", uri=True, isolation_level=None
            )
        except sqlite3.Error as error:
            self.close()
            raise SessionMemoryError(f"{path}: cannot be opened: {error}") from None
        self._opened.callback(self._file.close)
        damage = self._set_up(queries)
        if damage:
            self.close()
            raise SessionMemoryError(f"{path}: not a {what}, or damaged: {damage}")

    def _take_lock(self, deadline: float) -> BaseFileLock:
        """Take the lock of the file for this process; several openings of one file in it share the lock.

        ``deadline``: until when another process is waited for, of the monotonic clock.

        Raises:
            SessionMemoryError: another process has it, or it cannot be locked.
        """
        while True:
            try:
                return self._locked()
            except Timeout:
                if time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                raise SessionMemoryError(f"{self.path}: is open in another process: one at a time") from None
            except OSError as error:
                raise SessionMemoryError(f"{self.path}: cannot be locked: {error}") from None

    def _locked(self) -> BaseFileLock:
        """The lock, taken just now; raises what `filelock` raises."""
        with _LOCKING:
            name = f"{self.path.resolve()}.lock"
            lock = FileLock(name, thread_local=False, is_singleton=True, mode=0o600)
            lock.acquire(blocking=False)
        return lock

    def _set_up(self, queries: Sequence[str]) -> str:
        """Have every change written through; returns what is wrong with the file, empty if nothing is.

        ``queries``: SQL statements that every such file answers.
        """
        try:
            self._file.execute("PRAGMA journal_mode = DELETE")
            self._file.execute("PRAGMA synchronous = EXTRA")
            self._file.execute("PRAGMA secure_delete = ON")  # what was let go is not left in the file
            for query in queries:
                self._file.execute(query)
            found = self._file.execute("PRAGMA integrity_check").fetchone()  # rows against their index too
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message may quote damaged bytes
            return str(error)
        return "" if found == ("ok",) else str(found[0])

    def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Execute one SQL statement with ``values`` for its placeholders; changes are on the disk then.

        Raises:
            SessionMemoryError: it cannot be executed.
        """
        with self._refusing("cannot record an answer"):
            return self._file.execute(statement, tuple(values))

    def first(self, query: str, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
        """The first row that the SQL statement ``query`` finds, a tuple of columns; else ``None``.

        ``values``: for the placeholders in it.

        Raises:
            SessionMemoryError: the file cannot be read.
        """
        with self._refusing("cannot be read"):
            row: tuple[Any, ...] | None = self._file.execute(query, tuple(values)).fetchone()
        return row

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Raise an error of SQLite, or damaged text, as a SessionMemoryError that says ``what`` failed."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise SessionMemoryError(f"{self.path}: {what}: {error}") from None

    def roll_back(self) -> None:
        """Undo the open transaction, if SQLite has not done so itself after an error.

        Raises:
            SessionMemoryError: it cannot be undone.
        """
        if self._file.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file; what was recorded is kept."""
        self._opened.close()


def create_owned_file(path: str | Path, what: str, tables: Sequence[str]) -> None:
    """Make a new SQLite file with ``tables``, given as SQL statements that create them.

    Args:
        path: of the file; nothing may be there.
        what: what the file is called in an error.
        tables: the statements.

    Raises:
        SessionMemoryError: there is something at ``path``, or it cannot be written; no file is left then.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with ExitStack() as unless_made:
            unless_made.callback(Path(path).unlink)
            with closing(sqlite3.connect(path)) as made:
                made.execute("PRAGMA synchronous = EXTRA")
                for table in tables:
                    made.execute(table)
                made.commit()
            unless_made.pop_all()
        sync_folder(Path(path).resolve().parent)
    except (OSError, sqlite3.Error) as error:
        raise SessionMemoryError(f"{path}: cannot make a {what}: {error}") from None

"""What a party answered, kept longer than the process that answered.

A party of a protocol answers each message once. If it answers a second time after a restart, two answers
that are harmless alone may together reveal a secret: a share of each secret of one party, a signature under
each of two lists of survivors, two vectors under the same masks. So every answer is claimed before it is
sent, and what was claimed is never answered again. A party that is killed between the two has claimed and
sent nothing: to the others it dropped out.

`ProcessMemory` ends with its process: simulations and tests. Parties in the field need a `FileMemory`, or
another implementation of `SessionMemory` that is as durable. No implementation can notice that an older copy
of itself was put back: do not restore it from a backup; give the party a new identity instead.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from filelock import BaseFileLock, FileLock, Timeout

from sfumato.wire.errors import SessionMemoryError

_LOCKING = (
    threading.Lock()
)  # held while a file is locked or freed: filelock counts holders, but not atomically


class SessionMemory(Protocol):
    """Remembers which questions were answered, and what the answer was about."""

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Claim the right to answer a question.

        Args:
            question: what is answered once: 32 bytes.
            digest: of what the answer is about: 32 bytes.

        Returns:
            ``None`` if nobody claimed it before: it is claimed now, and will be after a restart too.
            Otherwise the digest of the first claim; nothing changes.

        Raises:
            SessionMemoryError: the claim could not be recorded or looked up: there must be no answer.
        """
        ...


class ProcessMemory:
    """A memory that ends with the process."""

    def __init__(self) -> None:
        self._claims: dict[bytes, bytes] = {}

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Claim the right to answer a question, in this process only.

        Args:
            question: what is answered once: 32 bytes.
            digest: of what the answer is about: 32 bytes.

        Returns:
            ``None`` if it was not claimed before; otherwise the digest of the first claim, and nothing
            changes.
        """
        earlier = self._claims.get(question)
        if earlier is None:
            self._claims[question] = digest
        return earlier


class FileMemory:
    """A memory in a file (SQLite, every claim synchronised to the disk before `claim` returns).

    One process has it open at a time: two that share an identity would both be that party. Its lock is the
    empty file ``PATH.lock``, which stays; the lock ends with the process. Several memories of one process may
    share the file: one of them gets a claim. Only its owner can read the file; it holds hashes, no secrets.

    Args:
        path: of a file that `create` made. A missing file is refused, as a forgotten past would be.

    Raises:
        SessionMemoryError: the file is missing, damaged, not such a memory, or open in another process.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        if not self._path.is_file():
            raise SessionMemoryError(f"{path}: no memory of sessions; `FileMemory.create` makes a new one")
        self._opened = ExitStack()
        lock = self._take_lock()

        def free() -> None:
            with _LOCKING:
                lock.release()

        self._opened.callback(free)
        try:
            self._file = sqlite3.connect(
                f"file:{quote(str(self._path.resolve()))}?mode=rw", uri=True, isolation_level=None
            )
        except sqlite3.Error as error:
            self.close()
            raise SessionMemoryError(f"{path}: cannot be opened: {error}") from None
        self._opened.callback(self._file.close)
        damage = self._damage()
        if damage:
            self.close()
            raise SessionMemoryError(f"{path}: not a memory of sessions, or damaged: {damage}")

    def _take_lock(self) -> BaseFileLock:
        """Take the lock of the file for this process; memories of one file in the process share it.

        Raises:
            SessionMemoryError: another process has it, or it cannot be locked.
        """
        try:
            with _LOCKING:
                name = f"{self._path.resolve()}.lock"
                lock = FileLock(name, thread_local=False, is_singleton=True, mode=0o600)
                lock.acquire(blocking=False)
        except Timeout:
            only = "one process at a time may answer for an identity"
            raise SessionMemoryError(f"{self._path}: is open in another process; {only}") from None
        except OSError as error:
            raise SessionMemoryError(f"{self._path}: cannot be locked: {error}") from None
        return lock

    def _damage(self) -> str:
        """What is wrong with the file, by SQLite's checks; "" if nothing is."""
        try:
            self._file.execute("PRAGMA journal_mode = DELETE")
            self._file.execute("PRAGMA synchronous = EXTRA")
            self._file.execute("SELECT question, digest FROM claims LIMIT 1")
            found = self._file.execute("PRAGMA integrity_check").fetchone()  # rows against their index too
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a message may quote damaged bytes
            return str(error)
        return "" if found == ("ok",) else str(found[0])

    @classmethod
    def create(cls, path: str | Path) -> FileMemory:
        """A new, empty memory, for a new identity.

        Raises:
            SessionMemoryError: there is something at ``path``, or nothing can be written there.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            made = sqlite3.connect(path)
            try:
                made.execute("PRAGMA synchronous = EXTRA")
                made.execute("CREATE TABLE claims (question BLOB NOT NULL UNIQUE, digest BLOB NOT NULL)")
                made.commit()
            finally:
                made.close()
            folder = os.open(Path(path).resolve().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except (OSError, sqlite3.Error) as error:
            raise SessionMemoryError(f"{path}: cannot make a memory of sessions: {error}") from None
        return cls(path)

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Claim the right to answer a question, recorded in the file before this returns.

        Args:
            question: what is answered once: 32 bytes.
            digest: of what the answer is about: 32 bytes.

        Returns:
            ``None`` if it was not claimed before; otherwise the digest of the first claim, and nothing
            changes.

        Raises:
            SessionMemoryError: the claim could not be recorded or looked up: there must be no answer.
        """
        try:
            made = self._file.execute("INSERT OR IGNORE INTO claims VALUES (?, ?)", (question, digest))
            if made.rowcount == 1:
                return None
            row = self._file.execute("SELECT digest FROM claims WHERE question = ?", (question,)).fetchone()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise SessionMemoryError(f"{self._path}: cannot record an answer: {error}") from None
        if row is None or not isinstance(row[0], bytes):
            raise SessionMemoryError(f"{self._path}: the memory of sessions is damaged")
        return row[0]

    def close(self) -> None:
        """Close the file; claims are kept."""
        self._opened.close()

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

from pathlib import Path
from typing import Protocol

from sfumato.wire.errors import SessionMemoryError
from sfumato.wire.owned_file import OwnedFile, create_owned_file

_WHAT = "memory of sessions"
CLAIMS_TABLE = "CREATE TABLE claims (question BLOB NOT NULL UNIQUE, digest BLOB NOT NULL)"
CLAIMS_QUERY = "SELECT question, digest FROM claims LIMIT 1"
"""The statement that makes the table which `claim_in` needs, and a query that a file with it answers."""


class SessionMemory(Protocol):
    """Remembers which questions were answered, and what the answer was about."""

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Record that a question is answered, if it was not answered before.

        Args:
            question: what may be answered once: 32 bytes.
            digest: hash of what the answer is about, by which a repeated question is told from a changed one:
                32 bytes.

        Returns:
            ``None`` if it was not claimed before: the answer may be sent, and later claims fail, after a
            restart too. Otherwise the digest of the first claim; nothing changes.

        Raises:
            SessionMemoryError: the claim could not be recorded or looked up: there must be no answer.
        """
        ...


class ProcessMemory:
    """A memory that ends with the process."""

    def __init__(self) -> None:
        self._claims: dict[bytes, bytes] = {}

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Record that a question is answered, for the life of this process.

        Arguments and result as of `SessionMemory.claim`: ``None`` if it was new, else the digest of the first
        claim.
        """
        earlier = self._claims.get(question)
        if earlier is None:
            self._claims[question] = digest
        return earlier


class FileMemory:
    """A memory in a file of its own (`wire.owned_file`), every claim on the disk before `claim` returns.

    Several memories of one process may share the file: one of them gets a claim. It holds hashes, no secrets.

    Args:
        path: of a file that `create` made. A missing file is refused, as a forgotten past would be.

    Raises:
        SessionMemoryError: the file is missing, damaged, not such a memory, or open in another process.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = OwnedFile(path, _WHAT, (CLAIMS_QUERY,))

    @classmethod
    def create(cls, path: str | Path) -> FileMemory:
        """Make a new, empty memory in a file at ``path``, for a new identity.

        Raises:
            SessionMemoryError: there is something at ``path``, or nothing can be written there.
        """
        create_owned_file(path, _WHAT, (CLAIMS_TABLE,))
        return cls(path)

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Record that a question is answered, in the file before this returns.

        Arguments and result as of `SessionMemory.claim`: ``None`` if it was new, else the digest of the first
        claim.

        Raises:
            SessionMemoryError: the claim could not be recorded or looked up: there must be no answer.
        """
        return claim_in(self._file, question, digest)

    def close(self) -> None:
        """Close the file; claims are kept."""
        self._file.close()


def claim_in(file: OwnedFile, question: bytes, digest: bytes) -> bytes | None:
    """Record in ``file`` that a question is answered, if it was not answered before.

    Args:
        file: with a table of claims.
        question: what may be answered once: 32 bytes.
        digest: hash of what the answer is about: 32 bytes.

    Returns:
        ``None`` if it was not claimed before, else the digest of the first claim.

    Raises:
        SessionMemoryError: the claim could not be recorded or looked up: there must be no answer.
    """
    made = file.execute("INSERT OR IGNORE INTO claims VALUES (?, ?)", (question, digest))
    if made.rowcount == 1:
        return None
    row = file.first("SELECT digest FROM claims WHERE question = ?", (question,))
    if row is None or not isinstance(row[0], bytes):
        raise SessionMemoryError(f"{file.path}: the memory of sessions is damaged")
    return row[0]

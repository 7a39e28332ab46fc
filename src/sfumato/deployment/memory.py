"""What a party keeps on disk: every answer it gave.

An answer is recorded before it is sent, with a hash of its question. The same question gets the
same bytes again; another question about the same aggregation, or one about an aggregation that lies behind,
gets none. So noise is drawn once for an aggregation, whatever crashes, is repeated or is replayed. A party
that is killed before its answer is recorded has sent nothing, and may draw again.

Answers of a round are let go when the next round's first one is recorded: then no earlier question is
answered any more, and none needs to be, as an aggregator that asks on has what it asked for.

No file can notice that an older copy of itself was put back. Do not restore it from a backup; a party that
lost it gets a new key, which is another session.

It also keeps whether a device takes part in a round, or which children an aggregator draws for it, from the
first draw on: in the row of aggregation `COIN`, which is let go with the round's answers.

With everything that it keeps it draws 32 bytes. A hash of both is a commitment: a memory of before that was
put back makes another one, whatever is answered or drawn then, and the commitment alone does not tell what
was. So the ledger of a device's owner, which notes them, refuses what is made again without a look at what it
is: whether a device is refused after its folder was put back does not tell whether it takes part.

It is the memory of the party's key too (`wire.session_memory`): of the sessions of secure aggregation that it
joined, and of what it said there. And of the one list of survivors that it knows for an aggregation, in
whichever attempt: see `masked_hops`.
"""

from __future__ import annotations

import os
from pathlib import Path

from sfumato.deployment.messages import RoundPosition
from sfumato.wire.errors import DuplicateMessageError, ReplayedMessageError, SessionMemoryError
from sfumato.wire.keys import KEY_BYTES, digest
from sfumato.wire.owned_file import OwnedFile, create_owned_file
from sfumato.wire.session_memory import CLAIMS_QUERY, CLAIMS_TABLE, claim_in

_WHAT = "memory of a party"
COIN = -1
"""The aggregation by which a memory knows what was drawn for a round, before the first: see `keep_draw`."""
_TABLES = (
    "CREATE TABLE answers (session BLOB NOT NULL, round INTEGER NOT NULL, aggregation INTEGER NOT NULL,"
    " question BLOB NOT NULL, answer BLOB NOT NULL, nonce BLOB NOT NULL,"
    " UNIQUE (session, round, aggregation))",
    CLAIMS_TABLE,
)
_QUERIES = (
    "SELECT session, round, aggregation, question, answer, nonce FROM answers LIMIT 1",
    CLAIMS_QUERY,
)


class PartyMemory:
    """The memory of one party, in a file of its own (`wire.owned_file`).

    Args:
        path: of a file that `create` made. A missing file is refused, as a forgotten past would be.

    Raises:
        SessionMemoryError: the file is missing, damaged, not such a memory, or open in another process.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = OwnedFile(path, _WHAT, _QUERIES)

    @classmethod
    def create(cls, path: str | Path) -> PartyMemory:
        """A new, empty memory, for a new party.

        Raises:
            SessionMemoryError: there is something at ``path``, or nothing can be written there.
        """
        create_owned_file(path, _WHAT, _TABLES)
        return cls(path)

    def last(self, session: bytes) -> RoundPosition | None:
        """The last aggregation that was answered in the session; ``None`` before the first.

        Raises:
            SessionMemoryError: the file cannot be read.
        """
        row = self._file.first(
            "SELECT round, aggregation FROM answers WHERE session = ? AND aggregation > ?"
            " ORDER BY round DESC, aggregation DESC",
            (session, COIN),
        )
        return None if row is None else RoundPosition(*row)

    def answer(self, session: bytes, position: RoundPosition, question: bytes) -> bytes | None:
        """The recorded answer to ``question`` about ``position``; ``None`` if that was not answered yet.

        Raises:
            DuplicateMessageError: another question about it was answered.
            ReplayedMessageError: a later one was answered, and this answer is deleted.
            SessionMemoryError: the file cannot be read.
        """
        row = self._file.first(
            "SELECT question, answer FROM answers WHERE session = ? AND round = ? AND aggregation = ?",
            (session, *position),
        )
        if row is not None:
            if row[0] != question:
                raise DuplicateMessageError(f"{position}: another question was answered before")
            return bytes(row[1])
        last = self.last(session)
        if last is not None and position < last:
            raise ReplayedMessageError(f"{position}: lies behind; {last} was answered")
        return None

    def record(self, session: bytes, position: RoundPosition, question: bytes, answer: bytes) -> None:
        """Record the only answer about ``position``, before it is sent.

        Args:
            session: of the run.
            position: the aggregation that is answered.
            question: a hash of the question.
            answer: all bytes of it.

        Raises:
            SessionMemoryError: it was answered before, or cannot be recorded: there must be no answer.
        """
        row = (session, *position, question, answer, os.urandom(KEY_BYTES))
        self._file.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?)", row)
        self._file.execute("DELETE FROM answers WHERE session = ? AND round < ?", (session, position.round))

    def keep_draw(self, session: bytes, number: int, drawn: bytes) -> bytes:
        """Record who takes part in a round, unless that is recorded already; returns what is recorded.

        Args:
            session: of the run.
            number: of the round, which is not over.
            drawn: a new draw: of a device, one byte, 1 if it takes part, else 0; of an aggregator that draws,
                one such byte for each of its children.

        Raises:
            SessionMemoryError: that cannot be recorded: there must be no answer, and no question.
        """
        here = (session, number, COIN)
        row = (*here, b"", drawn, os.urandom(KEY_BYTES))
        self._file.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?)", row)
        kept = self._file.first(
            "SELECT answer FROM answers WHERE session = ? AND round = ? AND aggregation = ?", here
        )
        if kept is None:
            raise SessionMemoryError(f"{self._file.path}: the memory of a party is damaged")
        return bytes(kept[0])

    def commitment(self, session: bytes, position: RoundPosition) -> bytes:
        """A hash of what is recorded about ``position``, an answer or `COIN`, and of 32 bytes drawn with it.

        It stays the same as long as the record does. If the same is recorded anew, the hash is another one.

        Raises:
            SessionMemoryError: nothing is recorded about it, or the file cannot be read.
        """
        row = self._file.first(
            "SELECT nonce, answer FROM answers WHERE session = ? AND round = ? AND aggregation = ?",
            (session, *position),
        )
        if row is None:
            raise SessionMemoryError(f"{self._file.path}: the memory of a party is damaged")
        return digest(b"commitment", *map(bytes, row))

    def keep_survivors(self, session: bytes, node: int, position: RoundPosition, listed: bytes) -> bytes:
        """Record a list of survivors, unless one is recorded for the aggregation; returns the one recorded.

        Args:
            session: of the run.
            node: number of the aggregator.
            position: of the aggregation.
            listed: the list, packed as in its message.

        Raises:
            SessionMemoryError: that cannot be recorded: the list must be neither sent nor signed.
        """
        return self.claim(_survivors_of(session, node, position), listed) or listed

    def survivors(self, session: bytes, node: int, position: RoundPosition) -> bytes | None:
        """The list of survivors that is recorded for an aggregation, as bytes; ``None`` if there is none.

        Args:
            session: of the run, 32 bytes.
            node: number of the aggregator.
            position: of the aggregation.

        Raises:
            SessionMemoryError: the file cannot be read.
        """
        question = _survivors_of(session, node, position)
        row = self._file.first("SELECT digest FROM claims WHERE question = ?", (question,))
        return None if row is None else bytes(row[0])

    def claim(self, question: bytes, digest: bytes) -> bytes | None:
        """Claim the right to answer ``question`` once; returns ``None``, or the digest of an earlier claim.

        ``question`` and ``digest``: 32 bytes each, as of `SessionMemory.claim`.

        Raises:
            SessionMemoryError: the claim cannot be recorded: there must be no answer.
        """
        return claim_in(self._file, question, digest)

    def close(self) -> None:
        """Close the file; all that was recorded is kept."""
        self._file.close()


def _survivors_of(session: bytes, node: int, position: RoundPosition) -> bytes:
    """The 32 bytes by which claims know the list of survivors of an aggregation of aggregator ``node``.

    ``session``: of the run.
    """
    return digest(b"survivors of", session, *(number.to_bytes(8, "big") for number in (node, *position)))

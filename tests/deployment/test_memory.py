"""A party's memory: one answer for an aggregation, over restarts."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sfumato.deployment.memory import COIN, PartyMemory
from sfumato.deployment.messages import RoundPosition
from sfumato.wire.errors import DuplicateMessageError, ReplayedMessageError, SessionMemoryError
from sfumato.wire.keys import digest

ONE, OTHER = bytes(32), b"s" * 32
NO, YES = b"\0", b"\1"


@pytest.fixture(name="memory")
def fixture_memory(tmp_path: Path) -> Iterator[PartyMemory]:
    memory = PartyMemory.create(tmp_path / "memory")
    yield memory
    memory.close()


def test_an_answer_is_kept_for_its_question_only(memory: PartyMemory, tmp_path: Path) -> None:
    assert memory.last(ONE) is None
    assert memory.answer(ONE, RoundPosition(0, 0), b"q") is None
    memory.record(ONE, RoundPosition(0, 0), b"q", b"a")
    memory.close()
    again = PartyMemory(tmp_path / "memory")
    assert again.answer(ONE, RoundPosition(0, 0), b"q") == b"a"
    with pytest.raises(DuplicateMessageError):
        again.answer(ONE, RoundPosition(0, 0), b"other")
    assert again.answer(OTHER, RoundPosition(0, 0), b"other") is None
    with pytest.raises(SessionMemoryError):
        again.record(ONE, RoundPosition(0, 0), b"q", b"b")
    assert again.answer(ONE, RoundPosition(0, 0), b"q") == b"a"
    again.close()


def test_answers_of_a_round_are_let_go_in_the_next(memory: PartyMemory) -> None:
    for position in (RoundPosition(0, 0), RoundPosition(0, 1), RoundPosition(1, 0)):
        memory.record(ONE, position, b"q", b"a%d" % position.aggregation)
    assert memory.last(ONE) == (1, 0)
    for behind in (RoundPosition(0, 0), RoundPosition(0, 1)):
        with pytest.raises(ReplayedMessageError, match="lies behind"):
            memory.answer(ONE, behind, b"q")
    assert memory.answer(ONE, RoundPosition(1, 0), b"q") == b"a0"
    assert memory.answer(ONE, RoundPosition(1, 1), b"q") is None


def test_the_first_list_of_survivors_of_an_aggregation_stays(memory: PartyMemory, tmp_path: Path) -> None:
    here, listed = (ONE, 3, RoundPosition(0, 0)), bytes(100)
    assert memory.survivors(*here) is None
    assert memory.keep_survivors(*here, listed) == listed
    memory.record(ONE, RoundPosition(1, 0), b"q", b"a")
    memory.close()
    again = PartyMemory(tmp_path / "memory")
    assert again.keep_survivors(*here, b"other") == again.survivors(*here) == listed
    for elsewhere in [(OTHER, *here[1:]), (ONE, 4, here[2]), (*here[:2], RoundPosition(0, 1))]:
        assert again.survivors(*elsewhere) is None
        assert again.keep_survivors(*elsewhere, b"other") == b"other"
    again.close()


def test_the_first_coin_of_a_round_stays_until_the_next_round_is_answered(
    memory: PartyMemory, tmp_path: Path
) -> None:
    assert memory.keep_draw(ONE, 0, YES) == YES
    assert memory.keep_draw(ONE, 1, NO) == NO
    assert memory.last(ONE) is None
    memory.record(ONE, RoundPosition(0, 0), b"q", b"a")
    memory.close()
    again = PartyMemory(tmp_path / "memory")
    assert again.keep_draw(ONE, 0, NO) == YES
    assert again.keep_draw(ONE, 1, YES) == NO
    assert again.keep_draw(OTHER, 0, NO) == NO
    assert again.last(ONE) == (0, 0)
    again.record(ONE, RoundPosition(1, 0), b"q", b"a")
    assert again.keep_draw(ONE, 1, YES) == NO
    (left,) = again._file.execute("SELECT COUNT(*) FROM answers WHERE session = ?", (ONE,)).fetchone()
    assert left == 2
    again.close()


def test_a_commitment_stays_and_what_is_kept_again_has_another_one(
    memory: PartyMemory, tmp_path: Path
) -> None:
    here, coin = RoundPosition(0, 0), RoundPosition(0, COIN)
    found = []
    for path in (tmp_path / "memory", tmp_path / "again"):
        if path != tmp_path / "memory":
            memory = PartyMemory.create(path)
        memory.keep_draw(ONE, 0, NO)
        memory.record(ONE, here, b"q", b"a")
        first = [memory.commitment(ONE, one) for one in (coin, here)]
        memory.close()
        with closing(PartyMemory(path)) as reopened:
            reopened.keep_draw(ONE, 0, YES)
            assert [reopened.commitment(ONE, one) for one in (coin, here)] == first
            with pytest.raises(SessionMemoryError, match="damaged"):
                reopened.commitment(ONE, RoundPosition(0, 1))
        found += first
    assert len(set(found)) == 4
    assert not {digest(b"commitment", bytes([0])), digest(b"commitment", b"a")} & set(found)


def test_answers_that_were_let_go_are_not_left_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where SQLite was built to leave them there."""
    connect = sqlite3.connect

    def leaving(*of: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*of, **options)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr("sfumato.wire.owned_file.sqlite3.connect", leaving)
    memory = PartyMemory.create(tmp_path / "memory")
    memory.record(ONE, RoundPosition(0, 0), b"q", b"an answer that is let go")
    assert b"an answer that is let go" in (tmp_path / "memory").read_bytes()
    memory.record(ONE, RoundPosition(1, 0), b"q", b"the next")
    assert b"an answer that is let go" not in (tmp_path / "memory").read_bytes()
    memory.close()


def test_only_its_owner_reads_it_and_damage_is_noticed(memory: PartyMemory, tmp_path: Path) -> None:
    path = tmp_path / "memory"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    memory.close()
    with pytest.raises(SessionMemoryError, match="cannot make a memory of a party"):
        PartyMemory.create(path)
    sqlite3.connect(path).execute("DROP TABLE answers").connection.close()
    with pytest.raises(SessionMemoryError, match="not a memory of a party"):
        PartyMemory(path)
    path.unlink()
    with pytest.raises(SessionMemoryError, match="no memory of a party"):
        PartyMemory(path)

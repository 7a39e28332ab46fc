"""A full disk: one line, nothing is revealed, and the run goes on when there is room again."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import staged
from rehearsals import STAR, TREE, model_bytes, rehearsed, spec_of

from sfumato.deployment.ledger import OwnersLedger, RunCost
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import FrameKind, RoundPosition
from sfumato.deployment.party_folder import PartyFolder
from sfumato.durable_files import HashedFile
from sfumato.errors import RunError, first_line
from sfumato.simulation.run import RoundResult
from sfumato.verify.checker import check_run
from sfumato.wire import owned_file
from sfumato.wire.errors import SessionMemoryError
from sfumato.wire.frames import parse_frame

FULL = "cannot record an answer: database or disk is full"
MASKED = STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}


@contextmanager
def no_room(memory: PartyMemory) -> Iterator[None]:
    """A memory whose file is full and cannot grow: SQLite says the same of a full disk."""
    memory.record(bytes(32), RoundPosition(0, 0), b"of another run", bytes(3_700))
    (pages,) = memory._file.first("PRAGMA page_count")
    memory._file.execute(f"PRAGMA max_page_count = {pages}")
    yield
    memory._file.execute("PRAGMA max_page_count = 100000")


@pytest.mark.parametrize("party", [0, 4, 5], ids=["a device", "the cloud", "an edge"])
def test_a_party_without_room_for_an_answer_sends_none(party: int, tmp_path: Path) -> None:
    """When there is room the round is played again, and nobody says something else than before."""
    with staged(TREE, tmp_path) as stage:
        model = np.zeros(stage.terms.parameters, np.float32)
        carried: list[bytes] = []
        with no_room(stage.memory(party)), pytest.raises(SessionMemoryError, match=FULL) as refused:
            carried += stage.sent(model)
        assert "\n" not in str(refused.value)
        assert stage.memory(party).last(stage.terms.session) is None
        assert stage.cloud().released is None
        stage.restart(party)
        released, again = stage.play(model)
        assert released is not None
        sent = {about(data): data for data in again}
        assert all(sent.get(about(data), data) == data for data in carried)
        assert not [data for data in carried if about(data)[:2] == (FrameKind.ANSWER, party)]


def about(data: bytes) -> tuple[int, int, int, bytes]:
    """Kind, sender and recipient of a frame, and the round and the aggregation that it is about."""
    frame = parse_frame(data)
    return frame.kind, frame.sender, frame.recipient, frame.payload[:8]


def test_a_device_without_room_joins_no_session_of_masks(tmp_path: Path) -> None:
    with staged(MASKED, tmp_path) as stage:
        (asked, *_) = stage.cloud().ask(0, np.zeros(stage.terms.parameters, np.float32))
        with no_room(stage.memory(0)), pytest.raises(SessionMemoryError, match=FULL):
            stage.device(0).receive(asked)
        (advertised,) = stage.device(0).receive(asked)
        assert parse_frame(advertised).kind == FrameKind.MASKING


def test_a_ledger_without_room_books_nothing_and_says_why(tmp_path: Path) -> None:
    OwnersLedger.create(tmp_path / "ledger")
    ledger = OwnersLedger(tmp_path / "ledger")
    kinds = {("device", f"observer {number}" + "x" * 500): 1.0 for number in range(40)}
    cost = RunCost(bytes(32), 0, "zero-out", 1e-5, kinds)
    (pages,) = ledger._file.first("PRAGMA page_count")
    ledger._file.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(SessionMemoryError, match=FULL), ledger.booking():
        ledger.book(cost)
    assert not ledger.holds(cost)
    ledger._file.execute("PRAGMA max_page_count = 100000")
    with ledger.booking():
        ledger.book(cost)
    assert ledger.holds(cost)
    ledger.close()


def test_a_folder_that_could_not_be_made_can_be_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half of a memory stays, which would be refused as damaged, and with it the party for ever."""

    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(owned_file.sqlite3, "connect", full)
        with pytest.raises(SessionMemoryError, match="cannot make a memory of a party: database or"):
            PartyFolder.open_or_create(tmp_path / "party")
    assert list((tmp_path / "party").iterdir()) == []
    PartyFolder.open_or_create(tmp_path / "party").close()


@pytest.mark.usefixtures("no_report")
def test_a_run_goes_on_after_its_folder_had_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Round 2 was played and cannot be written: it is played again from the memories, with the same noise."""
    spec, is_full = spec_of(STAR), [False]
    expected = rehearsed(spec, tmp_path / "undisturbed")
    real = HashedFile.write

    def write(self: HashedFile, data: Any) -> int:
        if is_full[0]:
            self.failure = OSError(errno.ENOSPC, "No space left on device")
            raise self.failure
        return real(self, data)

    def fill(result: RoundResult) -> None:
        is_full[0] = True

    monkeypatch.setattr(HashedFile, "write", write)
    with pytest.raises(RunError, match=r"/run/.*: cannot be written: No space left on device") as refused:
        rehearsed(spec, tmp_path / "full", on_round=fill)
    assert "\n" not in first_line(refused.value)
    is_full[0] = False
    folder = rehearsed(spec, tmp_path / "full", resume=True)
    assert model_bytes(folder) == model_bytes(expected)
    assert check_run(folder.path).problems == []

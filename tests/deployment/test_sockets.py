"""A party behind a socket: for its owner only, one connection at a time, and it outlives what it refuses."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sfumato.deployment import frame_exchange, sockets
from sfumato.deployment.consent import ConsentRefusedError
from sfumato.deployment.sockets import AwaitedParty, RemoteParty, serve
from sfumato.errors import RunError
from sfumato.wire.errors import BelowThresholdError, TamperedMessageError

MOST = 4 << 20


class Echo:
    """Sends back what it gets; refuses what is not signed, as it were."""

    def receive(self, data: bytes) -> list[bytes]:
        if data == b"forged":
            raise TamperedMessageError("the signature does not fit\nthe message")
        if data == b"too much":
            raise ConsentRefusedError("my other studies took ε = 7")
        if data == b"too few":
            raise BelowThresholdError("lost: device:7 (has ended)")
        if data == b"think":
            threading.Event().wait(1.0)
        return [data] if data else []


@pytest.fixture(name="own_log")
def fixture_own_log() -> list[str]:
    return []


@pytest.fixture(name="place")
def fixture_place(own_log: list[str]) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())  # a short path, as sockets need
    ready, path = threading.Semaphore(0), folder / "socket"

    def answer() -> None:
        with suppress(RunError):  # at the end the folder is gone
            serve(Echo(), path, ready.release, lambda error: own_log.append(str(error)))

    threading.Thread(target=answer, daemon=True).start()
    assert ready.acquire(timeout=60)
    yield path
    while folder.exists():  # the thread may make its socket again meanwhile
        shutil.rmtree(folder, ignore_errors=True)


def again(path: Path) -> RemoteParty:
    """A connection, as soon as the party listens again."""
    for _ in range(600):
        try:
            return RemoteParty(path, "device:0", MOST)
        except RunError:
            threading.Event().wait(0.05)
    raise AssertionError("nobody listens any more")


def greeted(path: Path) -> socket.socket:
    """A bare connection that the party serves: one that came while another was there is only closed."""
    for _ in range(600):
        broken = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            broken.connect(str(path))
            if broken.recv(1):
                return broken
        broken.close()
        threading.Event().wait(0.05)
    raise AssertionError("nobody listens any more")


def test_frames_go_there_and_come_back(place: Path) -> None:
    party, large = RemoteParty(place, "device:0", MOST), os.urandom(3 << 20)
    assert party.receive(b"one") == [b"one"]
    assert party.receive(b"") == []
    assert party.receive(large) == [large]
    with pytest.raises(RunError, match=r"^device:0: the signature does not fit$"):
        party.receive(b"forged")
    assert party.receive(b"two") == [b"two"]
    party.close()


def test_what_a_party_refuses_for_its_own_reasons_is_told_only_to_its_log(
    place: Path, own_log: list[str]
) -> None:
    party = RemoteParty(place, "device:0", MOST)
    with pytest.raises(RunError, match="device:0: does not answer; its own log says why") as refused:
        party.receive(b"too much")
    assert "7" not in str(refused.value).replace(str(place.parent), "")
    with pytest.raises(RunError, match="device:0: does not answer; its own log says why") as refused:
        party.receive(b"too few")  # whom an edge lost
    assert "device:7" not in str(refused.value)
    assert own_log == ["my other studies took ε = 7", "lost: device:7 (has ended)"]
    assert party.receive(b"two") == [b"two"]
    party.close()


def test_who_stalls_within_a_message_is_let_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_exchange, "STALL_S", 0.2)
    stalling = socket.socket(socket.AF_UNIX)
    stalling.connect(str(place))
    stalling.sendall(b"\0\0\0")
    later = again(place)  # though the other one is still there
    assert later.receive(b"here") == [b"here"]
    later.close()
    stalling.close()


def test_an_answer_is_not_waited_for_for_ever(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "ANSWER_S", 0.2)
    party = RemoteParty(place, "device:0", MOST)
    with pytest.raises(RunError, match="device:0: has not answered"):
        party.receive(b"think")
    party.close()


def test_a_second_connection_is_refused_and_a_later_one_is_not(place: Path) -> None:
    first = RemoteParty(place, "device:0", MOST)
    assert first.receive(b"here") == [b"here"]
    with pytest.raises(RunError, match="device:0 does not answer"):
        RemoteParty(place, "device:0", MOST)
    first.close()
    later = again(place)
    assert later.receive(b"here") == [b"here"]
    later.close()


def test_a_broken_connection_ends_only_itself(place: Path) -> None:
    for said in (b"\0\0", b"\xff" * 8):
        broken = greeted(place)
        broken.sendall(said)
        broken.close()
    party = again(place)
    assert party.receive(b"still here") == [b"still here"]
    party.close()


def test_a_party_is_waited_for_and_met_again(place: Path) -> None:
    busy = RemoteParty(place, "device:0", MOST)
    awaited = AwaitedParty(place, "device:0", MOST, patience_s=60.0)  # the machine may be busy
    threading.Timer(0.3, busy.close).start()
    assert awaited.receive(b"one") == [b"one"]
    assert awaited.receive(b"two") == [b"two"]
    with pytest.raises(RunError, match="the signature does not fit"):
        awaited.receive(b"forged")
    assert awaited.receive(b"three") == [b"three"]
    awaited.close()
    nobody = AwaitedParty(place.with_name("other"), "device:1", MOST, patience_s=0.2)
    with pytest.raises(RunError, match="device:1 does not answer"):
        nobody.receive(b"one")


def test_only_the_owner_may_use_it(place: Path) -> None:
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o666)
    with pytest.raises(RunError, match="may be used by others"):
        RemoteParty(place, "device:0", MOST)


def test_there_is_no_party_without_a_socket(place: Path) -> None:
    with pytest.raises(RunError, match="does not answer"):
        RemoteParty(place.with_name("other"), "device:0", MOST)
    place.with_name("file").write_text("")
    with pytest.raises(RunError, match="is no socket"):
        RemoteParty(place.with_name("file"), "device:0", MOST)
    with pytest.raises(RunError, match="too long"):
        serve(Echo(), place.parent / ("x" * 120))


@contextmanager
def answering(*pieces: bytes, every_s: float = 0.0) -> Iterator[RemoteParty]:
    """The connection to a party that says just this, piece by piece, whatever it is asked."""
    folder = Path(tempfile.mkdtemp())
    with socket.socket(socket.AF_UNIX) as listening:
        before = os.umask(0o177)
        listening.bind(str(folder / "socket"))
        os.umask(before)
        listening.listen(1)

        def answer() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"SFMT")
                connection.recv(1 << 10)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(every_s)
                connection.recv(1 << 10)  # until the other end is closed

        threading.Thread(target=answer, daemon=True).start()
        party = RemoteParty(folder / "socket", "device:0", MOST)
        yield party
        party.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\0" + struct.pack(">I", 2), id="two frames"),
        pytest.param(b"\0" + struct.pack(">I", 2**32 - 1), id="frames without end"),
        pytest.param(b"\0" + struct.pack(">IQ", 1, MOST + 1), id="a frame that is too long"),
        pytest.param(b"\1" + struct.pack(">Q", 1 << 20), id="many words"),
    ],
)
def test_more_than_an_answer_is_not_read(said: bytes) -> None:
    with answering(said) as party, pytest.raises(RunError, match="sends more than an answer can be"):
        party.receive(b"asked")


def test_who_sends_byte_by_byte_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece is late, all together are."""
    monkeypatch.setattr(sockets, "ANSWER_S", 0.5)
    said = b"\0" + struct.pack(">IQ", 1, 1 << 10)
    pieces = [said, *([b"x"] * 1000)]
    with answering(*pieces, every_s=0.02) as party, pytest.raises(RunError, match="has not answered"):
        party.receive(b"asked")

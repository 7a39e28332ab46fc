"""A party behind a socket: for its owner only, one connection at a time, and it outlives what it refuses."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sfumato.deployment import frame_exchange
from sfumato.deployment.consent import ConsentRefusedError
from sfumato.deployment.sockets import AwaitedParty, RemoteParty, serve
from sfumato.errors import RunError
from sfumato.wire.errors import TamperedMessageError


class Echo:
    """Sends back what it gets, twice; refuses what is not signed, as it were."""

    def receive(self, data: bytes) -> list[bytes]:
        if data == b"forged":
            raise TamperedMessageError("the signature does not fit\nthe message")
        if data == b"too much":
            raise ConsentRefusedError("my other studies took ε = 7")
        if data == b"think":
            threading.Event().wait(1.0)
        return [data, data] if data else []


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
            return RemoteParty(path, "device:0")
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
    party, large = RemoteParty(place, "device:0"), os.urandom(3 << 20)
    assert party.receive(b"one") == [b"one", b"one"]
    assert party.receive(b"") == []
    assert party.receive(large) == [large, large]
    with pytest.raises(RunError, match=r"^device:0: the signature does not fit$"):
        party.receive(b"forged")
    assert party.receive(b"two") == [b"two", b"two"]
    party.close()


def test_what_a_party_refuses_for_its_own_reasons_is_told_only_to_its_log(
    place: Path, own_log: list[str]
) -> None:
    party = RemoteParty(place, "device:0")
    with pytest.raises(RunError, match="device:0: does not answer; its own log says why") as refused:
        party.receive(b"too much")
    assert "7" not in str(refused.value).replace(str(place.parent), "")
    assert own_log == ["my other studies took ε = 7"]
    assert party.receive(b"two") == [b"two", b"two"]
    party.close()


def test_who_stalls_within_a_message_is_let_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_exchange, "STALL_S", 0.2)
    stalling = socket.socket(socket.AF_UNIX)
    stalling.connect(str(place))
    stalling.sendall(b"\0\0\0")
    later = again(place)  # though the other one is still there
    assert later.receive(b"here") == [b"here", b"here"]
    later.close()
    stalling.close()


def test_an_answer_is_not_waited_for_for_ever(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_exchange, "_ANSWER_S", 0.2)
    party = RemoteParty(place, "device:0")
    with pytest.raises(RunError, match="device:0: has not answered"):
        party.receive(b"think")
    party.close()


def test_a_second_connection_is_refused_and_a_later_one_is_not(place: Path) -> None:
    first = RemoteParty(place, "device:0")
    assert first.receive(b"here") == [b"here", b"here"]
    with pytest.raises(RunError, match="device:0 does not answer"):
        RemoteParty(place, "device:0")
    first.close()
    later = again(place)
    assert later.receive(b"here") == [b"here", b"here"]
    later.close()


def test_a_broken_connection_ends_only_itself(place: Path) -> None:
    for said in (b"\0\0", b"\xff" * 8):
        broken = greeted(place)
        broken.sendall(said)
        broken.close()
    party = again(place)
    assert party.receive(b"still here") == [b"still here", b"still here"]
    party.close()


def test_a_party_is_waited_for_and_met_again(place: Path) -> None:
    busy = RemoteParty(place, "device:0")
    awaited = AwaitedParty(place, "device:0", patience_s=60.0)  # the machine may be busy
    threading.Timer(0.3, busy.close).start()
    assert awaited.receive(b"one") == [b"one", b"one"]
    assert awaited.receive(b"two") == [b"two", b"two"]
    with pytest.raises(RunError, match="the signature does not fit"):
        awaited.receive(b"forged")
    assert awaited.receive(b"three") == [b"three", b"three"]
    awaited.close()
    nobody = AwaitedParty(place.with_name("other"), "device:1", patience_s=0.2)
    with pytest.raises(RunError, match="device:1 does not answer"):
        nobody.receive(b"one")


def test_only_the_owner_may_use_it(place: Path) -> None:
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o666)
    with pytest.raises(RunError, match="may be used by others"):
        RemoteParty(place, "device:0")


def test_there_is_no_party_without_a_socket(place: Path) -> None:
    with pytest.raises(RunError, match="does not answer"):
        RemoteParty(place.with_name("other"), "device:0")
    place.with_name("file").write_text("")
    with pytest.raises(RunError, match="is no socket"):
        RemoteParty(place.with_name("file"), "device:0")
    with pytest.raises(RunError, match="too long"):
        serve(Echo(), place.parent / ("x" * 120))

"""Hops between machines: TLS 1.3 of two registered keys, on the loopback address as on any other."""

from __future__ import annotations

import datetime
import errno
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from sfumato.cli.party import say
from sfumato.deployment import frame_exchange, hop_keys, tls_hops
from sfumato.deployment.calls import at_once
from sfumato.deployment.carrier import FrameReceiver, InProcess
from sfumato.deployment.consent import ConsentRefusedError
from sfumato.deployment.frame_exchange import GREETING, answer_frames, send_frame
from sfumato.deployment.hop_keys import HopKey, PublicKeys, certificate_bytes, make_keys
from sfumato.deployment.hop_proofs import Neighbour, Nonces, OwnEnd
from sfumato.deployment.hops_file import address_of
from sfumato.deployment.neighbours import DialedParent, Neighbours
from sfumato.deployment.party_folder import read_identity
from sfumato.deployment.rare_lines import RareLines
from sfumato.deployment.tls_hops import ChildrenDoor, ParentAbsentError, answer_parent, dial
from sfumato.errors import RunError, SfumatoError, SpecError
from sfumato.wire.errors import MisroutedMessageError, TamperedMessageError
from sfumato.wire.frames import Frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity

PATIENCE_S = 60.0
MOST = 4 << 20
SESSION = bytes(range(32))


class Echo:
    """Sends back what it gets; refuses what is not signed, as it were."""

    def receive(self, data: bytes) -> list[bytes]:
        if data == b"forged":
            raise TamperedMessageError("the signature does not fit")
        if data == b"too much":
            raise ConsentRefusedError("my other studies took ε = 7")
        return [data]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


@dataclass
class Hop:
    """A parent and a child, each with the keys of a folder of its own, and the other one's certificate."""

    folder: Path
    address: str = field(default_factory=free_address)
    events: list[str] = field(default_factory=list)
    opened: ExitStack = field(default_factory=ExitStack)

    def public(self, name: str) -> PublicKeys:
        return make_keys(self.folder / name)

    def own(self, name: str, session: bytes = SESSION) -> OwnEnd:
        self.public(name)
        return OwnEnd(HopKey(self.folder / name), read_identity(self.folder / name), session)

    def met(self, name: str, number: int, title: str) -> Neighbour:
        said = self.public(name)
        return Neighbour(number, title, said.signing, certificate_bytes(said.certificate, "here"))

    def door(self, *children: str, owner: str = "parent", session: bytes = SESSION) -> ChildrenDoor:
        listed = [self.met(name, number, f"device:{number}") for number, name in enumerate(children)]
        hops = Neighbours(self.own(owner, session), (), listed, self.address)
        door = ChildrenDoor(hops, self.events.append)
        self.opened.callback(door.close)
        return door

    def parent(self, owner: str = "parent", address: str | None = None) -> DialedParent:
        met = self.met(owner, 9, "edge:0")
        return DialedParent(met.number, met.name, met.key, met.certificate, address or self.address)

    def dial(self, name: str, address: str | None = None) -> ssl.SSLSocket:
        return dial(self.own(name), self.parent(), address or self.address)

    def answers(
        self, name: str, party: FrameReceiver, address: str | None = None, told: list[str] | None = None
    ) -> list[str]:
        """Let a child answer in a thread; what its own log has."""
        log: list[str] = []
        given = (
            party,
            self.own(name),
            self.parent(address=address),
            MOST,
            ([] if told is None else told).append,
        )
        refused = lambda error: log.append(str(error))  # noqa: E731
        threading.Thread(target=answer_parent, args=(*given, refused), daemon=True).start()
        return log


@pytest.fixture(name="hop")
def fixture_hop(tmp_path: Path) -> Iterator[Hop]:
    hop = Hop(tmp_path)
    with hop.opened:
        yield hop


def test_a_child_that_dials_answers_its_parent(hop: Hop) -> None:
    (child,) = hop.door("child").parties(MOST).values()
    log = hop.answers("child", Echo())
    assert child.receive(b"x" * 3_000_000) == [b"x" * 3_000_000]
    with pytest.raises(RunError, match="device:0: the signature does not fit"):
        child.receive(b"forged")
    with pytest.raises(RunError, match="its own log says why") as refused:
        child.receive(b"too much")
    assert "7" not in str(refused.value)
    assert log == ["the signature does not fit", "my other studies took ε = 7"]
    assert child.receive(b"later") == [b"later"]
    assert "device:0 is connected, from 127.0.0.1" in hop.events


def test_a_foreign_or_revoked_key_is_refused_by_the_parent(hop: Hop) -> None:
    door = hop.door("child")
    with pytest.raises(RunError, match=r"edge:0 at .*: does not take the certificate of this party"):
        hop.dial("stranger")
    door.close()
    hop.address = free_address()
    renewed = hop.door("child-2")  # the child's first key is not listed any more
    with pytest.raises(RunError, match="does not take the certificate of this party"):
        hop.dial("child")
    assert not door.seen
    assert not renewed.seen
    hop.dial("child-2").close()


def test_a_parent_with_another_key_is_refused(hop: Hop) -> None:
    hop.door("child", owner="impostor")
    with pytest.raises(RunError, match="shows a certificate that is not the one registered"):
        hop.dial("child")


def test_a_certificate_counts_only_with_the_key_of_the_terms(hop: Hop) -> None:
    """Both ends have registered certificates, and one has not the signing key of whom it stands for."""
    door = hop.door("child")
    stranger = replace(hop.own("child"), identity=Identity())
    with pytest.raises(ParentAbsentError, match=r"edge:0 at .*: ends the connection"):
        dial(stranger, hop.parent(), hop.address)
    assert not door.seen
    assert "device:0: does not show the key" in hop.events[-1]
    forged = replace(hop.parent(), key=Identity().public)
    with pytest.raises(RunError, match="edge:0: does not show the key"):
        dial(hop.own("child"), forged, hop.address)


def test_an_introduction_is_of_one_role_and_one_pair(hop: Hop) -> None:
    parent, child = hop.own("parent"), hop.own("child")
    known, other = hop.met("child", 0, "device:0"), hop.met("other", 1, "device:1")
    nonces = Nonces(parent=b"p" * 32, child=b"c" * 32)
    said = parent.to_child(known, nonces)
    child.require_parent(hop.parent(), said, nonces)
    parent.require_child(known, child.to_parent(hop.parent(), nonces), nonces)
    for wrong in (
        *(parent.to_child(other, nonces), child.to_parent(hop.parent(), nonces), b"", b"SFMT"),
        *(said[:-1] + bytes([said[-1] ^ 1]), said + b"\0"),
    ):
        with pytest.raises(RunError, match="does not show the key"):
            child.require_parent(hop.parent(), wrong, nonces)


def test_an_introduction_of_another_connection_is_refused_at_both_ends(hop: Hop) -> None:
    """Who has got hold of the key of connections of one end has heard what it said before."""
    parent, child, known = hop.own("parent"), hop.own("child"), hop.met("child", 0, "device:0")
    heard = Nonces(parent=b"p" * 32, child=b"c" * 32)
    for now in (replace(heard, child=b"d" * 32), replace(heard, parent=b"q" * 32)):
        with pytest.raises(RunError, match="does not show the key"):
            child.require_parent(hop.parent(), parent.to_child(known, heard), now)
        with pytest.raises(RunError, match="does not show the key"):
            parent.require_child(known, child.to_parent(hop.parent(), heard), now)


def test_every_connection_has_nonces_of_its_own(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Nonces] = []
    real = OwnEnd.require_child

    def noted(self: OwnEnd, child: Neighbour, said: bytes, nonces: Nonces) -> None:
        seen.append(nonces)
        real(self, child, said, nonces)

    monkeypatch.setattr(OwnEnd, "require_child", noted)
    hop.door("child")
    for _ in range(2):
        hop.dial("child").close()
    assert len({nonce for nonces in seen for nonce in (nonces.parent, nonces.child)}) == 4


def test_who_has_other_terms_is_told_apart(hop: Hop) -> None:
    door = hop.door("child", session=bytes(32))
    with pytest.raises(RunError, match="edge:0: has other terms: another spec"):
        hop.dial("child")
    assert not door.seen
    nonces = Nonces(bytes(32), bytes(32))
    said = hop.own("child", bytes(32)).to_parent(hop.parent(), nonces)
    with pytest.raises(RunError, match="device:0: has other terms"):
        hop.own("parent").require_child(hop.met("child", 0, "device:0"), said, nonces)
    own = hop.own("parent").session
    relabelled = said.replace(bytes(32), own, 1)  # it was signed for another run
    with pytest.raises(RunError, match="device:0: does not show the key"):
        hop.own("parent").require_child(hop.met("child", 0, "device:0"), relabelled, nonces)


def test_trust_is_not_passed_on(hop: Hop, tmp_path: Path) -> None:
    """A certificate that a registered child's key has signed is not a registered one."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    door = hop.door("child")
    signer = x509.load_pem_x509_certificate((tmp_path / "child" / "hop-certificate.pem").read_bytes())
    secret = serialization.load_pem_private_key((tmp_path / "child" / "hop-key.pem").read_bytes(), None)
    assert isinstance(secret, ec.EllipticCurvePrivateKey)
    key, folder = ec.generate_private_key(ec.SECP256R1()), tmp_path / "child-of-child"
    made = x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(signer.subject)
    made = made.public_key(key.public_key()).serial_number(7)
    made = made.not_valid_before(signer.not_valid_before_utc).not_valid_after(signer.not_valid_after_utc)
    shutil.copytree(tmp_path / "child", folder)
    signed = made.sign(secret, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "hop-certificate.pem").write_bytes(signed)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "hop-key.pem").write_bytes(key.private_bytes(*form))
    with pytest.raises(RunError, match="edge:0"):
        dial(replace(hop.own("child"), hop=HopKey(folder)), hop.parent(), hop.address)
    assert not door.seen


def test_an_address_may_be_of_ipv6(hop: Hop) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
            hop.address = f"[::1]:{listening.getsockname()[1]}"
    except OSError:
        pytest.skip("this machine has no IPv6")
    (child,) = hop.door("child").parties(MOST).values()
    hop.answers("child", Echo())
    assert child.receive(b"here") == [b"here"]
    assert "device:0 is connected, from ::1" in hop.events


def test_plain_text_is_refused_on_both_sides(hop: Hop) -> None:
    (child,) = hop.door("child").parties(MOST).values()
    host, port = address_of(hop.address, "here")
    with socket.create_connection((host, port)) as plain, suppress(ConnectionResetError):
        plain.sendall(frame_exchange.GREETING * 20)
        assert b"SFMT" not in plain.recv(100)
    hop.answers("child", Echo())
    assert child.receive(b"here") == [b"here"]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(frame_exchange.GREETING * 20)

        threading.Thread(target=greet, daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RunError, match=r"does not speak TLS 1\.3"):
            hop.dial("child", address)


def test_nobody_there_is_waited_for_and_said(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParentAbsentError, match=r"edge:0 at 127\.0\.0\.1:.*: nobody answers"):
        hop.dial("child")
    hop.answers("child", Echo())  # before there is a parent
    (child,) = hop.door("child").parties(MOST).values()
    assert child.receive(b"here") == [b"here"]
    hop.address = free_address()
    monkeypatch.setattr(tls_hops, "PATIENCE_S", 0.1)
    (absent,) = hop.door("who never comes").parties(MOST).values()
    with pytest.raises(RunError, match=r"device:0: is not connected"):
        absent.receive(b"x")


class Watcher:
    """Carries bytes between a child and its parent, keeps them, and cuts the connection when told to."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.seen, self._to = bytearray(), to
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                first, _ = self._listening.accept()
            except OSError:
                return
            try:
                second = socket.create_connection(self._to)
            except OSError:  # the test is over
                first.close()
                return
            self.pairs.append((first, second))
            for one, other in ((first, second), (second, first)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(1 << 16):
                self.seen += piece
                other.sendall(piece)
        except OSError:
            pass

    def cut(self) -> None:
        for pair in self.pairs:
            for one in pair:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self.pairs.clear()

    def close(self) -> None:
        self._listening.close()
        self.cut()


def test_who_carries_the_bytes_reads_nothing_and_a_cut_is_survived(hop: Hop) -> None:
    """A frame whose answer was lost on the way is sent again, and answered again."""
    (child,) = hop.door("child").parties(MOST).values()
    asked: list[bytes] = []

    class Cutting(Echo):
        def receive(self, data: bytes) -> list[bytes]:
            asked.append(data)
            if len(asked) == 2:
                watcher.cut()
            return super().receive(data)

    with closing(Watcher(address_of(hop.address, "here"))) as watcher:
        hop.answers("child", Cutting(), watcher.address)
        for said in (b"first raw message", b"second raw message"):
            assert child.receive(said) == [said]
        assert asked == [b"first raw message", b"second raw message", b"second raw message"]
        assert len(watcher.seen) > 500
        assert b"raw message" not in watcher.seen


def lost_to(hop: Hop, children: dict[int, FrameReceiver]) -> tuple[list[int], list[int]]:
    """Ask two children at the same time; whose answers come, and who is lost."""
    taken: list[int] = []
    lost: list[int] = []
    identity, session = Identity(), bytes(32)

    class Node:
        number = 9

        def receive(self, data: bytes) -> list[bytes]:
            taken.append(parse_frame(data).sender)
            return []

        def lose(self, child: int, error: SfumatoError) -> list[bytes]:
            lost.append(child)
            return []

    carrier = InProcess({9: Node(), **children}, dict.fromkeys(children, 9), at_once)
    carrier.carry([seal_frame(Frame(1, session, 9, child, b"?"), identity) for child in children])
    return taken, lost


@dataclass
class Answering:
    """A device that answers its parent with a frame of its own; the first times it is cut off."""

    number: int
    cuts: int = 0
    watcher: Watcher | None = None

    def receive(self, data: bytes) -> list[bytes]:
        if self.cuts:
            assert self.watcher is not None
            self.cuts -= 1
            self.watcher.cut()
        return [seal_frame(Frame(1, bytes(32), self.number, 9, data), Identity())]


def test_a_child_that_is_gone_is_lost_and_not_waited_for_again(
    hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = hop.door("child", "who never comes")
    children = dict(door.parties(MOST))
    hop.answers("child", Answering(0))
    monkeypatch.setattr(tls_hops, "PATIENCE_S", 1.0)
    assert lost_to(hop, children) == ([0], [1])
    monkeypatch.setattr(tls_hops, "PATIENCE_S", 2 * PATIENCE_S)
    before = time.monotonic()
    assert lost_to(hop, children) == ([0], [1])
    assert time.monotonic() - before < PATIENCE_S
    hop.answers("who never comes", Answering(1))
    before = time.monotonic()
    while 1 not in door.seen:
        assert time.monotonic() - before < PATIENCE_S
        time.sleep(0.05)
    time.sleep(0.5)  # until it listens
    assert lost_to(hop, children) == ([0, 1], [])


@pytest.mark.parametrize(("cuts", "lost"), [(2, []), (9, [0])])
def test_a_child_dials_again_some_times_before_it_is_lost(hop: Hop, cuts: int, lost: list[int]) -> None:
    children = dict(hop.door("child").parties(MOST))
    with closing(Watcher(address_of(hop.address, "here"))) as watcher:
        party = Answering(0, cuts, watcher)
        hop.answers("child", party, watcher.address)
        assert lost_to(hop, children) == ([] if lost else [0], lost)
    assert party.cuts == max(0, cuts - 4)


def test_who_sends_too_much_is_let_go(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a child and of a parent no more is read than a frame can have."""
    monkeypatch.setattr(tls_hops, "_SENDS", 1)
    (child,) = hop.door("child").parties(most_bytes=10).values()
    hop.answers("child", Echo())
    with pytest.raises(RunError, match="device:0: sends more than an answer can be"):
        child.receive(b"x" * 11)
    with pytest.raises(RunError, match="device:0: has ended"):
        child.receive(b"x" * (MOST + 1))
    assert child.receive(b"here") == [b"here"]


def test_what_a_child_says_does_no_harm_to_a_terminal(hop: Hop) -> None:
    class Rude:
        def receive(self, data: bytes) -> list[bytes]:
            raise TamperedMessageError("\x1b[2J" + "x" * 1000)

    (child,) = hop.door("child").parties(MOST).values()
    hop.answers("child", Rude())
    with pytest.raises(RunError) as refused:
        child.receive(b"?")
    assert str(refused.value) == "device:0: \N{REPLACEMENT CHARACTER}[2J" + "x" * 296


def test_a_slow_connection_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a frame takes longer than a stall may; no piece of it does."""
    monkeypatch.setattr(frame_exchange, "STALL_S", 0.5)
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)

    def read() -> None:
        found = 0
        while found < 8 + (1 << 20):
            time.sleep(0.02)
            found += len(theirs.recv(1 << 14))
        theirs.sendall(b"\0" + bytes(4))

    threading.Thread(target=read, daemon=True).start()
    before = time.monotonic()
    with closing(ours), closing(theirs):
        assert send_frame(ours, bytes(1 << 20), "device:0", "there", 0, before + PATIENCE_S) == []
        assert time.monotonic() - before > 2 * 0.5


def test_errors_of_the_network_end_a_connection_and_those_of_a_party_do_not_hide() -> None:
    class Broken:
        def settimeout(self, value: float | None) -> None: ...

        def sendall(self, data: bytes) -> None: ...

        def recv(self, size: int) -> bytes:
            raise OSError(errno.EHOSTUNREACH, "no route to host")

    answer_frames(Echo(), cast(socket.socket, Broken()), MOST, print)

    class Failing:
        def receive(self, data: bytes) -> list[bytes]:
            raise OSError(errno.ENOSPC, "no room")

    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.sendall(struct.pack(">Q", 1) + b"x")
        with pytest.raises(OSError, match="no room"):
            answer_frames(Failing(), theirs, MOST, print)


def test_the_door_outlives_a_system_without_room(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = socket.socket.accept, [OSError(errno.EMFILE, "too many open files")] * 3

    def accept(self: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return real(self)

    monkeypatch.setattr(tls_hops, "_PAUSE_S", 0.01)
    monkeypatch.setattr(socket.socket, "accept", accept)
    door = hop.door("child")
    hop.dial("child").close()
    assert door.seen == {0}
    assert hop.events.count("nobody can be let in now: too many open files") == 1


def test_the_door_outlives_a_system_without_threads(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures = threading.Thread.start, [RuntimeError("can't start new thread")] * 2
    monkeypatch.setattr(tls_hops, "_PAUSE_S", 0.01)
    door = hop.door("child")

    def start(self: threading.Thread) -> None:
        if failures:
            raise failures.pop()
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(2):
        with pytest.raises(ParentAbsentError):
            hop.dial("child")
    hop.dial("child").close()
    assert door.seen == {0}
    assert hop.events.count("nobody can be let in now: can't start new thread") == 1


def test_a_log_that_is_full_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "no room")

        def flush(self) -> None: ...

    monkeypatch.setattr(sys, "stdout", Full())
    say("device:0 is connected")


def test_one_host_does_not_keep_the_door_busy(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_hops, "_HANDSHAKE_S", 1.0)
    hop.door("child")
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(address_of(hop.address, "here"))) for _ in range(20)
        ]
        for one in silent:  # all but four are closed as others come, and these after a second
            one.settimeout(PATIENCE_S)
            assert one.recv(1) == b""
        monkeypatch.setattr(tls_hops, "_HANDSHAKE_S", PATIENCE_S)
        hop.dial("child").close()
    assert sum("was refused" in event for event in hop.events) == 1


def test_who_holds_connections_open_keeps_no_child_of_the_same_host_out(hop: Hop) -> None:
    hop.door("child")
    with ExitStack() as opened:
        for _ in range(8):
            opened.enter_context(socket.create_connection(address_of(hop.address, "here")))
        hop.dial("child").close()


def has_ended(connection: socket.socket) -> bool:
    """Whether the other end has ended a connection over which it says nothing."""
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False


def test_a_host_that_fills_the_door_ends_its_own_connections(
    hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the children are as many as can be looked at: no child waits for those who say nothing."""
    monkeypatch.setattr(tls_hops, "_HANDSHAKES", 4)
    monkeypatch.setattr(tls_hops, "_HANDSHAKE_S", PATIENCE_S)
    hop.door(*(f"child-{number}" for number in range(5)))
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(address_of(hop.address, "here"))) for _ in range(13)
        ]
        hop.dial("child-0").close()
        assert sum(map(has_ended, silent)) == 5  # of 14 nine are looked at
    assert hop.events.count("somebody at 127.0.0.1 was refused: too many at once") == 1


def test_a_child_that_was_let_in_is_not_ended_by_strangers(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while its parent's log is slow."""
    monkeypatch.setattr(tls_hops, "_HANDSHAKES", 6)
    monkeypatch.setattr(tls_hops, "_HANDSHAKE_S", PATIENCE_S)
    door = hop.door("child", "other")
    went_on = threading.Event()
    slow_log = RareLines(lambda said: went_on.wait(PATIENCE_S), most=2)
    monkeypatch.setattr(door, "_connections", slow_log)
    with hop.dial("child") as child, ExitStack() as opened:
        child.sendall(GREETING)
        with closing(door.take(hop.met("child", 0, "device:0"), PATIENCE_S)):
            for _ in range(12):
                opened.enter_context(socket.create_connection(address_of(hop.address, "here")))
            child.settimeout(0.5)
            with pytest.raises(TimeoutError):
                child.recv(1)
            went_on.set()


def test_nothing_that_a_stranger_answers_ends_a_child(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there is something else at the parent's address: it is said, and the parent is dialed again."""
    monkeypatch.setattr(tls_hops, "_POLLS_S", (0.1,))
    told: list[str] = []
    host, port = address_of(hop.address, "here")
    with socket.create_server((host, port)) as listening:
        hop.answers("child", Echo(), told=told)
        for _ in range(2):
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    (child,) = hop.door("child").parties(MOST).values()
    assert child.receive(b"here") == [b"here"]
    assert sum("does not speak TLS" in event for event in told) == 1


def test_a_child_that_dials_again_is_the_one_that_counts(hop: Hop) -> None:
    door = hop.door("child")
    (child,) = door.parties(MOST).values()
    first = hop.dial("child")
    first.sendall(frame_exchange.GREETING)
    with closing(first):
        hop.answers("child", Echo())
        first.settimeout(PATIENCE_S)
        assert first.recv(1) == b""  # let go
        assert child.receive(b"here") == [b"here"]


def test_a_child_that_dials_again_and_again_fills_no_log(hop: Hop) -> None:
    door = hop.door("child", "other")
    for name, number in (("child", 0), ("child", 0), ("child", 0), ("other", 1)):
        with hop.dial(name) as connection:
            connection.sendall(GREETING)
            door.take(hop.met(name, number, f"device:{number}"), PATIENCE_S).close()
    before = time.monotonic()
    while len(hop.events) < 2 and time.monotonic() - before < PATIENCE_S:
        time.sleep(0.05)  # it is said after the connection can be taken
    assert hop.events == [f"device:{number} is connected, from 127.0.0.1" for number in (0, 1)]


def test_children_are_asked_at_the_same_time(hop: Hop) -> None:
    """Each answers only when the other one has been asked too; the parent gets answers in their order."""
    both = threading.Barrier(2, timeout=PATIENCE_S)
    identity, session = Identity(), bytes(32)
    taken: list[int] = []

    @dataclass
    class Waiting:
        number: int

        def receive(self, data: bytes) -> list[bytes]:
            both.wait()
            return [seal_frame(Frame(1, session, self.number, 9, data), identity)]

    class Node:
        number = 9

        def receive(self, data: bytes) -> list[bytes]:
            taken.append(parse_frame(data).sender)
            return []

        def lose(self, child: int, error: SfumatoError) -> list[bytes]:
            raise error

    frames = [seal_frame(Frame(1, session, 9, child, b"?"), identity) for child in (1, 0)]
    carrier = InProcess({9: Node(), 0: Waiting(0), 1: Waiting(1)}, {0: 9, 1: 9}, at_once)
    carrier.carry(frames)
    assert taken == [1, 0]
    assert carrier.bytes_down == sum(map(len, frames))
    with pytest.raises(MisroutedMessageError, match="a frame for party 7"):
        carrier.carry([seal_frame(Frame(1, session, 9, 7, b"?"), identity)])


def test_a_key_that_others_can_read_or_that_is_missing_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path / "party")
    make_keys(tmp_path / "other")
    key, certificate = (tmp_path / "party" / name for name in ("hop-key.pem", "hop-certificate.pem"))
    key.chmod(0o640)
    with pytest.raises(RunError, match=r"hop-key\.pem: may be read by others"):
        HopKey(tmp_path / "party")
    key.chmod(0o600)
    certificate.chmod(0o662)
    with pytest.raises(RunError, match=r"hop-certificate\.pem: may be changed by others"):
        HopKey(tmp_path / "party")
    certificate.chmod(0o600)
    HopKey(tmp_path / "party")
    shutil.copy(tmp_path / "other" / "hop-certificate.pem", certificate)
    with pytest.raises(RunError, match=r"hop-key\.pem: cannot be used"):
        HopKey(tmp_path / "party")
    certificate.write_text("no certificate")
    with pytest.raises(RunError, match=r"hop-certificate\.pem: is no certificate"):
        HopKey(tmp_path / "party")
    os.remove(key)
    with pytest.raises(RunError, match=r"hop-key\.pem: cannot be read"):
        HopKey(tmp_path / "party")


def test_a_wrong_clock_is_named(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(hop_keys, "_BEFORE", datetime.timedelta(days=-2))
        hop.door("child")
    with pytest.raises(RunError, match=r"is a clock wrong\?: certificate is not yet valid"):
        hop.dial("child")


@pytest.mark.parametrize(("expired", "told"), [("parent", "dial"), ("child", "door")])
def test_an_expired_certificate_is_refused_and_named(
    expired: str, told: str, hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(hop_keys, "_AFTER", datetime.timedelta(hours=-1))
        hop.public(expired)
    door = hop.door("child")
    with pytest.raises(RunError) as refused:
        hop.dial("child")
    before = time.monotonic()
    while told == "door" and not hop.events and time.monotonic() - before < PATIENCE_S:
        time.sleep(0.05)  # the door says it after it has told the child
    said = hop.events[-1] if told == "door" else str(refused.value)
    assert "its certificate has expired, or a clock is wrong: certificate has expired" in said
    assert "\n" not in str(refused.value)
    assert not door.seen


def test_keys_that_are_there_stay(tmp_path: Path) -> None:
    assert make_keys(tmp_path / "party") == make_keys(tmp_path / "party")
    assert make_keys(tmp_path / "party") != make_keys(tmp_path / "other")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_another_programme_sees_tls_1_3_and_what_is_registered(hop: Hop, tmp_path: Path) -> None:
    """`openssl s_client`, with the key of a registered child, and with none: then it is refused."""
    hop.door("child")
    own = [f"{tmp_path / 'child' / name}.pem" for name in ("hop-certificate", "hop-key")]
    command = ["openssl", "s_client", "-connect", hop.address, "-verify_return_error"]
    command += ["-CAfile", f"{tmp_path / 'parent' / 'hop-certificate.pem'}"]

    def said(*options: str) -> str:
        done = subprocess.run([*command, *options], input=bytes(32), capture_output=True)
        return (done.stdout + done.stderr).decode(errors="replace")

    with_key = said("-cert", own[0], "-key", own[1])
    assert "TLSv1.3" in with_key
    assert "Verify return code: 0 (ok)" in with_key
    assert "alert" not in with_key
    assert "alert certificate required" in said("-ign_eof")


def test_no_version_before_1_3_is_spoken(hop: Hop) -> None:
    hop.door("child")
    old = hop.own("child").hop.context(ssl.PROTOCOL_TLS_CLIENT, (hop.parent().certificate,))
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(address_of(hop.address, "here")) as raw, pytest.raises(ssl.SSLError):
        old.wrap_socket(raw)


@pytest.mark.parametrize(
    "text",
    ["here", "a..b:80", "here:", ":80", "http://here:80", "here:0", "here:65536", "here:٣", "::1:80"],
)
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    assert address_of("[::1]:80", "here") == ("::1", 80)
    with pytest.raises(SpecError, match="must be HOST:PORT"):
        address_of(text, "here")

"""A hop between machines: the child dials its parent, which then asks, over TLS 1.3 of two registered keys.

Children need no address that others can reach. Each end shows its certificate, and the other end takes it
only if all its bytes are those that are registered: for a parent, the one in the child's ``hops.yaml``; for a
child, one of those in the parent's, which says too which child it is. There is nothing without TLS, on no
address. When the parent has taken the child's certificate it sends ``SFMT``; then the child greets, and the
parent asks, as on any connection (`frame_exchange`).

A connection that is lost is dialed again. The parent then sends the frame again that had no answer: a party
that has answered it sends the same bytes, from its memory.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.frame_exchange import (
    ANSWER_S,
    GREETING,
    ConnectionLostError,
    answer_frames,
    exactly,
    send_frame,
)
from sfumato.deployment.hop_keys import HopKey, certificate_bytes
from sfumato.deployment.hops_file import HOPS, Child, Hops, Parent, address_of
from sfumato.errors import RunError, SfumatoError

PATIENCE_S = 600.0
"""How long a parent waits for a child that is not connected."""

_HANDSHAKE_S = 10.0
_ANOTHER = "shows a certificate that is not the one registered for it"
_NOT_NOW = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_POLLS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
_SENDS = 4  # of a frame, over as many connections
_HANDSHAKES = 64  # at the same time


class ParentAbsentError(RunError):
    """Nobody listens at the parent's address, or it does not answer: it may be started later."""


def dial(parent: Parent, own: HopKey) -> ssl.SSLSocket:
    """A connection to the parent, which has taken the certificate of this party.

    Raises:
        ParentAbsentError: nobody listens there.
        RunError: it shows another certificate, does not take this one, or has no TLS 1.3.
    """
    there = f"{parent.name} at {parent.address}"
    expected = certificate_bytes(parent.certificate, f"{HOPS}: parent.certificate")
    context = own.context(ssl.PROTOCOL_TLS_CLIENT, (expected,))
    try:
        raw = socket.create_connection(address_of(parent.address, HOPS), _HANDSHAKE_S)
    except OSError as error:
        raise ParentAbsentError(f"{there}: nobody answers: {error.strerror or error}") from None
    with raw:  # which holds nothing any more as soon as it is wrapped
        _keep_alive(raw)
        try:
            return _taken(context.wrap_socket(raw), expected)
        except ssl.SSLCertVerificationError as error:
            said = "is a clock wrong?" if error.verify_code in _NOT_NOW else _ANOTHER
            raise RunError(f"{there}: {said}: {error.verify_message}") from None
        except ssl.SSLEOFError:
            raise ParentAbsentError(f"{there}: ends the connection") from None
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            said = (
                "does not take the certificate of this party"
                if "ALERT" in reason
                else "does not speak TLS 1.3"
            )
            raise RunError(f"{there}: {said}: {reason}") from None
        except (OSError, EOFError):
            raise ParentAbsentError(f"{there}: ends the connection, or says nothing") from None
        except _AnotherCertificateError:
            raise RunError(f"{there}: {_ANOTHER}") from None


class _AnotherCertificateError(Exception):
    """The other end's certificate is trusted by TLS, and is not the one that is registered."""


def _taken(connection: ssl.SSLSocket, expected: bytes) -> ssl.SSLSocket:
    """A connection to the owner of a certificate, which has taken this party's.

    Raises:
        OSError: the other end refuses.
        EOFError: it ends the connection.
        _AnotherCertificateError: it shows another certificate.
    """
    try:
        if connection.getpeercert(binary_form=True) != expected:
            raise _AnotherCertificateError
        exactly(connection, len(GREETING), time.monotonic() + _HANDSHAKE_S)
    except BaseException:
        connection.close()
        raise
    return connection


def answer_parent(
    party: FrameReceiver,
    parent: Parent,
    own: HopKey,
    most_bytes: int,
    on_event: Callable[[str], object],
    on_refusal: Callable[[SfumatoError], object],
) -> None:
    """Answer the parent until the process is ended; a connection that is lost is dialed again.

    Args:
        party: that answers.
        parent: whom it answers.
        own: key of its connections.
        most_bytes: of a frame of the parent.
        on_event: called with a sentence when the connection is there, and when it is not.
        on_refusal: called with every error, for the party's own log.

    Raises:
        RunError: the parent shows another certificate, does not take this one, or has no TLS 1.3.
    """
    failures = 0
    while True:
        try:
            connection = dial(parent, own)
        except ParentAbsentError as error:
            if not failures:
                on_event(f"{error}; waiting")
            time.sleep(_POLLS_S[min(failures, len(_POLLS_S) - 1)])
            failures += 1
            continue
        failures = 0
        on_event(f"connected to {parent.name} at {parent.address}")
        with connection:
            answer_frames(party, connection, most_bytes, on_refusal)
        on_event(f"the connection to {parent.name} has ended")
        time.sleep(_POLLS_S[0])


class ChildrenDoor:
    """Where the children of an aggregator dial in. It must be closed.

    Args:
        hops: of the aggregator, which has children.
        own: key of its connections.
        on_event: called with a sentence, from other threads, when somebody was let in or refused.

    Attributes:
        seen: the numbers of all whose certificates were taken so far, also those who only looked.

    Raises:
        RunError: nothing can listen at that address.
    """

    def __init__(self, hops: Hops, own: HopKey, on_event: Callable[[str], object]) -> None:
        assert hops.listens is not None  # there are children
        self._children: dict[bytes, Child] = {
            certificate_bytes(child.certificate, HOPS): child for child in hops.children
        }
        self._context = own.context(ssl.PROTOCOL_TLS_SERVER, tuple(self._children))
        self._on_event = on_event
        self.seen: set[int] = set()
        self._there: dict[int, ssl.SSLSocket] = {}  # those that nobody uses now
        self._in_use: dict[int, ssl.SSLSocket] = {}
        self._changed = threading.Condition()
        self._room = threading.BoundedSemaphore(_HANDSHAKES)
        host, port = address_of(hops.listens, HOPS)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listening = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise RunError(f"{hops.listens}: cannot listen here: {error.strerror or error}") from None
        threading.Thread(target=self._accept, daemon=True).start()

    def parties(self, most_bytes: int) -> Mapping[int, FrameReceiver]:
        """The children, as the aggregator reaches them, by number; ``most_bytes``: of a frame of theirs."""
        return {child.number: _DialedIn(self, child, most_bytes) for child in self._children.values()}

    def take(self, child: Child, patience_s: float) -> ssl.SSLSocket:
        """The connection of a child, for the caller alone, as soon as there is one.

        Raises:
            RunError: it does not dial in within ``patience_s``.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: child.number in self._there, patience_s):
                raise RunError(f"{child.name}: is not connected")
            connection = self._in_use[child.number] = self._there.pop(child.number)
            return connection

    def give_back(self, child: Child, connection: ssl.SSLSocket) -> None:
        """Let others have a connection that was taken; it is closed if the child has dialed in again."""
        with self._changed:
            is_last = self._in_use.get(child.number) is connection
            if is_last:
                del self._in_use[child.number]
                self._there[child.number] = connection
                self._changed.notify_all()
            else:
                connection.close()

    def drop(self, child: Child, connection: ssl.SSLSocket) -> None:
        """Close a connection that was taken and is broken."""
        with self._changed:
            if self._in_use.get(child.number) is connection:
                del self._in_use[child.number]
            connection.close()

    def close(self) -> None:
        """Close the door and all connections."""
        _shut(self._listening)
        self._listening.close()
        with self._changed:
            for connection in (*self._there.values(), *self._in_use.values()):
                _shut(connection)
                connection.close()

    def _accept(self) -> None:
        while True:
            self._room.acquire()
            try:
                raw, (host, *_) = self._listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._welcome, args=(raw, host), daemon=True).start()

    def _welcome(self, raw: socket.socket, host: str) -> None:
        """Let a child in, if it is one, and let nobody else in."""
        try:
            raw.settimeout(_HANDSHAKE_S)
            _keep_alive(raw)
            connection = self._context.wrap_socket(raw, server_side=True)
        except (OSError, ValueError) as error:
            raw.close()
            reason = error.reason if isinstance(error, ssl.SSLError) else None
            self._on_event(f"somebody at {host} was refused: {reason or error}")
            return
        finally:
            self._room.release()
        child = self._children.get(connection.getpeercert(binary_form=True) or b"")
        if child is None:
            connection.close()
            self._on_event(f"somebody at {host} was refused: the certificate is not registered")
            return
        self.seen.add(child.number)
        try:
            connection.sendall(GREETING)
            is_party = exactly(connection, len(GREETING), time.monotonic() + _HANDSHAKE_S) == GREETING
        except (OSError, EOFError):
            is_party = False
        if not is_party:  # it has only looked whether it would be let in
            connection.close()
            return
        self._on_event(f"{child.name} is connected, from {host}")
        with self._changed:
            if (older := self._in_use.pop(child.number, None)) is not None:
                _shut(older)  # who uses it finds it broken, and takes this one
            if (idle := self._there.pop(child.number, None)) is not None:
                idle.close()
            self._there[child.number] = connection
            self._changed.notify_all()


class _DialedIn:
    """A child that dials in; see `FrameReceiver`.

    Where it did not come in time, it is not waited for again until it is there: it is lost for every question
    until then, if it may be (`carrier.AggregatingParty`), and nobody waits for it.
    """

    def __init__(self, door: ChildrenDoor, child: Child, most_bytes: int) -> None:
        self._door, self._child, self._most_bytes = door, child, most_bytes
        self._gone = False

    def receive(self, data: bytes) -> list[bytes]:
        """Send one frame; the frames that come back, all within an hour, also where the child dials again.

        A frame whose connection is lost is sent again, over the next one.

        Raises:
            RunError: the child is not connected, refuses the frame, or its connection is lost too often.
        """
        deadline = time.monotonic() + ANSWER_S
        for _ in range(_SENDS - 1):
            try:
                return self._sent(data, deadline)
            except ConnectionLostError:
                if time.monotonic() >= deadline:
                    raise
        return self._sent(data, deadline)

    def _sent(self, data: bytes, deadline: float) -> list[bytes]:
        patience_s = 0.0 if self._gone else min(PATIENCE_S, deadline - time.monotonic())
        self._gone = True  # unless it comes
        connection = self._door.take(self._child, patience_s)
        self._gone = False
        lost = True
        try:
            frames = send_frame(
                connection, data, self._child.name, "on its machine", self._most_bytes, deadline
            )
            lost = False
        except RunError as error:
            lost = isinstance(error, ConnectionLostError)  # otherwise it has answered, that it refuses
            raise
        finally:
            (self._door.drop if lost else self._door.give_back)(self._child, connection)
        return frames


def _keep_alive(connection: socket.socket) -> None:
    """Notice that the other machine is gone, also where nothing is said for long."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _shut(connection: socket.socket) -> None:
    """End a socket under the hands of a thread that waits for it."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)

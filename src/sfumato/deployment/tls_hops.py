"""A hop between machines: the child dials its parent, which then asks, over TLS 1.3 of two registered keys.

Children need no address that others can reach. Each end shows its certificate, and the other end takes it
only if all its bytes are those that are registered: for a parent, the one in the child's ``hops.yaml``; for a
child, one of those in the parent's, which says too which child it is. There is nothing without TLS, on no
address. Then both draw a nonce, the parent introduces itself, and the child does (`hop_proofs`); the parent
says ``SFMT`` when it has taken that. A child that listens greets, and the parent asks, as on any connection
(`frame_exchange`).

A connection that is lost is dialed again. The parent then sends the frame again that had no answer: a party
that has answered it sends the same bytes, from its memory. Nothing that somebody says who has not introduced
himself makes a party end: it says so once, and dials again.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.frame_exchange import (
    ANSWER_S,
    GREETING,
    ConnectionLostError,
    answer_frames,
    exactly,
    send_frame,
)
from sfumato.deployment.hop_proofs import (
    INTRODUCTION_BYTES,
    NONCE_BYTES,
    Neighbour,
    Nonces,
    OwnEnd,
    fresh_nonce,
)
from sfumato.deployment.hops_file import HOPS, address_of
from sfumato.deployment.neighbours import DialedParent, Neighbours
from sfumato.deployment.newcomers import Newcomers, network_of, shut
from sfumato.deployment.rare_lines import RareLines
from sfumato.errors import RunError, SfumatoError

PATIENCE_S = 600.0
"""How long a parent waits for a child that is not connected."""

_DIAL_S, _HANDSHAKE_S = 10.0, 10.0  # until a parent, a child, has introduced itself
_ANOTHER = "shows a certificate that is not the one registered for it"
_TOO_EARLY, _EXPIRED = 9, 10  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_POLLS_S = (0.5, 1.0, 2.0, 5.0, 10.0)
_SENDS = 4  # of a frame, over as many connections
_HANDSHAKES = 64  # at the same time, and one more for every child
_PAUSE_S = 0.5  # where the system has no room for another connection
_MOST_REFUSALS = 20  # that are said in a while


class ParentAbsentError(RunError):
    """Nobody listens at the parent's address, or it does not answer; it may start later."""


def dial(own: OwnEnd, parent: Neighbour, address: str) -> ssl.SSLSocket:
    """Connect to the parent at ``address`` (``HOST:PORT``) and introduce both ends; returns the connection.

    Raises:
        ParentAbsentError: nobody listens there.
        RunError: it shows another certificate or key, does not take this party's, has no TLS 1.3, or has
            other terms.
    """
    there = f"{parent.name} at {address}"
    context = own.hop.context(ssl.PROTOCOL_TLS_CLIENT, (parent.certificate,))
    try:
        raw = socket.create_connection(address_of(address, HOPS), _DIAL_S)
    except OSError as error:
        raise ParentAbsentError(f"{there}: nobody answers: {error.strerror or error}") from None
    with raw:  # which holds nothing any more as soon as it is wrapped
        try:
            _keep_alive(raw)
            return _introduced(context.wrap_socket(raw), own, parent)
        except ssl.SSLCertVerificationError as error:
            raise RunError(f"{there}: {_not_verified(error)}") from None
        except ssl.SSLEOFError:
            raise ParentAbsentError(f"{there}: ends the connection") from None
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            is_refusal = "ALERT" in reason
            said = "does not take the certificate of this party" if is_refusal else "does not speak TLS 1.3"
            raise RunError(f"{there}: {said}: {reason}") from None
        except (OSError, EOFError):
            raise ParentAbsentError(f"{there}: ends the connection, or says nothing") from None


def _introduced(connection: ssl.SSLSocket, own: OwnEnd, parent: Neighbour) -> ssl.SSLSocket:
    """``connection`` to ``parent``, once both ends have shown their keys; it is closed if they have not.

    Raises:
        OSError: the other end refuses.
        EOFError: it ends the connection.
        RunError: it shows another certificate than the registered one, or another key, or has other terms.
    """
    try:
        if connection.getpeercert(binary_form=True) != parent.certificate:
            raise RunError(f"{parent.name}: {_ANOTHER}")
        deadline = time.monotonic() + _DIAL_S
        nonces = Nonces(parent=exactly(connection, NONCE_BYTES, deadline), child=fresh_nonce())
        connection.sendall(nonces.child)
        own.require_parent(parent, exactly(connection, INTRODUCTION_BYTES, deadline), nonces)
        connection.sendall(own.to_parent(parent, nonces))
        exactly(connection, len(GREETING), deadline)  # it has taken it
    except BaseException:
        connection.close()
        raise
    return connection


def answer_parent(
    party: FrameReceiver,
    own: OwnEnd,
    parent: DialedParent,
    most_bytes: int,
    on_event: Callable[[str], object],
    on_refusal: Callable[[SfumatoError], object],
) -> NoReturn:
    """Answer frames of a parent until the process is ended; a lost connection is made again.

    It also goes on if a peer that has not introduced itself refuses: else whoever can answer at that address
    could end all parties. What prevents a connection is said once.

    Args:
        party: that answers.
        own: the party's own end of the hop.
        parent: that it dials.
        most_bytes: of a frame of the parent.
        on_event: called with a sentence when the connection is made or lost; once in a while if it is
            unstable.
        on_refusal: called with every error, for the party's own log.
    """
    failures, said, lines = 0, "", RareLines(on_event, most=2)
    while True:
        try:
            connection = dial(own, parent, parent.address)
        except RunError as error:
            if str(error) != said:
                said = str(error)
                on_event(f"{said}; waiting")
            is_absent = isinstance(error, ParentAbsentError)
            time.sleep(_POLLS_S[min(failures, len(_POLLS_S) - 1) if is_absent else -1])
            failures += 1
            continue
        failures, said = 0, ""
        lines.say("there", f"connected to {parent.name} at {parent.address}")
        with connection:
            answer_frames(party, connection, most_bytes, on_refusal)
        lines.say("ended", f"the connection to {parent.name} has ended")
        time.sleep(_POLLS_S[0])


class ChildrenDoor:
    """Where the children of an aggregator connect. It must be closed.

    Args:
        hops: of the aggregator, which has children.
        on_event: called, from other threads, with a sentence when a peer was let in or refused; for each
            child and each network once in a while.

    Attributes:
        seen: numbers of all children that have introduced themselves so far, also of those that only checked.

    Raises:
        RunError: nothing can listen at that address.
    """

    def __init__(self, hops: Neighbours, on_event: Callable[[str], object]) -> None:
        self._own = hops.own
        self._children = {child.certificate: child for child in hops.children}
        self._context = hops.own.hop.context(ssl.PROTOCOL_TLS_SERVER, tuple(self._children))
        self._connections = RareLines(on_event, most=len(self._children))
        self._refusals = RareLines(on_event, most=_MOST_REFUSALS)
        self.seen: set[int] = set()
        self._there: dict[int, ssl.SSLSocket] = {}  # those that nobody uses now
        self._in_use: dict[int, ssl.SSLSocket] = {}
        self._changed = threading.Condition()
        self._newcomers = Newcomers(_HANDSHAKES + len(self._children), self._crowded)
        self._closed = False
        host, port = address_of(hops.listens, HOPS)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listening = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise RunError(f"{hops.listens}: cannot listen here: {error.strerror or error}") from None
        threading.Thread(target=self._accept, daemon=True).start()

    def parties(self, most_bytes: int) -> Mapping[int, FrameReceiver]:
        """The children by number, each as a `FrameReceiver`; ``most_bytes``: of a frame of theirs."""
        return {child.number: _DialedIn(self, child, most_bytes) for child in self._children.values()}

    def take(self, child: Neighbour, patience_s: float) -> ssl.SSLSocket:
        """Take the connection of a child for exclusive use, as soon as there is one.

        Raises:
            RunError: it does not connect within ``patience_s`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: child.number in self._there, patience_s):
                raise RunError(f"{child.name}: is not connected")
            connection = self._in_use[child.number] = self._there.pop(child.number)
            return connection

    def give_back(self, child: Neighbour, connection: ssl.SSLSocket) -> None:
        """Return a connection that `take` gave, so that it can be taken again.

        It is closed instead if the child has connected again since.
        """
        with self._changed:
            is_last = self._in_use.get(child.number) is connection
            if is_last:
                del self._in_use[child.number]
                self._there[child.number] = connection
                self._changed.notify_all()
            else:
                connection.close()

    def drop(self, child: Neighbour, connection: ssl.SSLSocket) -> None:
        """Close a broken connection that was taken."""
        with self._changed:
            if self._in_use.get(child.number) is connection:
                del self._in_use[child.number]
            connection.close()

    def close(self) -> None:
        """Close the door and all connections."""
        self._closed = True
        shut(self._listening)
        self._listening.close()
        with self._changed:
            for connection in (*self._there.values(), *self._in_use.values()):
                shut(connection)
                connection.close()

    def _accept(self) -> None:
        """Let people in until the door is closed; a system without room for another one has it later."""
        while True:
            raw: socket.socket | None = None
            try:
                raw, (host, *_) = self._listening.accept()
                handle = self._newcomers.add(raw, network_of(host))
                try:
                    threading.Thread(target=self._welcome, args=(raw, handle, host), daemon=True).start()
                except BaseException:
                    self._newcomers.remove(handle)
                    raise
            except Exception as error:  # also of a thread that cannot be started
                if raw is not None:
                    raw.close()
                if self._closed:
                    return
                reason = error.strerror if isinstance(error, OSError) else None
                self._refusals.say("", f"nobody can be let in now: {reason or error}")
                time.sleep(_PAUSE_S)

    def _welcome(self, raw: socket.socket, handle: socket.socket, host: str) -> None:
        """Let a child in, if it is one, and nobody else.

        Args:
            raw: a new connection.
            handle: another handle of it, by which it can be ended until it has introduced itself.
            host: where it comes from.
        """
        try:
            met = self._met(raw, host)
            is_known = self._newcomers.has_introduced_itself(handle)
            if met is not None and is_known:
                self._register(*met, host)
            elif met is not None:
                met[1].close()
        finally:
            self._newcomers.remove(handle)

    def _met(self, raw: socket.socket, host: str) -> tuple[Neighbour, ssl.SSLSocket] | None:
        """The child that connected from ``host``, and its connection; ``None`` (cut off) for anybody else."""
        connection = raw
        deadline = time.monotonic() + _HANDSHAKE_S
        try:
            raw.settimeout(_HANDSHAKE_S)
            _keep_alive(raw)
            connection = secured = self._context.wrap_socket(raw, server_side=True)
            child = self._children.get(secured.getpeercert(binary_form=True) or b"")
            if child is None:
                raise RunError("the certificate is not registered")
            own_nonce = fresh_nonce()
            secured.sendall(own_nonce)
            nonces = Nonces(parent=own_nonce, child=exactly(secured, NONCE_BYTES, deadline))
            secured.sendall(self._own.to_child(child, nonces))
            self._own.require_child(child, exactly(secured, INTRODUCTION_BYTES, deadline), nonces)
            self.seen.add(child.number)
            secured.sendall(GREETING)
        except (OSError, ValueError, EOFError, RunError) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                why = _not_verified(error)
            else:
                reason = error.reason if isinstance(error, ssl.SSLError) else None
                why = reason or str(error) or "ends the connection"
            self._refusals.say(network_of(host), f"somebody at {host} was refused: {why}")
            connection.close()
            return None
        try:
            if exactly(secured, len(GREETING), deadline) == GREETING:
                return child, secured
        except (OSError, EOFError):
            pass  # it has only looked whether it would be let in
        secured.close()
        return None

    def _register(self, child: Neighbour, connection: ssl.SSLSocket, host: str) -> None:
        """Keep ``connection`` of ``child``, dialed from ``host``, in place of an earlier one."""
        with self._changed:
            if (older := self._in_use.pop(child.number, None)) is not None:
                shut(older)  # who uses it finds it broken, and takes this one
            if (idle := self._there.pop(child.number, None)) is not None:
                idle.close()
            self._there[child.number] = connection
            self._changed.notify_all()
        self._connections.say(child.number, f"{child.name} is connected, from {host}")

    def _crowded(self, network: str) -> None:
        self._refusals.say(network, f"somebody at {network} was refused: too many at once")


class _DialedIn:
    """A child that dials in; see `FrameReceiver`.

    Where it did not come in time, it is not waited for again until it is there: it is lost for every question
    until then, if it may be (`carrier.AggregatingParty`), and nobody waits for it.
    """

    def __init__(self, door: ChildrenDoor, child: Neighbour, most_bytes: int) -> None:
        self._door, self._child, self._most_bytes = door, child, most_bytes
        self._gone = False

    def receive(self, data: bytes) -> list[bytes]:
        """Send frame ``data``; returns the frames that come back within an hour, by whichever connection.

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
        """Send ``data``; returns the child's frames. Raises `RunError` if there are none by ``deadline``."""
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


def _not_verified(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the certificate of the other end, in words."""
    known = {
        _TOO_EARLY: "is a clock wrong?",
        _EXPIRED: "its certificate has expired, or a clock is wrong",
    }
    return f"{known.get(error.verify_code, _ANOTHER)}: {error.verify_message}"


def _keep_alive(connection: socket.socket) -> None:
    """Notice that the other machine is gone, also where nothing is said for long."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

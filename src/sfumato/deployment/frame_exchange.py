"""The conversation between a party and whoever brings it frames, over a connection that is open already.

    greeting    SFMT, from the party, when it begins to listen
    request     length u64 · frame
    reply       0 u8 · count u32 · count times (length u64 · frame), or
                1 u8 · length u64 · what is wrong with the frame, in UTF-8, or
                2 u8: it is not answered, and nobody else is told why

Numbers are big-endian. Frames are signed and not encrypted: connections are Unix sockets of the user's own
(`sockets`), or TLS between two registered keys (`tls_hops`), and there is no third kind.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress

from sfumato.deployment.carrier import FrameReceiver
from sfumato.errors import RunError, SfumatoError, first_line
from sfumato.wire.errors import AbortError, MessageError

GREETING = b"SFMT"
STALL_S = 60.0
"""How long a connection may stand still within a message."""

_ANSWER_S = 3600.0  # until there is an answer, for which devices train
_LENGTH, _COUNT = struct.Struct(">Q"), struct.Struct(">I")
_FRAMES, _REFUSED, _WITHHELD = b"\0", b"\1", b"\2"
_MOST_BYTES = 1 << 36
_PIECE = 1 << 20


class ConnectionLostError(RunError):
    """A party's connection has ended: whether it had the frame is not known."""


def answer_frames(
    party: FrameReceiver, connection: socket.socket, on_refusal: Callable[[SfumatoError], object]
) -> None:
    """Be the party of a connection, until it ends.

    Whoever is connected is told what is wrong with a frame, and nothing of what the party refuses for reasons
    of its own, such as what its owner consented to in other runs.

    Args:
        party: that answers.
        connection: open; closed by the caller.
        on_refusal: called with every error, for the party's own log.
    """
    with suppress(ConnectionError, EOFError, TimeoutError, ssl.SSLError):
        connection.settimeout(STALL_S)
        connection.sendall(GREETING)
        while True:
            connection.sendall(_reply(party, _receive(connection, patience_s=None), on_refusal))


def _reply(party: FrameReceiver, data: bytes, on_refusal: Callable[[SfumatoError], object]) -> bytes:
    """What goes back for one frame."""
    try:
        frames = party.receive(data)
    except (MessageError, AbortError) as error:
        on_refusal(error)
        return _REFUSED + _framed(first_line(error).encode())
    except SfumatoError as error:
        on_refusal(error)
        return _WITHHELD
    return _FRAMES + _COUNT.pack(len(frames)) + b"".join(map(_framed, frames))


def send_frame(connection: socket.socket, data: bytes, name: str, log: str) -> list[bytes]:
    """Send a frame to the party of a connection, which has greeted; the frames that come back.

    Args:
        connection: open; if this raises `ConnectionLostError`, it must not be used any more.
        data: the frame.
        name: of the party, for errors.
        log: where the party's own log is, for errors.

    Raises:
        ConnectionLostError: the party is gone, stalls, or has not answered for an hour.
        RunError: it refused the frame.
    """
    try:
        connection.settimeout(STALL_S)
        connection.sendall(_framed(data))
        connection.settimeout(_ANSWER_S)
        kind = exactly(connection, 1)
        connection.settimeout(STALL_S)
        if kind == _FRAMES:
            (count,) = _COUNT.unpack(exactly(connection, _COUNT.size))
            return [_receive(connection) for _ in range(count)]
        said = _receive(connection).decode(errors="replace") if kind == _REFUSED else ""
    except TimeoutError:
        raise ConnectionLostError(f"{name}: has not answered for an hour, or stalls") from None
    except (OSError, EOFError):
        raise ConnectionLostError(f"{name}: has ended") from None
    raise RunError(f"{name}: {said or f'does not answer; its own log says why ({log})'}")


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _receive(connection: socket.socket, patience_s: float | None = STALL_S) -> bytes:
    """One piece of data with its length before it; ``patience_s``: how long to wait for it to begin.

    Raises:
        EOFError: the connection ended, or the length is no length.
        TimeoutError: it does not begin, or stalls.
    """
    connection.settimeout(patience_s)
    first = exactly(connection, 1)
    connection.settimeout(STALL_S)
    (length,) = _LENGTH.unpack(first + exactly(connection, _LENGTH.size - 1))
    if length > _MOST_BYTES:
        raise EOFError
    return exactly(connection, length)


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: the connection ended before.
        OSError: it is broken, or stands still.
    """
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(min(_PIECE, count - len(found)))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)

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
import struct
import time
from collections.abc import Callable

from sfumato.deployment.carrier import FrameReceiver
from sfumato.errors import RunError, SfumatoError, first_line
from sfumato.wire.errors import MessageError

GREETING = b"SFMT"
STALL_S = 60.0
"""How long a connection may stand still within a message."""

ANSWER_S = 3600.0
"""Until there is an answer, for which devices train; and until a whole request is there."""

_LENGTH, _COUNT = struct.Struct(">Q"), struct.Struct(">I")
_FRAMES, _REFUSED, _WITHHELD = b"\0", b"\1", b"\2"
_MOST_FRAMES = 1  # of a reply: no party answers one frame with two
_MOST_WORDS = 1 << 12  # bytes of what is wrong with a frame
_MOST_SHOWN = 300  # letters of them
_PIECE_IN, _PIECE_OUT = 1 << 20, 1 << 16  # what is sent has to go on at least piece by piece, to be no stall


class ConnectionLostError(RunError):
    """A party's connection cannot be used any more: whether it had the frame is not known."""


class _TooMuchError(EOFError):
    """More frames or bytes than there can be; the rest is not read."""


def answer_frames(
    party: FrameReceiver,
    connection: socket.socket,
    most_bytes: int,
    on_refusal: Callable[[SfumatoError], object],
) -> None:
    """Answer the frames that arrive over a connection, until it ends.

    The other end is told what is wrong with a frame. It is not told about refusals for reasons of the party's
    own, such as its owner's consent to other runs, or the loss of one of its children.

    Args:
        party: that answers.
        connection: open; closed by the caller.
        most_bytes: of a frame; a longer one is not read, and ends the connection.
        on_refusal: called with every error, for the party's own log.
    """
    going = _sent(connection, GREETING)
    while going and (request := _request(connection, most_bytes)) is not None:
        going = _sent(connection, _reply(party, request, on_refusal))


def _sent(connection: socket.socket, data: bytes) -> bool:
    """Send ``data`` over ``connection``, for at most an hour; returns whether the connection lasted."""
    try:
        _send(connection, data, time.monotonic() + ANSWER_S)
    except OSError:
        return False
    return True


def _request(connection: socket.socket, most_bytes: int) -> bytes | None:
    """Read the next frame, of at most ``most_bytes``, however long it takes to begin.

    Returns:
        The frame; ``None`` if the connection ends, or brings something else.
    """
    try:
        connection.settimeout(None)
        first = connection.recv(1)  # TLS cannot look at a byte and leave it there
        return _receive(connection, most_bytes, time.monotonic() + ANSWER_S, first) if first else None
    except (OSError, EOFError):
        return None


def _reply(party: FrameReceiver, data: bytes, on_refusal: Callable[[SfumatoError], object]) -> bytes:
    """The bytes that go back for frame ``data``; ``on_refusal`` is called with the error if it is refused."""
    try:
        frames = party.receive(data)
    except MessageError as error:
        on_refusal(error)
        return _REFUSED + _framed(first_line(error).encode()[:_MOST_WORDS])
    except SfumatoError as error:
        on_refusal(error)
        return _WITHHELD
    return _FRAMES + _COUNT.pack(len(frames)) + b"".join(map(_framed, frames))


def send_frame(
    connection: socket.socket, data: bytes, name: str, log: str, most_bytes: int, deadline: float
) -> list[bytes]:
    """Send a frame to the party of a connection that has greeted; returns the frames that come back.

    Args:
        connection: open. After a `ConnectionLostError` it must not be used again: a late answer would be
            taken for the answer to the next frame.
        data: the frame.
        name: of the party, for errors.
        log: where the party's own log is, for errors.
        most_bytes: of a frame that comes back; a longer one is not read.
        deadline: for the whole answer, by the monotonic clock, in seconds.

    Raises:
        ConnectionLostError: the party is gone, stalls, sends too much or has not answered in time.
        RunError: it refused the frame.
    """
    try:
        _send(connection, _framed(data), deadline)
        kind = exactly(connection, 1, deadline, stall_s=ANSWER_S)
        if kind == _FRAMES:
            (count,) = _COUNT.unpack(exactly(connection, _COUNT.size, deadline))
            if count > _MOST_FRAMES:
                raise _TooMuchError
            return [_receive(connection, most_bytes, deadline) for _ in range(count)]
        said = ""
        if kind == _REFUSED:
            said = _printable(_receive(connection, _MOST_WORDS, deadline))
    except _TooMuchError:
        raise ConnectionLostError(f"{name}: sends more than an answer can be") from None
    except TimeoutError:
        raise ConnectionLostError(f"{name}: has not answered for an hour, or stalls") from None
    except (OSError, EOFError):
        raise ConnectionLostError(f"{name}: has ended") from None
    raise RunError(f"{name}: {said or f'does not answer; its own log says why ({log})'}")


def _printable(words: bytes) -> str:
    """``words``, what another party says, as text that may stand on a terminal and in a log, shortened."""
    text = words.decode(errors="replace")[:_MOST_SHOWN]
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def _framed(data: bytes) -> bytes:
    """``data`` after its length, as it goes over a connection."""
    return _LENGTH.pack(len(data)) + data


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    """Send data, all by ``deadline`` of the monotonic clock.

    Python's `sendall` has one time limit for all that it is given, however fast it goes on: so it is given
    pieces.

    Raises:
        TimeoutError: it stalls, or takes too long.
        OSError: the connection is broken.
    """
    view = memoryview(data)
    for start in range(0, len(view), _PIECE_OUT):
        connection.settimeout(_left(deadline, STALL_S))
        connection.sendall(view[start : start + _PIECE_OUT])


def _receive(connection: socket.socket, most_bytes: int, deadline: float, first: bytes = b"") -> bytes:
    """Read one piece of data that begins with its length, all by ``deadline`` of the monotonic clock.

    Args:
        connection: open.
        most_bytes: longest piece that is read.
        deadline: in seconds.
        first: bytes of the piece that have been read already.

    Raises:
        EOFError: the connection ended.
        TimeoutError: it stalls, or takes too long.
        OSError: it is broken.
        _TooMuchError: it is longer than ``most_bytes``.
    """
    (length,) = _LENGTH.unpack(first + exactly(connection, _LENGTH.size - len(first), deadline))
    if length > most_bytes:
        raise _TooMuchError
    return exactly(connection, length, deadline)


def exactly(connection: socket.socket, count: int, deadline: float, *, stall_s: float | None = None) -> bytes:
    """Read ``count`` bytes from a connection.

    Args:
        connection: open.
        count: number of bytes.
        deadline: for all of them, by the monotonic clock, in seconds.
        stall_s: longest time to wait for the next piece, in seconds; ``None``: until ``deadline``.

    Raises:
        EOFError: the connection ended before.
        TimeoutError: ``stall_s`` or ``deadline`` is over.
        OSError: the connection is broken.
    """
    found = bytearray()
    while len(found) < count:
        connection.settimeout(_left(deadline, STALL_S if stall_s is None else stall_s))
        piece = connection.recv(min(_PIECE_IN, count - len(found)))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


def _left(deadline: float, stall_s: float) -> float:
    """Seconds that the next piece may take: until ``deadline`` (monotonic clock), at most ``stall_s``.

    Raises:
        TimeoutError: the time is up.
    """
    left = min(deadline - time.monotonic(), stall_s)
    if left <= 0:
        raise TimeoutError
    return left

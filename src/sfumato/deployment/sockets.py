"""A party behind a Unix socket that only its owner can use: frames in, frames out, one connection at a time.

    greeting    SFMT, from the party, when a connection is accepted
    request     length u64 · frame
    reply       0 u8 · count u32 · count times (length u64 · frame), or
                1 u8 · length u64 · what is wrong with the frame, in UTF-8, or
                2 u8: it is not answered, and nobody else is told why

Numbers are big-endian. Frames are signed and not encrypted, so there is no socket of another kind: nothing
leaves the machine, or the user's own folder.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sfumato.deployment.carrier import FrameReceiver
from sfumato.errors import RunError, SfumatoError, first_line
from sfumato.wire.errors import MessageError

SOCKET = "socket"
"""The name of a party's socket, in its folder."""

_LENGTH, _COUNT = struct.Struct(">Q"), struct.Struct(">I")
_GREETING = b"SFMT"
_FRAMES, _REFUSED, _WITHHELD = b"\0", b"\1", b"\2"
_STALL_S, _ANSWER_S = 60.0, 3600.0  # within a message; until there is an answer, for which devices train
_POLL_S = 0.1
_MOST_BYTES = 1 << 36  # of a request
_MOST_FRAMES = 1  # of a reply: no party answers one frame with two
_MOST_WORDS = 1 << 12  # bytes of what is wrong with a frame
_PIECE = 1 << 20
_LONGEST_PATH = 100  # bytes; systems allow 103 or 107


def serve(
    party: FrameReceiver,
    path: Path,
    on_ready: Callable[[], object] = lambda: None,
    on_refusal: Callable[[SfumatoError], object] = lambda error: None,
) -> None:
    """Answer frames at ``path``, one connection after the other, until the process is ended.

    Nobody listens while a connection is open: another one is refused by the system. Whoever is connected is
    told what is wrong with a frame, and nothing of what the party refuses for reasons of its own, such as
    what its owner consented to in other runs, or which of its own children it lost.

    Args:
        party: that answers.
        path: of the socket, in a folder of the owner; what is left there of a process that ended is replaced.
        on_ready: called whenever a connection can be made.
        on_refusal: called with every error, for the party's own log.

    Raises:
        RunError: there can be no socket at ``path``.
    """
    _check_path(path)
    while True:
        with socket.socket(socket.AF_UNIX) as listening:
            with suppress(FileNotFoundError):
                path.unlink()
            before = os.umask(0o177)
            try:
                listening.bind(os.fspath(path))
            except OSError as error:
                raise RunError(f"{path}: no socket can be made here: {error.strerror}") from None
            finally:
                os.umask(before)
            listening.listen(1)
            on_ready()
            connection, _ = listening.accept()
        with connection, suppress(ConnectionError, EOFError, TimeoutError):
            if not _is_own(connection):
                continue
            connection.settimeout(_STALL_S)
            connection.sendall(_GREETING)
            while True:
                connection.settimeout(None)
                connection.recv(1, socket.MSG_PEEK)  # until a request begins
                request = _receive(connection, _MOST_BYTES, time.monotonic() + _ANSWER_S)
                connection.settimeout(_STALL_S)
                connection.sendall(_reply(party, request, on_refusal))


def _reply(party: FrameReceiver, data: bytes, on_refusal: Callable[[SfumatoError], object]) -> bytes:
    """What goes back for one frame."""
    try:
        frames = party.receive(data)
    except MessageError as error:
        on_refusal(error)
        return _REFUSED + _framed(first_line(error).encode()[:_MOST_WORDS])
    except SfumatoError as error:
        on_refusal(error)
        return _WITHHELD
    return _FRAMES + _COUNT.pack(len(frames)) + b"".join(map(_framed, frames))


class _TooMuchError(EOFError):
    """More frames or bytes than there can be; the rest is not read."""


class RemoteParty:
    """A party at the other end of a socket; see `FrameReceiver`. It must be closed.

    Args:
        path: of its socket.
        name: of the party, for errors.
        most_bytes: of a frame that comes back; a longer one is not read.

    Raises:
        RunError: nobody answers there, another connection is open, or others than the user could answer.
    """

    def __init__(self, path: Path, name: str, most_bytes: int) -> None:
        self._name, self._place, self._most_bytes = name, path.parent, most_bytes
        _check_path(path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_STALL_S)
        try:
            _require_own(path)
            self._socket.connect(os.fspath(path))
            # none comes where another connection was first
            _exactly(self._socket, len(_GREETING), time.monotonic() + _STALL_S)
        except (OSError, EOFError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or "another connection is open"
            raise RunError(f"{path}: {name} does not answer: {why}") from None
        except RunError:
            self._socket.close()
            raise

    def receive(self, data: bytes) -> list[bytes]:
        """Send one frame; the frames that come back, all within an hour.

        Raises:
            RunError: the party refused the frame, sends too much or too slowly, or it is gone.
        """
        deadline = time.monotonic() + _ANSWER_S
        try:
            self._socket.settimeout(_STALL_S)
            self._socket.sendall(_framed(data))
            kind = _exactly(self._socket, 1, deadline, stall_s=_ANSWER_S)
            if kind == _REFUSED:
                words = _receive(self._socket, _MOST_WORDS, deadline).decode(errors="replace")
                raise RunError(f"{self._name}: {words}")
            if kind == _WITHHELD:
                raise RunError(f"{self._name}: does not answer; its own log says why ({self._place})")
            (count,) = _COUNT.unpack(_exactly(self._socket, _COUNT.size, deadline))
            if count > _MOST_FRAMES:
                raise _TooMuchError
            return [_receive(self._socket, self._most_bytes, deadline) for _ in range(count)]
        except _TooMuchError:
            self.close()  # the rest would be taken for the answer to something else
            raise RunError(f"{self._name}: sends more than an answer can be") from None
        except TimeoutError:
            self.close()  # what comes later would be taken for the answer to something else
            raise RunError(f"{self._name}: has not answered for an hour, or stalls") from None
        except (OSError, EOFError):
            raise RunError(f"{self._name}: has ended") from None

    def close(self) -> None:
        """End the connection; the party waits for another one."""
        self._socket.close()


class AwaitedParty:
    """A party that is connected to when there is a frame for it, and again after it was gone. Must be closed.

    Where nobody came in time, nobody is waited for again until somebody is there.

    Args:
        path: of its socket.
        name: of the party, for errors.
        most_bytes: of a frame that comes back; a longer one is not read.
        patience_s: how long to wait until somebody listens there.
    """

    def __init__(self, path: Path, name: str, most_bytes: int, patience_s: float = 10.0) -> None:
        self._path, self._name, self._most_bytes = path, name, most_bytes
        self._patience_s = patience_s
        self._connection: RemoteParty | None = None
        self._gone = False

    def receive(self, data: bytes) -> list[bytes]:
        """Send one frame; the frames that come back.

        Raises:
            RunError: nobody listens, or the party refused the frame, or it is gone.
        """
        connection = self._connection or self._connect()
        self._connection = None  # until it has answered
        try:
            frames = connection.receive(data)
        except RunError:
            connection.close()
            raise
        self._connection = connection
        return frames

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> RemoteParty:
        deadline = time.monotonic() + (0.0 if self._gone else self._patience_s)
        while True:
            try:
                there = RemoteParty(self._path, self._name, self._most_bytes)
            except RunError:
                if time.monotonic() >= deadline:
                    self._gone = True
                    raise
            else:
                self._gone = False
                return there
            time.sleep(_POLL_S)


def _check_path(path: Path) -> None:
    """Refuse a path that is too long for a socket."""
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise RunError(f"{path}: is too long for a socket: at most {_LONGEST_PATH} bytes")


def _require_own(path: Path) -> None:
    """Refuse a socket that others than the user may use.

    Raises:
        RunError: it is no socket, of another user, or open to others.
        OSError: there is none.
    """
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode):
        raise RunError(f"{path}: is no socket")
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise RunError(f"{path}: may be used by others (mode {found.st_mode & 0o777:o})")


def _is_own(connection: socket.socket) -> bool:
    """Whether a process of the user is at the other end; where systems do not say, the mode has to do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    layout = struct.Struct("3i")
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    return bool(layout.unpack(said)[1] == os.getuid())


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _receive(connection: socket.socket, most_bytes: int, deadline: float) -> bytes:
    """One piece of data with its length before it, all by ``deadline``.

    Raises:
        EOFError: the connection ended.
        TimeoutError: it stalls, or takes too long.
        _TooMuchError: it is longer than ``most_bytes``.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, deadline))
    if length > most_bytes:
        raise _TooMuchError
    return _exactly(connection, length, deadline)


def _exactly(
    connection: socket.socket, count: int, deadline: float, *, stall_s: float | None = None
) -> bytes:
    """So many bytes, all by ``deadline`` of the monotonic clock; ``stall_s``: at most until the next piece.

    Raises:
        EOFError: the connection ended before.
        TimeoutError: it stalls, or takes too long.
    """
    found = bytearray()
    while len(found) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(min(left, _STALL_S if stall_s is None else stall_s))
        piece = connection.recv(min(_PIECE, count - len(found)))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)

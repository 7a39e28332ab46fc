"""A party behind a Unix socket that only its owner can use: frames in, frames out, one connection at a time.

    greeting    SFMT, from the party, when a connection is accepted
    request     length u64 · frame
    reply       0 u8 · count u32 · count times (length u64 · frame), or
                1 u8 · length u64 · why the frame was refused, in UTF-8

Numbers are big-endian. Frames are signed and not encrypted, so there is no socket of another kind: nothing
leaves the machine, or the user's own folder.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sfumato.deployment.carrier import FrameReceiver
from sfumato.errors import RunError, SfumatoError, first_line

SOCKET = "socket"
"""The name of a party's socket, in its folder."""

_LENGTH, _COUNT = struct.Struct(">Q"), struct.Struct(">I")
_GREETING = b"SFMT"
_FRAMES, _REFUSED = b"\0", b"\1"
_MOST_BYTES = 1 << 36
_PIECE = 1 << 20
_LONGEST_PATH = 100  # bytes; systems allow 103 or 107


def serve(party: FrameReceiver, path: Path, on_ready: Callable[[], object] = lambda: None) -> None:
    """Answer frames at ``path``, one connection after the other, until the process is ended.

    Nobody listens while a connection is open: another one is refused by the system.

    Args:
        party: that answers.
        path: of the socket, in a folder of the owner; what is left there of a process that ended is replaced.
        on_ready: called whenever a connection can be made.

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
        with connection, suppress(ConnectionError, EOFError):
            if not _is_own(connection):
                continue
            connection.sendall(_GREETING)
            while True:
                connection.sendall(_reply(party, _receive(connection)))


def _reply(party: FrameReceiver, data: bytes) -> bytes:
    """What goes back for one frame."""
    try:
        frames = party.receive(data)
    except SfumatoError as error:
        return _REFUSED + _framed(first_line(error).encode())
    return _FRAMES + _COUNT.pack(len(frames)) + b"".join(map(_framed, frames))


class RemoteParty:
    """A party at the other end of a socket; see `FrameReceiver`. It must be closed.

    Args:
        path: of its socket.
        name: of the party, for errors.

    Raises:
        RunError: nobody answers there, another connection is open, or others than the user could answer.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        _check_path(path)
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            _require_own(path)
            self._socket.connect(os.fspath(path))
            _exactly(self._socket, len(_GREETING))  # none comes where another connection was first
        except (OSError, EOFError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or "another connection is open"
            raise RunError(f"{path}: {name} does not answer: {why}") from None
        except RunError:
            self._socket.close()
            raise

    def receive(self, data: bytes) -> list[bytes]:
        """Send one frame; the frames that come back.

        Raises:
            RunError: the party refused the frame, or it is gone.
        """
        try:
            self._socket.sendall(_framed(data))
            kind = _exactly(self._socket, 1)
            if kind == _REFUSED:
                raise RunError(_receive(self._socket).decode(errors="replace"))
            (count,) = _COUNT.unpack(_exactly(self._socket, _COUNT.size))
            return [_receive(self._socket) for _ in range(count)]
        except (OSError, EOFError):
            raise RunError(f"{self._name}: has ended") from None

    def close(self) -> None:
        """End the connection; the party waits for another one."""
        self._socket.close()


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


def _receive(connection: socket.socket) -> bytes:
    """One piece of data with its length before it.

    Raises:
        EOFError: the connection ended, or the length is no length.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MOST_BYTES:
        raise EOFError
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: the connection ended before.
    """
    found = bytearray()
    while len(found) < count:
        piece = connection.recv(min(_PIECE, count - len(found)))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)

"""A party behind a Unix socket that only its owner can use, or a relay of his: one connection at a time.

What is said there stands in `frame_exchange`. Nothing leaves the machine, or the user's own folder.
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
from sfumato.deployment.frame_exchange import (
    ANSWER_S,
    GREETING,
    STALL_S,
    ConnectionLostError,
    answer_frames,
    exactly,
    send_frame,
)
from sfumato.errors import RunError, SfumatoError

SOCKET = "socket"
"""The name of a party's socket, in its folder."""

_POLL_S = 0.1
_MOST_BYTES = 1 << 36  # of a request: it is of the same user
_LONGEST_PATH = 100  # bytes; systems allow 103 or 107


def serve(
    party: FrameReceiver,
    path: Path,
    on_ready: Callable[[], object] = lambda: None,
    on_refusal: Callable[[SfumatoError], object] = lambda error: None,
    relay_user: int | None = None,
) -> None:
    """Answer frames at the socket ``path``, one connection after the other, until the process is ended.

    While a connection is open, the system refuses another one.

    Args:
        party: that answers.
        path: of the socket, in a folder of the owner; a socket left by an ended process is replaced.
        on_ready: called whenever a connection can be made.
        on_refusal: called with every error, for the party's own log.
        relay_user: user id of a relay, to which the socket then belongs; ``None``: only the owner connects.

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
                if relay_user is not None:
                    os.chown(path, relay_user, -1)
            except OSError as error:
                raise RunError(f"{path}: no socket can be made here: {error.strerror}") from None
            finally:
                os.umask(before)
            listening.listen(1)
            on_ready()
            connection, _ = listening.accept()
        with connection:
            if _is_of(connection, os.getuid(), relay_user):
                answer_frames(party, connection, _MOST_BYTES, on_refusal)


class RemoteParty:
    """A party behind a socket, for its aggregator; see `FrameReceiver`. It must be closed.

    Args:
        path: of its socket.
        name: of the party, for errors.
        most_bytes: of a frame that comes back; a longer one is not read.
        relay_user: user id of the relay that answers there in its place; ``None``: this process's user.

    Raises:
        RunError: nobody answers there, another connection is open, or other users could answer.
    """

    def __init__(self, path: Path, name: str, most_bytes: int, relay_user: int | None = None) -> None:
        self._name, self._most_bytes = name, most_bytes
        self._log = str(path.parent) if relay_user is None else "in its own folder"
        _check_path(path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(STALL_S)
        try:
            _require_user(path, os.getuid() if relay_user is None else relay_user)
            self._socket.connect(os.fspath(path))
            # none comes where another connection was first
            exactly(self._socket, len(GREETING), time.monotonic() + STALL_S)
        except (OSError, EOFError) as error:
            self._socket.close()
            why = getattr(error, "strerror", None) or "another connection is open"
            raise RunError(f"{path}: {name} does not answer: {why}") from None
        except RunError:
            self._socket.close()
            raise

    def receive(self, data: bytes) -> list[bytes]:
        """Send frame ``data``; returns the frames that come back, all within an hour.

        Raises:
            RunError: the party refused the frame, sends too much or too slowly, or it is gone.
        """
        deadline = time.monotonic() + ANSWER_S
        try:
            return send_frame(self._socket, data, self._name, self._log, self._most_bytes, deadline)
        except ConnectionLostError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; the party waits for another one."""
        self._socket.close()


class AwaitedParty:
    """A party behind a socket, connected to when there is a frame for it, and again after a loss.

    Must be closed.

    After waiting in vain once, it does not wait again until the party listens.

    Args:
        path: of its socket.
        name: of the party, for errors.
        most_bytes: of a frame that comes back; a longer one is not read.
        patience_s: longest time to wait until the party listens, in seconds.
        relay_user: see `RemoteParty`.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        most_bytes: int,
        patience_s: float = 10.0,
        relay_user: int | None = None,
    ) -> None:
        self._path, self._name, self._most_bytes = path, name, most_bytes
        self._patience_s, self._relay_user = patience_s, relay_user
        self._connection: RemoteParty | None = None
        self._gone = False

    def receive(self, data: bytes) -> list[bytes]:
        """Send frame ``data``; returns the frames that come back.

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
        """A new connection to the party, tried until its patience ends; only once if it was gone before.

        Raises:
            RunError: the party does not listen.
        """
        deadline = time.monotonic() + (0.0 if self._gone else self._patience_s)
        while True:
            try:
                there = RemoteParty(self._path, self._name, self._most_bytes, self._relay_user)
            except RunError:
                if time.monotonic() >= deadline:
                    self._gone = True
                    raise
            else:
                self._gone = False
                return there
            time.sleep(_POLL_S)


def _check_path(path: Path) -> None:
    """Refuse a path that is too long for a socket.

    Raises:
        RunError: it is.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise RunError(f"{path}: is too long for a socket: at most {_LONGEST_PATH} bytes")


def _require_user(path: Path, user: int) -> None:
    """Refuse a socket that others than one user may use, but for root.

    Raises:
        RunError: it is no socket, somebody else's, or open to others.
        OSError: there is none.
    """
    found = path.lstat()
    if not stat.S_ISSOCK(found.st_mode):
        raise RunError(f"{path}: is no socket")
    if found.st_uid != user or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise RunError(f"{path}: may be used by others (mode {found.st_mode & 0o777:o})")


def _is_of(connection: socket.socket, *users: int | None) -> bool:
    """Whether one of the users is at the other end; where systems do not say, the mode has to do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    layout = struct.Struct("3i")
    said = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size)
    return layout.unpack(said)[1] in users

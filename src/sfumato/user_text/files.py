"""Reads a file that a user names: a regular file of bounded size, otherwise one clear error."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from sfumato.errors import SpecError

MAX_BYTES = 8 * 2**20
"""Largest size of a file that a user writes, in bytes."""
MAX_OWN_BYTES = 2**30
"""Largest size of a file that a run writes and a later command reads, in bytes."""

_PIECE_BYTES = 2**20
_LONGEST, _SHOWN = 300, 100  # a path of more characters than the first is cut to the second in messages


def read_text(path: Path, *, place: str | None = None, most: int = MAX_BYTES) -> str:
    """Read the text of a regular file in UTF-8, with or without a byte order mark.

    Args:
        path: of the file.
        place: the key or option that names the file, for errors; ``None``: the path.
        most: bytes that the file may hold.

    Raises:
        SpecError: it cannot be read, is not a regular file, holds more than ``most`` bytes, or is not UTF-8.
    """
    content = read_bytes(path, place=place, most=most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(path, place, f"must be text in UTF-8 (byte {error.start} is not)") from None


def read_bytes(path: Path, *, place: str | None = None, most: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file. Folders, pipes, sockets and devices are refused: they may have no end.

    Args:
        path: of the file.
        place: the key or option that names the file, for errors; ``None``: the path.
        most: bytes that the file may hold.

    Raises:
        SpecError: the file cannot be read, is not a regular file, or holds more than ``most`` bytes.
    """
    try:
        _require_regular(path, place, os.stat(path).st_mode)
        # without O_NONBLOCK this would wait if the file had been replaced by a pipe in the meantime
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            _require_regular(path, place, os.fstat(file.fileno()).st_mode)
            content = _up_to(file, most + 1)
    except OSError as error:
        raise _refusal(path, place, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL, or half a character, in the name
        raise _refusal(path, place, f"cannot be read: {error}") from None
    if len(content) > most:
        raise _refusal(path, place, f"is larger than {most // 2**20} MiB, the most that is read")
    return content


def _up_to(file: BinaryIO, most: int) -> bytes:
    """At most so many bytes of a file; Python makes room at once for as many as it is asked to read."""
    pieces = []
    while most and (piece := file.read(min(most, _PIECE_BYTES))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _require_regular(path: Path, place: str | None, mode: int) -> None:
    """Raise `SpecError` about ``path`` unless ``mode`` (``st_mode``) is that of a regular file.

    ``place``: what the error names in its stead; ``None``: the path.
    """
    if stat.S_ISDIR(mode):
        raise _refusal(path, place, "is a folder; must be a file")
    if not stat.S_ISREG(mode):
        raise _refusal(path, place, "is a pipe, socket or device; must be a regular file")


def printable_name(name: str) -> str:
    """A file's name or path for a message: on one line, at most 300 characters, unprintable ones escaped.

    A longer name is cut to its first 100 characters and "…".
    """
    name = name if len(name) <= _LONGEST else name[:_SHOWN] + "…"
    return name if name.isprintable() and name else repr(name)


def _refusal(path: Path, place: str | None, allowed: str) -> SpecError:
    """A `SpecError` that the file at ``path`` does not do; ``allowed`` says what would.

    It is about the key or option ``place`` that names the file, or about the file itself for ``None``.
    """
    name = printable_name(str(path))
    return SpecError(name, None, allowed) if place is None else SpecError(place, name, allowed)

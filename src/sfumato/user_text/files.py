"""Reading a file that somebody named: a regular file of bounded size, or one clear error."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sfumato.errors import SpecError

MAX_BYTES = 8 * 2**20
"""Most bytes of a file that a person writes."""
MAX_OWN_BYTES = 2**30
"""Most bytes of a file that a run writes and a later command reads back."""

_LONGEST, _SHOWN = 300, 100  # characters of a path: of one shown whole, and of a longer one


def read_text(path: Path, *, place: str | None = None, most: int = MAX_BYTES) -> str:
    """The text of a file in UTF-8, with or without a byte order mark; see `read_bytes`."""
    content = read_bytes(path, place=place, most=most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(path, place, f"must be text in UTF-8 (byte {error.start} is not)") from None


def read_bytes(path: Path, *, place: str | None = None, most: int = MAX_BYTES) -> bytes:
    """The bytes of a file. Nothing is read from folders, pipes, sockets and devices, which may never end.

    Args:
        path: of the file.
        place: the key or option that names the file, for errors; the path itself where nothing does.
        most: bytes that the file may hold.

    Raises:
        SpecError: the file cannot be read, is not a regular file, or holds more than ``most`` bytes.
    """
    try:
        _require_regular(path, place, os.stat(path).st_mode)
        # not to wait for a writer, should a pipe have taken the file's place in between
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            _require_regular(path, place, os.fstat(file.fileno()).st_mode)
            content = file.read(most + 1)
    except OSError as error:
        raise _refused(path, place, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL, or half a character, in the name
        raise _refused(path, place, f"cannot be read: {error}") from None
    if len(content) > most:
        raise _refused(path, place, f"is larger than {most // 2**20} MiB, the most that is read")
    return content


def _require_regular(path: Path, place: str | None, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise _refused(path, place, "is a folder; must be a file")
    if not stat.S_ISREG(mode):
        raise _refused(path, place, "is a pipe, socket or device; must be a regular file")


def printable_name(name: str) -> str:
    """A file's name as a message has it: of bounded length, on one line."""
    name = name if len(name) <= _LONGEST else name[:_SHOWN] + "…"
    return name if name.isprintable() and name else repr(name)


def _refused(path: Path, place: str | None, allowed: str) -> SpecError:
    name = printable_name(str(path))
    return SpecError(name, None, allowed) if place is None else SpecError(place, name, allowed)

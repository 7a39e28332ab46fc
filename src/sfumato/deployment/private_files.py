"""Files and folders of a party that others must not read, or not change; where links lead."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sfumato.durable_files import replacing
from sfumato.errors import RunError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def write_private(path: Path, content: bytes) -> None:
    """Write ``content`` to a file that only the user may read or write, whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    with replacing(path, private=True) as file:
        file.write(content)


def followed(path: Path) -> tuple[Path, bool]:
    """The file that the absolute ``path`` leads to, and whether a symbolic link is on the way to it."""
    target = path.resolve()
    return target, target != Path(os.path.normpath(path))


def require_private(path: Path) -> None:
    """Check that a file is the user's own, and that nobody else may read or write it.

    Raises:
        RunError: it is not, or cannot be looked at.
    """
    if (mode := _own_mode(path)) & (stat.S_IRWXG | stat.S_IRWXO):
        raise RunError(f"{path}: may be read by others (mode {mode & 0o777:o}); chmod 600 {path}")


def require_own(path: Path) -> None:
    """Check that a file or a folder is the user's own, and that nobody else may write it.

    A sticky folder, such as /tmp, is refused too: others can put a journal of SQLite beside a ledger there,
    and the next opening would roll it back into the ledger.

    Raises:
        RunError: it is not, or cannot be looked at.
    """
    mode = _own_mode(path)
    if mode & _OTHERS_WRITE:
        raise RunError(f"{path}: may be changed by others (mode {mode & 0o777:o}); chmod go-w {path}")


def _own_mode(path: Path) -> int:
    """The mode bits (``st_mode``) of what is at ``path``.

    Raises:
        RunError: it cannot be read, or is not the user's who runs this process.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    if found.st_uid != os.getuid():
        raise RunError(f"{path}: is another user's (number {found.st_uid})")
    return found.st_mode

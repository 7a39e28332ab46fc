"""Files that are written whole or not at all, whenever the writer is killed or the disk is full.

A file is written under a name nobody can guess, in the folder it is for, flushed to the disk and renamed into
its place; then the folder is flushed. A reader meets the old file or the new one, never half of one. What a
killed writer leaves are files called ``.NAME.HEX.tmp``; `clean_temporary` removes them.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sfumato.errors import RunError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_PIECE = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class HashedFile(io.RawIOBase):
    """A new file, open for writing from front to back; it counts and hashes what is written.

    Attributes:
        size: bytes written so far.
        failure: why the last write failed, if one has failed.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._sum = hashlib.sha256()
        self.size = 0
        self.failure: OSError | None = None

    @property
    def sha256(self) -> str:
        """SHA-256, in hexadecimal, of all bytes written so far."""
        return self._sum.hexdigest()

    def writable(self) -> bool:
        """Always true: the file is for writing only."""
        return True

    def fileno(self) -> int:
        """The operating system's descriptor of the file."""
        return self._descriptor

    def tell(self) -> int:
        """Number of bytes written so far, which is the position of the next."""
        return self.size

    def write(self, data: Any) -> int:
        """Write all of ``data``, bytes or a buffer; returns how many bytes these are.

        Raises:
            OSError: the system could not write; the attribute `failure` keeps the error.
        """
        rest = memoryview(data).cast("B")
        length = len(rest)
        while rest:
            try:
                written = os.write(self._descriptor, rest)
            except OSError as error:
                self.failure = error
                raise
            self._sum.update(rest[:written])
            self.size += written
            rest = rest[written:]
        return length


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[HashedFile]:
    """Context with a new file that replaces ``path``, durably, when the context ends.

    The folder is created if it does not exist. After an exception no file remains and ``path`` is unchanged.

    Args:
        path: a symbolic link there is replaced, not followed.
        private: whether only the owner may read the file.

    Raises:
        RunError: the file cannot be written.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"
    try:
        make_folder(path.parent)
        with _new_file(temporary, 0o600 if private else 0o666) as file:
            try:
                yield file
            except Exception:
                if file.failure is None:
                    raise
                # libraries may report a failed write as an error of their own
                raise file.failure from None
            os.fsync(file.fileno())
            os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {reason(error)}") from error


@contextmanager
def _new_file(path: Path, mode: int) -> Iterator[HashedFile]:
    """A context with a new file at ``path``, which is removed at the end, unless it was renamed.

    ``mode``: permission bits.
    """
    descriptor = os.open(path, _NEW, mode)
    try:
        yield HashedFile(descriptor)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            path.unlink(missing_ok=True)


def write_archive(archive: io.BytesIO, file: HashedFile) -> None:
    """Write the content of ``archive`` to ``file`` in pieces of a megabyte.

    ``getbuffer`` is not used: if writing fails, Python up to 3.12.1 may crash when it collects that buffer.
    """
    archive.seek(0)
    shutil.copyfileobj(archive, file, _PIECE)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents so that they still exist after a power failure."""
    missing = [at for at in (folder, *folder.parents) if not at.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Flush the list of a folder's files to the disk, if the system supports it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return  # a folder may be writable but not readable
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # this file system does not support it
            raise
    finally:
        os.close(descriptor)


def clean_temporary(folder: Path) -> None:
    """Remove temporary files of killed writers in ``folder``; no other process may be writing there."""
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name) and (path.is_symlink() or not path.is_dir()):
            path.unlink(missing_ok=True)


def hash_file(path: Path) -> tuple[str, int]:
    """The SHA-256 in hexadecimal and the size in bytes of the file at ``path``.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def read_regular(path: Path) -> bytes:
    """All bytes of a file.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    require_regular(path)
    return path.read_bytes()


def require_regular(path: Path) -> None:
    """Refuse devices, pipes and folders; a device or pipe may have no end. A missing file is not refused.

    Raises:
        OSError: ``path`` exists and is not a regular file.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, os.strerror(errno.EISDIR) if path.is_dir() else "is not a regular file")


def short_hash(sha256: str) -> str:
    """The first 12 characters of ``sha256``, a hash in hexadecimal, for messages."""
    return sha256[:12]


def reason(error: OSError) -> str:
    """The operating system's message for ``error``; without one its text, else its type."""
    return error.strerror or str(error) or type(error).__name__

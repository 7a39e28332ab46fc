"""One writer a folder: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from sfumato.durable_files import clean_temporary, make_folder, reason
from sfumato.errors import SpecError

LOCK_FILE = ".lock"


@contextmanager
def only_writer(folder: Path, *, option: str | None = None) -> Iterator[None]:
    """Be the only process that writes into ``folder``, which is made if need be, until the block ends.

    Temporary files that killed writers left there are removed. A folder that was made for nothing is removed.

    Args:
        folder: of a run or a sweep; its ``.lock`` stays, empty.
        option: of the command line that named the folder, to be blamed in errors.

    Raises:
        SpecError: another process is writing there, or the system does not let this one.
    """
    place, named, is_new = option or str(folder), str(folder) if option else None, False
    try:
        is_new = not folder.exists()
        make_folder(folder)
        lock = FileLock(folder / LOCK_FILE, thread_local=False)
        lock.acquire(blocking=False)
    except Timeout:
        other = f"wait for it, or give another folder ({next_free(folder)} is free)"
        raise SpecError(place, named, f"another process is writing there; {other}") from None
    except (NotADirectoryError, FileExistsError):
        raise SpecError(place, named, "is a file, or lies under one; give a folder") from None
    except (OSError, ValueError) as error:
        said = reason(error) if isinstance(error, OSError) else str(error)
        raise SpecError(place, named, f"cannot be used: {said}") from None
    try:
        for own in _without_locks(folder):
            clean_temporary(own)
        yield
    finally:
        if is_new and os.listdir(folder) == [LOCK_FILE]:
            with suppress(OSError):
                (folder / LOCK_FILE).unlink()
                folder.rmdir()
        lock.release()


def _without_locks(folder: Path) -> Iterator[Path]:
    """``folder`` and the folders in it that have no lock of their own."""
    yield folder
    for below in folder.iterdir():
        if below.is_dir() and not below.is_symlink() and not (below / LOCK_FILE).exists():
            yield from _without_locks(below)


def ways_to_continue(folder: Path) -> str:
    """What can be done where ``folder`` holds a run."""
    return f"--resume goes on with it, --force replaces it, and {next_free(folder)} is free"


def next_free(folder: Path) -> Path:
    """The first of ``FOLDER-2``, ``FOLDER-3``, ... that is not there yet."""
    named = folder if folder.name else folder.resolve()
    return next(path for n in count(2) if not (path := named.with_name(f"{named.name}-{n}")).exists())

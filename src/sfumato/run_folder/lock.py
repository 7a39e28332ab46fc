"""A lock for each folder, so that only one process writes into it; it ends with the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from sfumato.arguments import Argument
from sfumato.durable_files import clean_temporary, make_folder, reason
from sfumato.errors import SpecError
from sfumato.run_folder.beside import next_free

LOCK_FILE = ".lock"
_RESUME, _FORCE = Argument("resume", True), Argument("force", True)


@contextmanager
def only_writer(folder: Path, *, argument: Argument | None = None) -> Iterator[None]:
    """Context that holds the lock of ``folder``, which is created if it does not exist.

    Temporary files of killed writers are removed. If the folder was created and nothing was written, it is
    removed at the end.

    Args:
        folder: of a run or a sweep; its empty file ``.lock`` stays.
        argument: that named the folder, for errors.

    Raises:
        SpecError: another process is writing there, or the folder cannot be used.
    """
    place, named, is_new = argument or str(folder), str(folder) if argument else None, False
    try:
        is_new = not folder.exists()
        make_folder(folder)
        lock = FileLock(folder / LOCK_FILE, thread_local=False)
        lock.acquire(blocking=False)
    except Timeout:
        other = f"wait for it, or give another folder ({next_free(folder)} is free)"
        raise SpecError(place, named, f"another process is writing there; {other}") from None
    except (NotADirectoryError, FileExistsError):
        raise SpecError(place, named, "is a file, or is inside of one; give a folder") from None
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


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the lock of ``folder`` now."""
    if not (folder / LOCK_FILE).is_file():
        return False
    lock = FileLock(folder / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # no right to write there: nobody can tell
        return False
    lock.release()
    return False


def _without_locks(folder: Path) -> Iterator[Path]:
    """Yield ``folder`` and the folders below it, but not those that have a lock of their own."""
    yield folder
    for below in folder.iterdir():
        if below.is_dir() and not below.is_symlink() and not (below / LOCK_FILE).exists():
            yield from _without_locks(below)


def ways_to_continue(folder: Path) -> str:
    """A clause for errors where ``folder`` holds a run: resume it, replace it, or use another folder."""
    return f"{_RESUME} continues it, {_FORCE} replaces it, and {next_free(folder)} is free"

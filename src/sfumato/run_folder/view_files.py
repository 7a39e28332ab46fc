"""Names of the files in ``views/``: the recorded observers, and the vectors they received in each round."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from sfumato.errors import RunError
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import VIEWS_FOLDER, read_json, write_json

OBSERVERS_FILE = f"{VIEWS_FOLDER}/observers.json"
VIEW_FILE = re.compile(rf"{VIEWS_FOLDER}/([^/]+)/round-(\d+)\.npz")
"""Name of the file with an observer's vectors of a round: the observer's folder, and the round from 1."""
_LONGEST_NAME = 120


def slug(observer: str) -> str:
    """Name of the folder for an observer's views: the observer's name with ``:`` and ``,`` replaced.

    For a large coalition it is cut and ends in a hash of the name.
    """
    name = observer.replace(":", "-").replace(",", "+")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 17]}~{hashlib.sha256(observer.encode()).hexdigest()[:16]}"


def round_file(folder: str, number: int) -> str:
    """Path in a run folder of the vectors of round ``number`` (from 0); ``folder`` as `slug` gives it."""
    return f"{VIEWS_FOLDER}/{folder}/round-{number + 1:06d}.npz"


def write_observers(folder: Path, observers: Sequence[str]) -> FileRecord:
    """Write the names of the recorded observers; returns the file's record for the manifest."""
    return write_json(folder / OBSERVERS_FILE, {"observers": list(observers)})


def read_observers(folder: Path) -> tuple[str, ...]:
    """A tuple of the names of the observers whose views a run folder holds; empty if there are no views.

    Raises:
        RunError: the file is damaged.
    """
    path = folder / OBSERVERS_FILE
    if not path.is_file():
        return ()
    try:
        return tuple(str(name) for name in read_json(path)["observers"])
    except (KeyError, TypeError) as error:
        raise RunError(f"{path}: cannot be read: {error}") from None

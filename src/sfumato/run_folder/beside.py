"""Folders beside that of a run: the next free one, and that of its twin without noise."""

from __future__ import annotations

from itertools import count
from pathlib import Path


def next_free(folder: Path) -> Path:
    """The first of the paths ``FOLDER-2``, ``FOLDER-3``, ... that does not exist."""
    return next(path for n in count(2) if not (path := _beside(folder, f"-{n}")).exists())


def baseline_folder(folder: Path) -> Path:
    """The path of the folder for the run without noise that belongs to the run in ``folder``."""
    return _beside(folder, "-without-noise")


def _beside(folder: Path, suffix: str) -> Path:
    """The folder beside ``folder`` whose name has a suffix."""
    named = folder if folder.name else folder.resolve()  # "." has no name
    return named.with_name(named.name + suffix)

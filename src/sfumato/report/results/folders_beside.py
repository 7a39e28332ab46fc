"""Runs in folders beside that of a run, to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from sfumato.errors import SfumatoError
from sfumato.report.results.series import Series, folders_of_seeds, load_series
from sfumato.run_folder.manifest import MANIFEST_FILE
from sfumato.run_folder.reader import SPEC_FILE, read_run_spec

_MOST_FOLDERS = 50  # the most recent ones


def folders_in(place: Path, own: Collection[Path]) -> Iterator[Path]:
    """Folders in ``place`` but ``own`` that hold a run, or seeds of one, the most recent first.

    At most `_MOST_FOLDERS`.
    """
    seeds = {path.parent.parent for path in place.glob(f"*/seed-*/{MANIFEST_FILE}")}
    folders = {path.parent for path in place.glob(f"*/{MANIFEST_FILE}")} | seeds
    recent = sorted(folders - set(own), key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    yield from recent[:_MOST_FOLDERS]


def finished_run_in(folder: Path, fits: Callable[[Mapping[str, Any]], bool]) -> Series | None:
    """The run in a folder whose spec ``fits``, if all its seeds are finished; else ``None``.

    Its spec alone is read first. Its name says in which folder it is. A damaged run is ``None``, too.
    """
    try:
        if not fits(read_run_spec(folders_of_seeds(folder)[0])):
            return None
        (one,) = load_series([folder])
    except (SfumatoError, OSError, ValueError):
        return None  # damaged, or being written
    if not all(run.finished for run in one.runs):
        return None
    return replace(one, name=f"the run in the folder {folder.name}")


def spec_beside(one: Series, folder: Path) -> str:
    """The path of a run's spec from the folder that holds ``folder``, as a shell reads it.

    ``folder``: of the run, or one that the run is in.
    """
    within = one.first.path.resolve().relative_to(folder.resolve().parent)
    return quote((within / SPEC_FILE).as_posix())

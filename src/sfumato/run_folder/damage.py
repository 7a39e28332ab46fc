"""Checks every file of a run folder against its recorded hash. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sfumato.errors import RunError
from sfumato.run_folder.contents import WHEN_FINISHED
from sfumato.run_folder.manifest import MANIFEST_FILE, Damage, FileRecord, Manifest, damage, read_manifest
from sfumato.run_folder.rounds_log import ROUNDS_FILE, read_rounds
from sfumato.run_folder.seal import CHECKPOINT_FILE, Seal, read_seal
from sfumato.run_folder.view_files import VIEW_FILE, round_file


def check_folder(folder: Path) -> list[Damage]:
    """A list of the files of the run in ``folder`` that are damaged or missing, and how; empty if none is.

    The checkpoint's seal has the hash of the log of rounds, the log has the hashes of the views, and the
    manifest those of all other files.
    """
    found, manifest, seal = [], Manifest(), None
    try:
        manifest = read_manifest(folder)
    except RunError as error:
        found.append(_damage_from_error(folder, MANIFEST_FILE, error))
    try:
        seal = read_seal(folder)
        if seal is None:
            found.append(Damage(CHECKPOINT_FILE, "is missing"))
    except RunError as error:
        found.append(_damage_from_error(folder, CHECKPOINT_FILE, error))
    if seal is not None and manifest.finished and manifest.spec != seal.fingerprint:
        return [*found, Damage(MANIFEST_FILE, "is of another run"), *_damages_of_rounds(folder, seal)]
    if manifest.finished:
        found += [Damage(name, "is not listed") for name in WHEN_FINISHED if name not in manifest.files]
    found += manifest.damages(folder, [name for name in manifest.files if VIEW_FILE.fullmatch(name) is None])
    return found if seal is None else [*found, *_damages_of_rounds(folder, seal)]


def _damages_of_rounds(folder: Path, seal: Seal) -> Iterator[Damage]:
    """Yield the damage of the log of rounds that ``seal`` covers; if it has none, that of the views."""
    try:
        for number, one in enumerate(read_rounds(folder, seal.rounds)):
            for slug, sha256 in one.views.items():
                name = round_file(slug, number)
                lost = damage(folder, name, FileRecord(sha256))
                if lost is not None:
                    yield lost
    except RunError as error:
        yield _damage_from_error(folder, ROUNDS_FILE, error)


def _damage_from_error(folder: Path, name: str, error: RunError) -> Damage:
    """The entry of the damaged file ``name`` for the error that reading it raised."""
    return Damage(name, str(error).removeprefix(f"{folder / name}: "))

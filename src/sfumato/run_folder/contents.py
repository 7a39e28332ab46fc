"""Which files in a run folder belong to the run, and which of them are removed when."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sfumato.errors import RunError
from sfumato.run_folder.manifest import MANIFEST_FILE, FileRecord, read_manifest
from sfumato.run_folder.metrics_table import METRICS_FILE
from sfumato.run_folder.reader import (
    ATTACKS_FOLDER,
    GROUPS_FILE,
    LEDGER_FILE,
    MODEL_FILE,
    PRIVACY_FILE,
    REPORT_FILE,
    SPEC_FILE,
    TENSORBOARD_FOLDER,
    TEST_LABELS_FILE,
    VIEWS_FOLDER,
)
from sfumato.run_folder.rounds_log import NEXT_FILE, ROUNDS_FILE
from sfumato.run_folder.seal import CHECKPOINT_FILE
from sfumato.run_folder.view_files import OBSERVERS_FILE, VIEW_FILE

_AT_THE_END = (METRICS_FILE, MODEL_FILE, GROUPS_FILE, REPORT_FILE)
WHEN_FINISHED = (SPEC_FILE, METRICS_FILE, PRIVACY_FILE, LEDGER_FILE, MODEL_FILE, REPORT_FILE)
"""Files of every finished run, beside the checkpoint and the log of rounds."""
# The checkpoint is removed first: without it a run starts from the beginning, whatever other files exist.
_FILES = (
    CHECKPOINT_FILE, *_AT_THE_END, SPEC_FILE, PRIVACY_FILE, LEDGER_FILE, TEST_LABELS_FILE, ROUNDS_FILE,
    NEXT_FILE,
)  # fmt: skip


def is_own(name: str) -> bool:
    """Whether ``name``, a path relative to a run folder, is that of a file which a run writes.

    Results of attacks and of sweeps are not.
    """
    return name in (*_FILES, MANIFEST_FILE) or name.startswith((f"{VIEWS_FOLDER}/", f"{TENSORBOARD_FOLDER}/"))


def is_derived(name: str) -> bool:
    """Whether ``name``, a file of a run, can be written again from the checkpoint and the log of rounds."""
    return is_own(name) and name not in (CHECKPOINT_FILE, ROUNDS_FILE) and VIEW_FILE.fullmatch(name) is None


def intact_other_files(folder: Path, *, attacks_on: Collection[str]) -> dict[str, FileRecord]:
    """Records, by name, of undamaged files in the manifest that are of attacks and sweeps, not the run's.

    Args:
        folder: of the run.
        attacks_on: fingerprints of specs; results of attacks are included if the manifest is of one of them.

    Returns:
        {} where the manifest cannot be read.
    """
    try:
        manifest = read_manifest(folder)
    except RunError:
        return {}
    others = {
        name: record
        for name, record in manifest.files.items()
        if not is_own(name) and (manifest.spec in attacks_on or not name.startswith(f"{ATTACKS_FOLDER}/"))
    }
    lost = {one.name for one in manifest.damages(folder, others)}
    return {name: record for name, record in others.items() if name not in lost}


def refuse_folders(folder: Path, names: Iterable[str]) -> None:
    """Check that no folder stands where a file is to be written: at none of ``names`` in ``folder``.

    Files, missing names and symbolic links pass.

    Raises:
        RunError: one of them is a folder.
    """
    _refuse_folders(folder / name for name in names)


def refuse_folders_in_run(folder: Path) -> None:
    """Check that no folder stands where a file of a run, or a result of an attack on it, is to be written.

    Raises:
        RunError: one of these is a folder.
    """
    refuse_folders(folder, (MANIFEST_FILE, OBSERVERS_FILE, *_FILES))
    _refuse_folders((*_event_files(folder), *_view_files(folder), *_result_files(folder)))


def _refuse_folders(paths: Iterable[Path]) -> None:
    """Raise `RunError` if any of ``paths`` is a folder."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():  # a link is replaced, not followed
            raise RunError(f"{path}: is a folder; must be a file: remove the folder")


def _event_files(folder: Path) -> Iterator[Path]:
    """Paths of the event files for TensorBoard in ``folder``."""
    return (folder / TENSORBOARD_FOLDER).glob("events.out.tfevents.*")


def _view_files(folder: Path) -> Iterator[Path]:
    """Paths of the recorded views in ``folder``."""
    return (folder / VIEWS_FOLDER).glob("*/round-*.npz")


def _result_files(folder: Path) -> Iterator[Path]:
    """Paths of the results of attacks and audits in ``folder``."""
    return (p for p in (folder / ATTACKS_FOLDER).glob("*.*") if p.suffix in (".json", ".npz"))


def remove_final_files(folder: Path) -> None:
    """Remove the files that only a finished run has: metrics, models, report and TensorBoard's event files.

    Files that are not there are passed over.
    """
    _remove_files(*(folder / name for name in _AT_THE_END), *_event_files(folder))


def remove_run(folder: Path) -> None:
    """Remove the files of the run in ``folder`` and results of attacks on it; other files stay."""
    _remove_files(*(folder / name for name in _FILES))
    remove_final_files(folder)
    remove_views(folder, behind=0)
    _remove_files(folder / OBSERVERS_FILE, *_result_files(folder))
    views = folder / VIEWS_FOLDER
    for empty in (*views.glob("*"), views, folder / ATTACKS_FOLDER, folder / TENSORBOARD_FOLDER):
        with suppress(OSError):
            empty.rmdir()


def remove_views(folder: Path, *, behind: int) -> None:
    """Remove recorded views of all rounds after the first ``behind``, which a resumed run records again."""
    for path in _view_files(folder):
        view = VIEW_FILE.fullmatch(path.relative_to(folder).as_posix())
        if view is not None and int(view[2]) > behind:
            _remove_files(path)


def _remove_files(*paths: Path) -> None:
    """Remove the files at ``paths`` that are there."""
    for path in paths:
        path.unlink(missing_ok=True)

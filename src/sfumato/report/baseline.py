"""The run without noise that a run's accuracy is compared with, where one lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sfumato.errors import SfumatoError
from sfumato.report.privacy_words import adds_noise, cost_of_privacy
from sfumato.report.series import Series, load_series
from sfumato.run_folder.manifest import MANIFEST_FILE

_MOST_FOLDERS = 50  # the most recent ones


def is_it_worth_it(one: Series) -> list[str]:
    """What privacy costs in accuracy, by a run in a folder beside this one; else how to find out."""
    if not adds_noise(one):
        return []
    for folder in _beside(one):
        try:
            (other,) = load_series([folder])
        except (SfumatoError, OSError, ValueError):
            continue  # damaged, or being written
        if all(run.finished for run in other.runs):
            named = replace(other, name=f"the run beside it in {folder.name}")
            if said := cost_of_privacy([one, named]):
                return said[:1]
    return [
        "What privacy costs in accuracy: run the same spec with --set privacy.noise=none into a folder "
        "beside this one, and write this report again with sfumato report."
    ]


def _beside(one: Series) -> Iterator[Path]:
    """Folders beside that of ``one`` in which there are runs, or seeds of one, the most recent first."""
    own = one.folder.resolve()
    seeds = {path.parent.parent for path in own.parent.glob(f"*/seed-*/{MANIFEST_FILE}")}
    folders = {path.parent for path in own.parent.glob(f"*/{MANIFEST_FILE}")} | seeds
    recent = sorted(folders - {own}, key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    yield from recent[:_MOST_FOLDERS]

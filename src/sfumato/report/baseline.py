"""The run without noise that a run's accuracy is compared with, where one lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote

from sfumato.errors import SfumatoError
from sfumato.report.privacy_words import adds_noise, cost_of_privacy
from sfumato.report.series import Series, load_series
from sfumato.run_folder.manifest import MANIFEST_FILE
from sfumato.run_folder.reader import SPEC_FILE

_MOST_FOLDERS = 50  # the most recent ones


def is_it_worth_it(one: Series) -> tuple[list[str], str]:
    """What privacy costs in accuracy, by a run in a folder beside this one; else how to find out.

    Returns:
        Sentences, and the commands to find out, in the folder that holds the run; empty where it is known.
    """
    if not adds_noise(one):
        return [], ""
    for folder in _beside(one):
        try:
            (other,) = load_series([folder])
        except (SfumatoError, OSError, ValueError):
            continue  # damaged, or being written
        if all(run.finished for run in other.runs):
            named = replace(other, name=f"the run in the folder {folder.name} beside it")
            if said := cost_of_privacy([one, named]):
                return said[:1], ""
    folder = one.folder.resolve()
    spec = one.first.path.resolve().relative_to(folder.parent) / SPEC_FILE
    command = (
        f"sfumato run {quote(spec.as_posix())} --set privacy.noise=none "
        f"--out {quote(f'{folder.name}-without-noise')}\nsfumato report {quote(folder.name)}"
    )
    unknown = (
        "What privacy costs in accuracy is not known: there is no such run without noise beside this one."
    )
    return [
        f"{unknown} These commands, in the folder that holds the run, train it and write this report again:"
    ], command


def _beside(one: Series) -> Iterator[Path]:
    """Folders beside that of ``one`` in which there are runs, or seeds of one, the most recent first."""
    own = one.folder.resolve()
    seeds = {path.parent.parent for path in own.parent.glob(f"*/seed-*/{MANIFEST_FILE}")}
    folders = {path.parent for path in own.parent.glob(f"*/{MANIFEST_FILE}")} | seeds
    recent = sorted(folders - {own}, key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    yield from recent[:_MOST_FOLDERS]

"""The run without noise that a run's accuracy is compared with, where one lies beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from sfumato.errors import SfumatoError
from sfumato.report.results.comparability import sends_over_the_air
from sfumato.report.results.privacy_words import cost_of_privacy, has_noise
from sfumato.report.results.series import Series, load_series
from sfumato.run_folder.manifest import MANIFEST_FILE
from sfumato.run_folder.reader import SPEC_FILE
from sfumato.spec.used_keys import AIR_PROTOCOLS

_MOST_FOLDERS = 50  # the most recent ones


def is_it_worth_it(one: Series) -> tuple[list[str], str]:
    """What privacy costs in accuracy, by a run in a folder beside this one; else how to find out.

    Returns:
        Sentences, and the commands to find out, in the folder that holds the run; empty where it is known.
    """
    if not has_noise(one):
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
    settings = " ".join(f"--set {setting}" for setting in _without_noise(one.first.spec_dict))
    command = (
        f"sfumato run {quote(spec.as_posix())} {settings} "
        f"--out {quote(f'{folder.name}-without-noise')}\nsfumato report {quote(folder.name)}"
    )
    unknown = (
        "What privacy costs in accuracy is not known: there is no such run without noise beside this one."
    )
    if sends_over_the_air(one.first.spec_dict):
        unknown += " Over the air the receiver's noise stays, so that run sends its messages one by one."
    return [
        f"{unknown} These commands, in the folder that holds the run, train it and write this report again:"
    ], command


def _without_noise(spec: Mapping[str, Any]) -> list[str]:
    """The settings with which nobody adds noise to what ``spec`` trains, nor does a receiver."""
    settings = ["privacy.noise=none"]
    if spec["protocol"] in AIR_PROTOCOLS:
        settings.append("protocol=dp-fedavg")
    over_air = [hop for hop, kind in (spec.get("transport") or {}).items() if kind == "air"]
    settings += [f"transport.{hop}=plain" for hop in over_air]
    return settings + (["air=null"] if spec.get("air") else [])


def _beside(one: Series) -> Iterator[Path]:
    """Folders beside that of ``one`` in which there are runs, or seeds of one, the most recent first."""
    own = one.folder.resolve()
    seeds = {path.parent.parent for path in own.parent.glob(f"*/seed-*/{MANIFEST_FILE}")}
    folders = {path.parent for path in own.parent.glob(f"*/{MANIFEST_FILE}")} | seeds
    recent = sorted(folders - {own}, key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    yield from recent[:_MOST_FOLDERS]

"""Which runs one call makes, each with its folder: one, several seeds, and their twins without noise."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sfumato.arguments import Argument
from sfumato.durable_files import reason
from sfumato.errors import SpecError, first_names
from sfumato.run_folder.beside import baseline_folder, next_free
from sfumato.run_folder.contents import is_own
from sfumato.run_folder.lock import ways_to_continue
from sfumato.run_folder.reader import holds_run
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import Spec
from sfumato.spec.overrides import seeds_from
from sfumato.spec.without_noise import no_twin_error, twin_without_noise
from sfumato.user_code import allow_user_code

_NAMED = 3  # files in a message


class Play(NamedTuple):
    """One run that is to be made."""

    spec: Spec
    folder: Path


def default_folder(spec: Spec) -> Path:
    """The folder of a run where none is given: ``runs/NAME``."""
    return Path("runs") / spec.name


def plays_of(spec: Spec, folder: Path, seeds: int | None) -> list[Play]:
    """The runs of one call: one in ``folder``, or one for each of ``seeds`` seeds in ``folder/seed-N``.

    Raises:
        SpecError: ``seeds`` seeds from the spec's seed on are not possible.
    """
    if seeds is None:
        return [Play(spec, folder)]
    numbers = seeds_from(spec.seed, seeds)
    return [Play(spec.model_copy(update={"seed": n}), folder / f"seed-{n}") for n in numbers]


def twins_of(spec: Spec, folder: Path, seeds: int | None) -> list[Play]:
    """The twins without noise of the runs of `plays_of`, in the same order.

    Args:
        spec: of the runs with noise.
        folder: of these runs; twins are in the folder that `baseline_folder` names for it.
        seeds: how many seeds, from the spec's on; ``None``: only the spec's.

    Raises:
        SpecError: the spec has no twin without noise.
    """
    twin = twin_without_noise(spec)
    try:
        with allow_user_code():
            resolve(twin)
    except SpecError as error:
        raise no_twin_error(error) from None
    return plays_of(twin, baseline_folder(folder), seeds)


def check_folders(folder: Path, *, goes_on: bool, several: bool, baseline: bool) -> None:
    """Refuse, before anything is computed, folders that hold another run.

    Args:
        folder: of the run, or of its seeds.
        goes_on: whether what is there, a run or files named as a run's, may be replaced or continued.
        several: whether folders for several seeds are wanted.
        baseline: whether the folder of the twin without noise is to be written too.

    Raises:
        SpecError: a folder holds a run already, or files with the names of a run's, holds seeds in place of
            one run or the other way round, or cannot be used.
    """
    for place in (folder, baseline_folder(folder)) if baseline else (folder,):
        _check_folder(place, goes_on=goes_on, several=several)


def _check_folder(folder: Path, *, goes_on: bool, several: bool) -> None:
    """`check_folders` of one folder: that of the runs, or that of their twins.

    ``goes_on`` and ``several``: as there.

    Raises:
        SpecError: as there.
    """
    out, seeds = Argument("out"), Argument("seeds")
    try:
        if folder.exists() and not folder.is_dir():
            raise SpecError(out, str(folder), "is a file; give a folder")
        holds_one, holds_seeds = holds_run(folder), any(folder.glob("seed-*"))
        taken = sorted(one.name for one in folder.iterdir() if is_own(one.name)) if folder.exists() else []
    except OSError as error:
        raise SpecError(out, str(folder), f"cannot be used: {reason(error)}") from None
    if (holds_one or holds_seeds) and not goes_on:
        raise SpecError(out, str(folder), f"holds a run already; {ways_to_continue(folder)}")
    if taken and not (holds_one or holds_seeds or goes_on):
        free = f"{next_free(folder)} is free, or {Argument('force', True)} replaces them"
        raise SpecError(
            out, str(folder), f"holds files that a run would replace ({first_names(taken, _NAMED)}); {free}"
        )
    if holds_one and several:
        allowed = f"holds a run of one seed; give another folder, or leave {seeds} out"
        raise SpecError(out, str(folder), allowed)
    if holds_seeds and not several:
        allowed = f"holds a run of several seeds; add {seeds}, or give another folder"
        raise SpecError(out, str(folder), allowed)

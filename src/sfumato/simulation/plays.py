"""Which runs one call makes, each with its folder: one, several seeds, and their twins without noise."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sfumato.errors import SpecError
from sfumato.run_folder.beside import baseline_folder
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import Spec
from sfumato.spec.overrides import seeds_from
from sfumato.spec.without_noise import no_twin, twin_without_noise
from sfumato.user_code import allow_user_code


class Play(NamedTuple):
    """One run that is to be made."""

    spec: Spec
    folder: Path


def plays_of(spec: Spec, folder: Path, seeds: int | None) -> list[Play]:
    """The runs of a call: one in ``folder``, or one for each of ``seeds`` seeds in ``folder/seed-N``.

    Raises:
        SpecError: so many seeds are not possible.
    """
    if seeds is None:
        return [Play(spec, folder)]
    numbers = seeds_from(spec.seed, seeds)
    return [Play(spec.model_copy(update={"seed": n}), folder / f"seed-{n}") for n in numbers]


def twins_of(spec: Spec, folder: Path, seeds: int | None) -> list[Play]:
    """The twins without noise of these runs, in the folder beside theirs that `baseline_folder` names.

    Raises:
        SpecError: the spec has no twin without noise; said before anything is trained.
    """
    twin = twin_without_noise(spec)
    try:
        with allow_user_code():
            resolve(twin)
    except SpecError as error:
        raise no_twin(error) from None
    return plays_of(twin, baseline_folder(folder), seeds)

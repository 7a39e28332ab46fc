"""Reads study files: built-in ones by name, those of a user by path. Errors are one line, as of a spec."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sfumato.errors import SpecError
from sfumato.spec.base import closest_hint
from sfumato.spec.validation_messages import Problem, error_of_problems, problems_of
from sfumato.studies.references import check_references
from sfumato.studies.study import Study
from sfumato.user_text import KeyLines, parse_yaml, plain, read_text
from sfumato.user_text.files import printable_name

_SUFFIX = ".yaml"


def study_names() -> list[str]:
    """A sorted list of the names, ``PAPER/FIGURE``, of the studies that come with the package."""
    found = []
    for paper in sorted(_builtin().iterdir(), key=lambda entry: entry.name):
        if paper.is_dir():
            names = sorted(file.name for file in paper.iterdir() if file.name.endswith(_SUFFIX))
            found += [f"{paper.name}/{name.removesuffix(_SUFFIX)}" for name in names]
    return found


def load_study(source: str | os.PathLike[str]) -> tuple[str, Study]:
    """Load a study: returns its name and what its file says, after a check.

    Args:
        source: name of a built-in study, or the path of a file ``NAME.yaml``, whose study is called NAME.

    Raises:
        SpecError: there is none, or something in its file is wrong; the message names the file, the key, the
            value and what is allowed.
        SpecProblemsError: several things are.
    """
    given = os.fspath(source)
    names = study_names()
    if given in names:
        paper, _, figure = given.partition("/")
        text = (_builtin() / paper / f"{figure}{_SUFFIX}").read_text(encoding="utf-8")
        return given, _checked(text, given, None)
    path = Path(given)
    if not _is_file(path):
        near = closest_hint(given, names)
        allowed = f"is neither a study nor a file{near}; `sfumato study` lists the studies"
        raise SpecError(printable_name(given), None, allowed)
    return path.name.removesuffix(_SUFFIX), _checked(read_text(path), str(path), path.parent)


def _builtin() -> Any:
    """The folder of the built-in studies, as ``importlib.resources`` gives it."""
    return resources.files("sfumato.studies") / "builtin"


def _is_file(path: Path) -> bool:
    """Whether there is a file; False for a path that the system cannot have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _checked(text: str, file: str, folder: Path | None) -> Study:
    """The study in ``text``, after a check.

    Args:
        text: YAML.
        file: its name, for errors.
        folder: where specs that it names as files are looked for; ``None``: it names none.

    Raises:
        SpecError: something is wrong; SpecProblemsError: several things are.
    """
    raw = plain(parse_yaml(text, file), file)
    if not isinstance(raw, dict):
        raise SpecError(file, None, "must be a mapping of keys, like `title: ...`")
    if folder is not None:
        _make_spec_paths_absolute(raw, folder)
    lines = KeyLines(text)

    def located(problem: Problem) -> SpecError:
        """The error of a ``problem``, with the file, the key, its line and what is allowed."""
        return SpecError(
            f"{file}: {problem.place or 'study'}", problem.value, problem.allowed + lines.of(problem.place)
        )

    try:
        study = Study.model_validate(raw)
    except ValidationError as error:
        raise error_of_problems(problems_of(error), located, file) from None
    problems = [Problem(*refused) for refused in check_references(study)]
    if problems:
        raise error_of_problems(problems, located, file)
    return study


def _make_spec_paths_absolute(raw: dict[str, Any], folder: Path) -> None:
    """Make the files that grids name relative to the study's ``folder`` absolute, where they exist.

    ``raw``: the study as a mapping, changed in place.
    """
    grids = raw.get("grids")
    for grid in grids.values() if isinstance(grids, dict) else ():
        spec = grid.get("spec") if isinstance(grid, dict) else None
        if isinstance(spec, str) and _is_file(folder / spec):
            grid["spec"] = str((folder / spec).resolve())

"""Reading and writing specs: from a file, a built-in name or a mapping, and back to YAML."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sfumato.arguments import Argument, ErrorPlace
from sfumato.errors import SpecError
from sfumato.spec import overrides as changes
from sfumato.spec.base import closest_hint
from sfumato.spec.data import DATA_SUFFIXES, TABLE_SUFFIXES
from sfumato.spec.document import SPEC_HASH, Spec, fingerprint
from sfumato.spec.renamed_keys import as_written, with_new_keys
from sfumato.user_text import KeyLines, parse_yaml, plain, read_text
from sfumato.user_text.files import printable_name

_FILE_KEYS = (
    ("topology", "file"),
    ("data", "source"),
    ("data", "test_file"),
    ("radio", "distances_m"),
    ("moves", "file"),
)


def load_spec(source: str | os.PathLike[str] | Mapping[str, Any], overrides: Iterable[str] = ()) -> Spec:
    """Read a spec and check it.

    Args:
        source: a YAML file, the name of a built-in spec, or a mapping with a spec's keys. Files that the spec
            or an override names (``topology.file``, a file in ``data.source``, the module of code of one's
            own) are looked for beside it, then in the working directory.
        overrides: ``key=value`` with dotted keys and YAML values, applied in order before checking (see
            ``sfumato.spec.overrides``).

    Raises:
        SpecError: something is wrong; the message names the file, the key, the value and what is allowed, and
            of a file the line.
        SpecProblemsError: several things are wrong.
    """
    if isinstance(overrides, str | Mapping):
        raise SpecError(
            Argument("overrides"), overrides, "must be a list of texts, like ['training.rounds=5']"
        )
    if not isinstance(source, str | os.PathLike | Mapping):
        raise SpecError(
            Argument("source"), source, "must be a file, the name of a built-in spec, or a mapping"
        )
    if isinstance(source, Mapping):
        return _checked_spec(dict(source), None, overrides)
    path = _existing_file(source)
    if path is None:
        name = os.fspath(source)
        return _checked_spec(parse_yaml(builtin_text(name), name), name, overrides)
    text = read_text(path)
    return _checked_spec(parse_yaml(text, str(path)), str(path), overrides, folder=path.parent, text=text)


def dump_spec(spec: Spec) -> str:
    """``spec`` as YAML text with every key, which `load_spec` reads back to an equal spec.

    Hashes come first: what is left of a file that was cut off still says what it should hold.
    """
    document = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    if hashes := document.pop("hashes"):
        document = {"hashes": hashes, **document}
    return yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)


def builtin_names() -> list[str]:
    """A sorted list of the names of the specs that come with the package."""
    files = (resources.files("sfumato.spec") / "builtin").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def builtin_text(name: str) -> str:
    """The YAML text of the built-in spec called ``name``, with its comments.

    Raises:
        SpecError: there is none of that name.
    """
    if name not in builtin_names():
        raise no_spec_error(name)
    return (resources.files("sfumato.spec") / "builtin" / f"{name}.yaml").read_text(encoding="utf-8")


def no_spec_error(name: str, or_else: str = "") -> SpecError:
    """The error for a ``name`` of no file and no built-in spec; it suggests a similar one.

    ``or_else``: what else could have been named, such as ``a run folder``, and there is none either.
    """
    names = builtin_names()
    near = closest_hint(name, [*names, *_files_beside(name)])
    neither = f"is neither a file nor {or_else + ' nor ' if or_else else ''}a built-in spec"
    return SpecError(printable_name(name), None, f"{neither}{near}; built in: {', '.join(names)}")


def _files_beside(name: str) -> list[str]:
    """Paths of the YAML files in the folder of the file ``name``, for a hint; empty if it cannot be read."""
    try:
        folder = Path(name).parent
        return [str(folder / path.name) for path in folder.iterdir() if path.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return []


_MOST_RUNS_SHOWN = 5


def _existing_file(source: str | os.PathLike[str]) -> Path | None:
    """The path of the file that ``source`` names; ``None`` where it names no file that exists.

    Raises:
        SpecError: it is a folder and no built-in name, or cannot be read.
    """
    path = Path(source)
    try:
        if path.is_dir() and os.fspath(source) not in builtin_names():
            run = path / "spec.yaml"
            below = sorted(own.parent for own in path.glob("*/spec.yaml"))[:_MOST_RUNS_SHOWN]
            hint = f"; the spec of this run is {run}" if run.is_file() else ""
            hint += f"; runs in it: {', '.join(map(str, below))}" if below else ""
            raise SpecError(str(path), None, f"is a folder; give a YAML file{hint}")
        return path if path.exists() and not path.is_dir() else None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(printable_name(os.fspath(source)), None, f"cannot be read: {reason}") from None


def _checked_spec(
    raw: Any, file: str | None, overrides: Iterable[str], folder: Path | None = None, text: str | None = None
) -> Spec:
    """The spec that ``raw`` describes, with ``overrides`` applied.

    Args:
        raw: plain data, as YAML gives it.
        file: name for errors; ``None`` for a mapping given in Python.
        overrides: ``key=value``, in order.
        folder: of the file; paths in the spec may be relative to it.
        text: of the file, for line numbers in errors.

    Raises:
        SpecError: something is wrong with it.
        SpecProblemsError: several things are.
    """
    before = f"{file}: " if file else ""
    if raw is None:
        raise SpecError(file or "spec", None, "is empty; `sfumato init` writes a spec to start from")
    if not isinstance(raw, dict):
        if file is not None and file.endswith(TABLE_SUFFIXES):
            raise SpecError(file, None, "is a table, no spec; `sfumato init` writes a spec for it")
        raise SpecError(file or "spec", raw, "must be a mapping of sections, like `name: ...`")
    try:
        document = plain(raw, "")
    except SpecError as error:
        raise SpecError(before + (error.place or "spec"), error.value, error.allowed) from None
    _check_fingerprint(document, before)
    aliases = with_new_keys(document, lambda key: f"{before}{key}")
    touched = changes.apply_overrides(document, overrides)
    aliases |= with_new_keys(document, changes.place_of_change)
    if folder is not None:
        _make_paths_absolute(document, folder)
        _make_code_path_absolute(document, folder, "model", "kind")
        _make_code_path_absolute(document, folder, "training", "loss")
        _make_code_path_absolute(document, folder, "data", "source")
        if isinstance(document.get("privacy"), dict):
            _make_code_path_absolute(document["privacy"], folder, "mechanism", "kind")
    try:
        return Spec.model_validate(document)
    except ValidationError:
        from sfumato.spec.validation_messages import Problem, all_problems, error_of_problems

        problems = all_problems(document)
    lines = KeyLines(text)

    def located(problem: Problem) -> SpecError:
        blamed = any(f"{problem.place}.".startswith((f"{key}.", f"{key}[")) for key in touched)
        written = as_written(problem.place, aliases)
        place: ErrorPlace = changes.place_of_change(written) if blamed else before + (written or "spec")
        return SpecError(place, problem.value, problem.allowed + ("" if blamed else lines.of(written)))

    raise error_of_problems(problems, located, file or "spec")


def _check_fingerprint(document: dict[str, Any], before: str) -> None:
    """Refuse the spec of a run folder, ``document``, that differs from what a run wrote there.

    A spec without a recorded fingerprint passes. ``before``: the beginning of the error's place, such as the
    file's name.

    Raises:
        SpecError: its fingerprint is not the recorded one.
    """
    hashes = document.get("hashes")
    recorded = hashes.get(SPEC_HASH) if isinstance(hashes, dict) else None
    if recorded is None:
        return
    try:
        found = fingerprint(document)
    except (TypeError, ValueError):  # nothing that was ever written there
        found = "no hash"
    if found != recorded:
        raise SpecError(
            f"{before}hashes.{SPEC_HASH}",
            None,
            f"is {str(recorded)[:12]}, but what the spec says has {found[:12]}: it was edited or damaged "
            "since a run wrote it; to make a new spec of it, remove its section hashes",
        )


def _make_paths_absolute(document: dict[str, Any], folder: Path) -> None:
    """Make the paths that ``document`` gives relative to its own ``folder`` absolute, where they exist."""
    topology = document.get("topology")
    moves = topology.get("moves") if isinstance(topology, dict) else None
    for name, key in _FILE_KEYS:
        section = document.get(name) if name != "moves" else moves
        value = section.get(key) if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(value, str) and (key != "source" or _names_file(value)):
            try:
                beside = (folder / value).resolve()
                if beside.exists():
                    section[key] = str(beside)
            except (OSError, RuntimeError, ValueError):
                continue  # no path at all: the models, or whoever opens it, will say so


def _make_code_path_absolute(document: dict[str, Any], folder: Path, name: str, key: str) -> None:
    """Turn ``module:factory`` at a key, in place, into the path of the module's file if it is in ``folder``.

    Args:
        document: of the spec, or a section of it.
        folder: of the spec.
        name: of a section in it, which may also be written as one word.
        key: of the section.
    """
    section = document.get(name)
    value = section.get(key) if isinstance(section, dict) else section
    module, colon, factory = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not module:
        return
    file = module if module.endswith(".py") else f"{module.replace('.', '/')}.py"
    try:
        beside = (folder / file).resolve()
        if not beside.is_file():
            return
    except (OSError, RuntimeError, ValueError):
        return  # no path at all: the models will say so
    if isinstance(section, dict):
        section[key] = f"{beside}:{factory}"
    else:
        document[name] = f"{beside}:{factory}"


def _names_file(source: str) -> bool:
    """Whether ``data.source`` is a path, and not the name of a data set."""
    return "/" in source or source.lower().endswith(DATA_SUFFIXES)

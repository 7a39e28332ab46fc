"""Reads and writes the files of a run folder; damaged files are refused (docs/run-folder.md).

spec.yaml        the resolved, calibrated spec, with versions and hashes
metrics.parquet  one row for each round
privacy.json     guarantees and claims           ledger.json   the releases, to recompute them from
model.pt         the trained model               groups.pt     the models of all groups, if there are groups
report.html      the report                      tensorboard/  the metrics, if TensorBoard is installed
checkpoint.pt    from which a run is resumed     rounds.jsonl  the metrics, one line after each round
views/           what observers received         attacks/      results of attacks on it (docs/attacks.md)
manifest.json    hashes of all files             .lock         held by the process that writes here
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import pandas as pd

from sfumato.arguments import Argument, Call
from sfumato.durable_files import replacing, short_hash
from sfumato.errors import RunError, SpecError, first_names
from sfumato.run_folder.lock import is_being_written, only_writer
from sfumato.run_folder.manifest import MANIFEST_FILE, FileRecord, Manifest, read_manifest, record_files
from sfumato.run_folder.metrics_table import EPSILON_PREFIX, METRICS_FILE, read_metrics, table_of
from sfumato.run_folder.recorded_privacy import RecordedPrivacy
from sfumato.run_folder.rounds_log import read_rounds
from sfumato.run_folder.seal import CHECKPOINT_FILE, read_seal
from sfumato.spec.base import nearest
from sfumato.spec.document import SPEC_HASH
from sfumato.user_text import MAX_OWN_BYTES, parse_json, parse_yaml, plain, read_text

SPEC_FILE = "spec.yaml"
PRIVACY_FILE = "privacy.json"
LEDGER_FILE = "ledger.json"
MODEL_FILE = "model.pt"
GROUPS_FILE = "groups.pt"
TEST_LABELS_FILE = "test_labels.json"
REPORT_FILE = "report.html"
ATTACKS_FOLDER = "attacks"
VIEWS_FOLDER = "views"
TENSORBOARD_FOLDER = "tensorboard"
POINTS_FOLDER = "points"
"""In the folder of a sweep: the run folders of its points."""

_HASHES_RECORD = "archive/sfumato.json"
_READ = (SPEC_FILE, METRICS_FILE, PRIVACY_FILE, LEDGER_FILE, MODEL_FILE, GROUPS_FILE, TEST_LABELS_FILE)


@dataclass(frozen=True)
class RunFolder:
    """A run, read from its folder.

    Attributes:
        path: the folder.
        spec_text: the text of ``spec.yaml``.
        spec_dict: the parsed text, not validated again.
        metrics: one row for each round; ``epsilon:OBSERVER`` columns may contain infinities, and a column
            that does not apply (accuracy in a round without evaluation) contains NaN.
        privacy: what ``privacy.json`` says.
        manifest: of the folder.
    """

    path: Path
    spec_text: str
    spec_dict: dict[str, Any]
    metrics: pd.DataFrame
    privacy: RecordedPrivacy
    manifest: Manifest

    def __repr__(self) -> str:
        """Name, folder and progress in one line."""
        return f"RunFolder({str(self.path)!r}, {self.name!r}, {len(self.metrics)} of {self.rounds} rounds)"

    @property
    def finished(self) -> bool:
        """Whether the manifest says that all rounds are done and all files written."""
        return self.manifest.finished

    @property
    def name(self) -> str:
        """The spec's name."""
        return str(self.spec_dict["name"])

    @property
    def rounds(self) -> int:
        """The number of rounds that the spec asks for."""
        return int(self.spec_dict["training"]["rounds"])

    @cached_property
    def ledger(self) -> dict[str, Any]:
        """The content of ``ledger.json``, a JSON object, read when first asked for."""
        return read_ledger(self.path)

    @property
    def deployed(self) -> Mapping[str, Any]:
        """The ledger's facts on a deployed run: ``session``, ``purpose``, ``draws`` ...; {} if simulated."""
        return dict((self.ledger.get("realised") or {}).get("deployed") or {})

    @property
    def observers(self) -> tuple[str, ...]:
        """The observers with a column of ε in the metrics: a tuple of names, in order of columns."""
        names = (str(name) for name in self.metrics.columns)
        return tuple(n.removeprefix(EPSILON_PREFIX) for n in names if n.startswith(EPSILON_PREFIX))


def load_run(path: str | Path) -> RunFolder:
    """Read a run folder after its files have been checked.

    Views are checked when an attack reads them, results of attacks when a report reads them, and the
    checkpoint when the run is resumed.

    Raises:
        SpecError: there is no run at ``path``, or its spec.yaml is not a spec.
        RunError: a file of the run is missing, damaged, or of another run.
    """
    folder = Path(path)
    if not folder.is_dir() or not holds_run(folder):
        raise no_run_error(folder)
    manifest = _checked_manifest(folder)
    spec_text, spec = _read_spec(folder / SPEC_FILE)
    check_same_run(folder / SPEC_FILE, spec.get("hashes"), manifest.spec)
    document = read_json(folder / PRIVACY_FILE)
    privacy = RecordedPrivacy.from_dict(document, folder / PRIVACY_FILE)
    check_same_run(folder / PRIVACY_FILE, document.get("hashes"), manifest.spec)
    check_same_run(folder / LEDGER_FILE, read_ledger(folder).get("hashes"), manifest.spec)
    _check_model(folder, manifest)
    return RunFolder(folder, spec_text, spec, _read_run_metrics(folder, manifest), privacy, manifest)


def no_run_error(path: Path) -> SpecError:
    """The error for a path without a run; it says what is there, and suggests a run with a similar name."""
    if path.is_file():
        said = "is a file and no run folder"
    elif path.is_dir():
        said = f"is not a run folder: it has no {SPEC_FILE}"
        inside = [child.name for child in sorted(path.iterdir()) if child.is_dir() and has_run_files(child)]
        if inside:
            return SpecError(str(path), None, f"{said}; runs in it: {first_names(inside)}")
    else:
        said = "no such run folder"
    for folder in (path.parent, Path("runs")):
        names = [child.name for child in folder.iterdir() if child.is_dir()] if folder.is_dir() else []
        near = nearest(path.stem, names)
        if near is not None and folder / near != path and has_run_files(folder / near):
            return SpecError(str(path), None, f"{said} (did you mean {str(folder / near)!r}?)")
    return SpecError(str(path), None, said)


def load_run_to_add(path: str | Path) -> RunFolder:
    """Read a run folder like `load_run`, and check that files can be added to it.

    Raises:
        SpecError: there is no single run at ``path``, or another process is writing there.
        RunError: a file of the run is missing, damaged, or of another run.
    """
    folder = Path(path)
    seeds = sorted(path.parent.name for path in folder.glob(f"seed-*/{SPEC_FILE}"))
    if seeds and not holds_run(folder):
        one = f"audit or attack one seed of it: {folder / seeds[0]}"
        raise SpecError(str(folder), None, f"is not a run folder: it has no {SPEC_FILE}; {one}")
    run = load_run(folder)
    with only_writer(folder):
        return run


def has_run_files(folder: Path) -> bool:
    """Whether ``folder`` contains ``spec.yaml`` or a checkpoint, damaged or not."""
    return any(os.path.exists(folder / name) for name in (SPEC_FILE, CHECKPOINT_FILE))  # never raises


def holds_run(folder: Path) -> bool:
    """Whether a run was started in ``folder``: it has a run's files, or a manifest of one or unreadable."""
    if has_run_files(folder):
        return True
    try:
        return bool(read_manifest(folder).spec)
    except RunError:
        return os.path.exists(folder / MANIFEST_FILE)


def repair_hint(folder: Path) -> str:
    """A clause for errors: the command that writes lost files again, or that the run is going on."""
    if is_being_written(folder):
        return "the run is going on there: try again, or when it is done"
    again = Call("run", "SPEC", (Argument("out", str(folder)), Argument("resume", True)))
    return f"`{again}`, with the run's own SPEC, restores it"


def check_same_run(path: Path, hashes: object, fingerprint: str) -> None:
    """Raise `RunError` unless a file states the hash of the spec of the folder's run.

    Args:
        path: of the file.
        hashes: of spec and inputs, as the file states them.
        fingerprint: the SHA-256 of the folder's spec.
    """
    stated = hashes.get(SPEC_HASH) if isinstance(hashes, Mapping) else None
    if stated != fingerprint:
        said = "none" if stated is None else short_hash(str(stated))
        raise RunError(
            f"{path}: belongs to another run: the SHA-256 of its spec is {said}, that of the folder's spec "
            f"{short_hash(fingerprint)}; {repair_hint(path.parent)}"
        )


def write_spec(folder: Path, text: str) -> FileRecord:
    """Write ``text`` to ``spec.yaml`` in ``folder``; returns its record for the manifest."""
    return write_text(folder / SPEC_FILE, text)


def write_privacy(folder: Path, privacy: Mapping[str, Any], hashes: Mapping[str, str]) -> FileRecord:
    """Write ``privacy.json`` with the hashes of the run's spec and inputs; infinities become ``"inf"``.

    Returns its record for the manifest.
    """
    return write_json(folder / PRIVACY_FILE, {**privacy, "hashes": dict(hashes)})


def write_ledger(folder: Path, ledger: Mapping[str, Any], hashes: Mapping[str, str]) -> FileRecord:
    """Write ``ledger.json`` with the hashes of the run's spec and inputs; infinities become ``"inf"``.

    Returns its record for the manifest.
    """
    return write_json(folder / LEDGER_FILE, {**ledger, "hashes": dict(hashes)})


def add_hashes(archive: IO[bytes], hashes: Mapping[str, str]) -> None:
    """Add the hashes of the run's spec and inputs to an archive of ``torch.save``; torch ignores them."""
    with zipfile.ZipFile(archive, "a") as parts:
        parts.writestr(zipfile.ZipInfo(_HASHES_RECORD), json.dumps(dict(hashes)))


def archive_hashes(path: Path) -> dict[str, str]:
    """The hashes, by name, that `add_hashes` added to the archive at ``path``; `RunError` if damaged."""
    try:
        with zipfile.ZipFile(path) as parts:
            found: dict[str, str] = json.loads(parts.read(_HASHES_RECORD))
            return found
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise RunError(f"{path}: is damaged, or not a model of this version: {error}") from None


def read_run_spec(folder: Path) -> dict[str, Any]:
    """The content of ``spec.yaml`` in ``folder``, not compared with the manifest; raises as `load_run`."""
    return _read_spec(folder / SPEC_FILE)[1]


def read_ledger(folder: Path) -> dict[str, Any]:
    """The content of ``ledger.json`` in ``folder``, a JSON object; `RunError` if it is missing or damaged."""
    return read_json(folder / LEDGER_FILE)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; raises `RunError` if it is missing, damaged or no object."""
    try:
        value = parse_json(_read_text(path), str(path), most=MAX_OWN_BYTES)
    except SpecError as error:
        raise RunError(str(error)) from None
    if not isinstance(value, dict):
        raise RunError(f"{path}: must hold a JSON object")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> FileRecord:
    """Write ``value`` as JSON, completely or not at all, infinities as ``"inf"``; returns its record."""
    return write_text(
        path,
        json.dumps(_with_infinities_as_text(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    )


def write_text(path: Path, text: str) -> FileRecord:
    """Write a text file, completely or not at all (RunError); returns its record for the manifest."""
    with replacing(path) as file:
        file.write(text.encode())
    return FileRecord.of(file)


def _checked_manifest(folder: Path) -> Manifest:
    """The manifest of a folder whose listed files are all undamaged.

    Raises:
        RunError: a file is missing or damaged.
    """
    try:
        manifest = read_manifest(folder)
    except RunError as error:
        raise RunError(f"{error}; {repair_hint(folder)}") from None
    for name in (SPEC_FILE, PRIVACY_FILE, LEDGER_FILE):
        if name not in manifest.files:
            raise RunError(f"{folder / name}: is not written yet; the run was killed at its start: resume it")
    for found in manifest.damages(folder, _READ):
        raise RunError(f"{folder / found.name}: {found.what}; {repair_hint(folder)}")
    return manifest


def _read_run_metrics(folder: Path, manifest: Manifest) -> pd.DataFrame:
    """The metrics of a finished run from ``metrics.parquet``; of an unfinished one, up to its checkpoint."""
    if METRICS_FILE in manifest.files:
        metrics, hashes = read_metrics(folder / METRICS_FILE)
        check_same_run(folder / METRICS_FILE, hashes, manifest.spec)
        return metrics
    seal = read_seal(folder)
    if seal is None:
        raise RunError(f"{folder / CHECKPOINT_FILE}: is missing, so the progress of the run is not known")
    check_same_run(folder / CHECKPOINT_FILE, {SPEC_HASH: seal.fingerprint}, manifest.spec)
    return table_of(read_rounds(folder, seal.rounds))


def _check_model(folder: Path, manifest: Manifest) -> None:
    """Raise `RunError` if saved models belong to another run."""
    for name in (MODEL_FILE, GROUPS_FILE):
        if name in manifest.files:
            check_same_run(folder / name, archive_hashes(folder / name), manifest.spec)


def add_text(path: Path, text: str) -> None:
    """Write a text file; in a run folder under its lock and with an entry in its manifest.

    Raises:
        SpecError: another process is writing there.
    """
    folder = next((at for at in (path.parent, path.parent.parent) if has_run_files(at)), None)
    if folder is None:
        write_text(path, text)
        return
    with adding_files(folder) as files:
        files[path.relative_to(folder).as_posix()] = write_text(path, text)


def add_json(folder: Path, name: str, value: Mapping[str, Any]) -> None:
    """Write ``value`` as a JSON object to the file ``name`` of a run folder, and enter it in the manifest.

    Raises:
        SpecError: another process is writing there.
    """
    with adding_files(folder) as files:
        files[name] = write_json(folder / name, value)


@contextmanager
def adding_files(folder: Path) -> Iterator[dict[str, FileRecord]]:
    """Context that holds the lock of a run folder; it yields a dict for the records of new files, by name.

    At the end they are added to the manifest.

    Raises:
        SpecError: another process is writing there.
    """
    with only_writer(folder):
        files: dict[str, FileRecord] = {}
        yield files
        record_files(folder, files)


def _with_infinities_as_text(value: Any) -> Any:
    """``value`` with every infinity in it replaced by ``"inf"`` or ``"-inf"``, for JSON."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {str(key): _with_infinities_as_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_infinities_as_text(item) for item in value]
    return value


def _read_text(path: Path) -> str:
    """The text of a file of the run; `RunError` if it cannot be read."""
    if not path.exists():
        raise RunError(f"{path}: is missing; the run is not finished (resume it)")
    try:
        return read_text(path, most=MAX_OWN_BYTES)
    except SpecError as error:
        raise RunError(str(error)) from None


def _read_spec(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of ``spec.yaml``, and its content as plain values; `SpecError` or `RunError` if it is none."""
    text = _read_text(path)
    spec = plain(parse_yaml(text, str(path)), str(path))
    if not isinstance(spec, dict):
        raise SpecError(str(path), None, "must hold a mapping")
    for key in ("name", "protocol", "topology", "training"):
        if key not in spec:
            raise SpecError(f"{path}: {key}", None, "is missing")
    rounds = spec["training"].get("rounds") if isinstance(spec["training"], dict) else None
    if not isinstance(rounds, int):
        raise SpecError(f"{path}: training.rounds", rounds, "must be a whole number")
    return text, spec

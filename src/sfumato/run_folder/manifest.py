"""``manifest.json``: SHA-256 and size of the files in a folder, so that damage is detected.

    {"format": 1, "spec": fingerprint of the resolved spec, "finished": true,
     "files": {"model.pt": {"sha256": ..., "bytes": ...}, ...}, "sha256": of all the rest}

It is written last. For a finished run it lists all files of the run; for an unfinished one, the files that do
not change during the run (docs/run-folder.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sfumato.durable_files import HashedFile, hash_file, read_regular, reason, replacing, short_hash
from sfumato.errors import RunError, first_line

MANIFEST_FILE = "manifest.json"
_FORMAT = 1


@dataclass(frozen=True)
class FileRecord:
    """Hash and size of a file when it was written.

    Attributes:
        sha256: of its bytes.
        size: number of bytes; ``None`` if only the hash was recorded.
    """

    sha256: str
    size: int | None = None

    @classmethod
    def of(cls, file: HashedFile) -> FileRecord:
        """The record (SHA-256 and size in bytes) of a file that has just been written."""
        return cls(file.sha256, file.size)


@dataclass(frozen=True)
class Damage:
    """A file that is damaged or missing.

    Attributes:
        name: of the file in its folder.
        what: the damage, as the predicate of a sentence.
    """

    name: str
    what: str


@dataclass(frozen=True)
class Manifest:
    """The files that were written into a folder.

    Attributes:
        spec: fingerprint of the resolved spec of the run; empty without a run.
        finished: whether the run is finished and every file of it is listed.
        files: by name, relative to the folder.
    """

    spec: str = ""
    finished: bool = False
    files: Mapping[str, FileRecord] = field(default_factory=dict)

    def adding(self, files: Mapping[str, FileRecord]) -> Manifest:
        """A copy of the manifest with ``files`` (name to record) added or replaced."""
        return replace(self, files={**self.files, **files})

    def damages(self, folder: Path, names: Iterable[str] | None = None) -> list[Damage]:
        """The damages of the listed files in ``folder``, or of those among ``names``; [] without any."""
        wanted = self.files if names is None else [name for name in names if name in self.files]
        found = (damage(folder, name, self.files[name]) for name in wanted)
        return [one for one in found if one is not None]


def damage(folder: Path, name: str, written: FileRecord) -> Damage | None:
    """The damage of the file ``name`` against its record: missing, or another size or hash.

    ``None`` if it is undamaged.
    """
    try:
        sha256, size = hash_file(folder / name)
    except FileNotFoundError:
        return Damage(name, "is missing")
    except OSError as error:
        return Damage(name, f"cannot be read: {reason(error)}")
    if sha256 == written.sha256:
        return None
    now, then = f"SHA-256 {short_hash(sha256)}", short_hash(written.sha256)
    if written.size not in (None, size):
        now, then = f"{now} and {size:,} bytes", f"{then} and {written.size:,}"
    return Damage(name, f"has {now}; when it was written it had {then}")


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` with a hash of its own content, completely or not at all.

    Raises:
        RunError: it cannot be written.
    """
    body: dict[str, Any] = {
        "format": _FORMAT,
        "spec": manifest.spec,
        "finished": manifest.finished,
        "files": {
            name: {"sha256": record.sha256, "bytes": record.size}
            for name, record in sorted(manifest.files.items())
        },
    }
    with replacing(folder / MANIFEST_FILE) as file:
        file.write((json.dumps(body | {"sha256": _body_hash(body)}, indent=1) + "\n").encode())


def read_manifest(folder: Path) -> Manifest:
    """Read ``manifest.json`` in ``folder`` and check its hash of itself.

    Raises:
        RunError: it is missing or damaged.
    """
    path = folder / MANIFEST_FILE
    try:
        body = json.loads(read_regular(path))
        stated = body.pop("sha256")
        if stated != _body_hash(body):
            raise ValueError(
                f"it states SHA-256 {short_hash(str(stated))}, but has {short_hash(_body_hash(body))}"
            )
        if body["format"] != _FORMAT:
            raise ValueError(f"its format is {body['format']}; this version reads format {_FORMAT}")
        files = {
            name: FileRecord(record["sha256"], record["bytes"]) for name, record in body["files"].items()
        }
        return Manifest(body["spec"], body["finished"], files)
    except FileNotFoundError:
        raise RunError(f"{path}: is missing, so the files of this folder cannot be checked") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {reason(error)}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RunError(f"{path}: is damaged: {first_line(error)}") from None


def record_files(folder: Path, files: Mapping[str, FileRecord]) -> None:
    """Add ``files`` (name to record) to the manifest of ``folder``, or create it.

    The caller must hold the folder's lock. A damaged manifest is replaced by one that lists only ``files``.
    """
    try:
        manifest = read_manifest(folder)
    except RunError:
        manifest = Manifest()
    write_manifest(folder, manifest.adding(files))


def _body_hash(body: Mapping[str, Any]) -> str:
    """The SHA-256 of a manifest's body as canonical JSON."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

"""Reading the files of a run strictly, and comparing their hashes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from sfumato.verify.read import Json, shortened

MOST_BYTES = 1 << 28
"""Of a file that is parsed."""


class NoRunError(Exception):
    """The folder holds no run."""


class DamagedFileError(Exception):
    """A file of the run cannot be read."""


def read_mapping(folder: Path, name: str) -> Any:
    """The content of the JSON or YAML file ``name`` of a run folder, which must be a mapping.

    Raises:
        DamagedFileError: it is missing, cannot be read or has a key twice.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        path = folder / name
        if path.exists() and not path.is_file():
            raise DamagedFileError(f"{name}: is not a file")
        if path.stat().st_size > MOST_BYTES:
            raise DamagedFileError(f"{name}: is larger than {MOST_BYTES:,} bytes")
        content = path.read_bytes()
        if name.endswith(".json"):
            once = _without_duplicate_keys
            found = json.loads(content, object_pairs_hook=once, parse_constant=_refuse_constant)
        elif any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, loader)):
            raise DamagedFileError(f"{name}: has aliases, which could stand for any amount of text")
        else:
            _refuse_duplicate_yaml_keys(yaml.compose(content, loader))
            found = yaml.load(content, loader)
    except FileNotFoundError:
        said = f"{name}: is missing: the folder is not whole; copy it again, with all of its files"
        raise DamagedFileError(said) from None
    except OSError as error:
        raise DamagedFileError(f"{name}: cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise DamagedFileError(f"{name}: cannot be parsed: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(found, dict):
        raise DamagedFileError(f"{name}: must hold a mapping")
    return found


def _without_duplicate_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a JSON object as a dictionary.

    Raises:
        ValueError: a key is there twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shortened(twice)} is there twice")
    return found


def _refuse_constant(name: str) -> Any:
    """Raise a `ValueError` for ``name``, one of the JSON extensions NaN, Infinity and -Infinity."""
    raise ValueError(f"{name} is no JSON")


def _refuse_duplicate_yaml_keys(node: Any) -> None:
    """Raise `ValueError` if a mapping anywhere below a composed YAML node has a key twice."""
    left = [node]
    while left:
        node = left.pop()
        if isinstance(node, yaml.MappingNode):
            _without_duplicate_keys([(str(key.value), None) for key, _ in node.value])
            left += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            left += node.value


def json_hash(value: Any) -> str:
    """SHA-256, in hexadecimal, of a value as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def hash_problems(folder: Path, manifest: Json, spec: Json, documents: Mapping[str, Json]) -> Iterator[str]:
    """Yield a line for each SHA-256 in a run folder that is wrong or missing.

    Checked are the manifest's hash of itself, the hash of every file that it lists, that it lists spec.yaml
    and ``documents``, and that these and the manifest name the hash of this spec.

    Args:
        folder: of the run.
        manifest: content of manifest.json.
        spec: content of spec.yaml.
        documents: content of privacy.json and ledger.json by file name.
    """
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    if json_hash(body) != manifest.get("sha256"):
        yield "manifest.json: has another SHA-256 than it says of itself"
    files = manifest.get("files", {})
    for name in ("spec.yaml", *documents):
        if name not in files:
            yield f"manifest.json: does not list {name}"
    for name, record in sorted(files.items()):
        path = folder / name
        if not path.is_file():
            yield f"{name}: is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != record["sha256"]:
            yield f"{name}: has another SHA-256 than manifest.json lists"
    said = {key: value for key, value in spec.items() if key not in ("versions", "hashes")}
    said["hashes"] = {name: value for name, value in (spec.get("hashes") or {}).items() if name != "spec"}
    found = json_hash(said)
    for name, document in {"spec.yaml": spec, **documents}.items():
        hashes = document.get("hashes") or {}
        if hashes.get("spec") != found:
            yield f"{name}: hashes.spec: it is not the SHA-256 of spec.yaml"
        if hashes != (spec.get("hashes") or {}):
            yield f"{name}: hashes: they are not those in spec.yaml"
    if manifest.get("spec") != found:
        yield "manifest.json: spec: it is not the SHA-256 of spec.yaml"

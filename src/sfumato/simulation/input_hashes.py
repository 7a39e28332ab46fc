"""SHA-256 of the inputs that a run folder does not contain: data files and files of a user's code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sfumato.data.dataset import Dataset
from sfumato.data.features import Array, Features, in_memory, take_rows
from sfumato.data.locate import files_of
from sfumato.durable_files import hash_file, reason, short_hash
from sfumato.errors import DataError
from sfumato.spec.document import Spec
from sfumato.user_code import GIVEN, source_file

_MOST_COMPARED = 1_000  # rows of features that are taken when they are used

_DATA, _MODEL, _MECHANISM, _LOSS = "data.source", "model.kind", "privacy.mechanism", "training.loss"


def hash_inputs(spec: Spec, loaded: Dataset) -> dict[str, str]:
    """SHA-256, in hexadecimal, by input: of files, and of the arrays of ``loaded`` where data are in no file.

    Those are called ``data.source``. Synthetic data and built-in models follow from the spec and the
    versions, and have no hash.

    Raises:
        DataError: a file cannot be read.
        SpecError: the spec names a model given in Python, and none is given.
    """
    found = hash_files(spec)
    if spec.model.kind.startswith(GIVEN):
        from sfumato.learning.given_model import hash_given_model  # torch: accounts need none

        found[_MODEL] = hash_given_model(spec.model.kind)
    if spec.data.source != "synthetic" and not any(name.startswith(_DATA) for name in found):
        found[_DATA] = _hash_arrays(loaded)
    return found


def hash_files(spec: Spec) -> dict[str, str]:
    """SHA-256, in hexadecimal, by name, of files on this machine: data files, and files of a user's own code.

    The names are ``data.source/FILE``, and ``model.kind``, ``privacy.mechanism`` and ``training.loss`` for
    the source files that these keys name. Data that a factory returns are no file.

    Raises:
        DataError: a file cannot be read.
        SpecError: a source is of no known form.
    """
    found = {
        f"{_DATA}/{name}": _hash(path)
        for name, path in files_of(spec.data.source, spec.data.test_file).items()
    }
    mechanism = spec.privacy.mechanism
    code = {
        _MODEL: spec.model.kind,
        _MECHANISM: mechanism.kind if mechanism else "",
        _LOSS: spec.training.loss or "",
    }
    for place, named in code.items():
        if ":" in named and not named.startswith(GIVEN):
            source = source_file(named)
            if source is not None:
                found[place] = _hash(source)
    return found


def check_files(recorded: Mapping[str, str], spec: Spec, place: str) -> None:
    """Refuse files that differ from those that a run used; no data are loaded.

    Args:
        recorded: hashes that the run recorded.
        spec: of the run.
        place: the run, for the message.

    Raises:
        DataError: a file has changed or is missing.
    """
    of_files = {name: value for name, value in recorded.items() if name != _DATA}
    check_inputs(of_files, hash_files(spec), place)


def check_inputs(recorded: Mapping[str, str], found: Mapping[str, str], place: str) -> None:
    """Refuse inputs that differ from those that a run used.

    Args:
        recorded: hashes recorded by the run; other inputs are not checked.
        found: hashes of the present inputs.
        place: the run, for the message.

    Raises:
        DataError: an input has changed or is missing; the message has the recorded hash and the present one.
    """
    for name, then in recorded.items():
        if not name.startswith((_DATA, _MODEL, _MECHANISM, _LOSS)) or found.get(name) == then:
            continue
        now = f"has SHA-256 {short_hash(found[name])} now" if name in found else "does not exist any more"
        what_to_do = "restore it, or start a new run"
        raise DataError(f"{name}: {now}, but had {short_hash(then)} when {place} was started; {what_to_do}")


def _hash(path: Path) -> str:
    """The SHA-256 of a file; `DataError` if it cannot be read."""
    try:
        return hash_file(path)[0]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}") from None


def _compared(features: Features) -> Array:
    """Features by whose bytes data are known: of a source, rows that are spread over it."""
    if in_memory(features):
        return features
    count = features.shape[0]
    return take_rows(
        features, np.unique(np.linspace(0, count - 1, min(count, _MOST_COMPARED)).astype(np.int64))
    )


def _hash_arrays(data: Dataset) -> str:
    """The SHA-256 of all arrays of a data set, with their types and shapes."""
    found = hashlib.sha256()
    features = (_compared(data.train_features), _compared(data.test_features))
    loaded = (features[0], data.train_labels, features[1], data.test_labels)
    named = (data.train_groups, data.train_sites, data.train_targets, data.test_targets, data.train_persons)
    arrays = (*loaded, *named)
    for array in (part for part in arrays if part is not None):
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    if data.facts.site_counts is not None:
        found.update(repr(data.facts.site_counts).encode())
    return found.hexdigest()

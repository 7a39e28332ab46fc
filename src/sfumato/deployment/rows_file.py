"""The file of a device's rows: written for a rehearsal, read from where the device's consent says."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.data.dataset import Dataset
from sfumato.deployment.private_files import followed, require_private, write_private
from sfumato.errors import DataError

DATA = "data.npz"
"""Its name in a party's folder, where the consent names no other one."""

_UNREADABLE = (  # what NumPy, zipfile and zlib say of a damaged file
    *(OSError, EOFError, KeyError, IndexError, TypeError, ValueError, OverflowError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


def write_rows(folder: Path, data: Dataset) -> None:
    """Write the training rows of ``data`` to ``data.npz`` in a device's folder, for its owner alone.

    Raises:
        RunError: the file cannot be written.
    """
    write_private(folder / DATA, packed_rows(data))


def rows_path(folder: Path, named: str) -> Path:
    """The path of the file with a device's rows, after checks; the file is not read.

    Args:
        folder: the device's own.
        named: the path that the device's consent gives for it, absolute or relative to ``folder``.

    Raises:
        DataError: the path leads over a symbolic link to another place.
        RunError: users other than the owner can read the file, or it does not exist.
    """
    rows = folder.resolve() / named
    target, is_by_link = followed(rows)
    if is_by_link:
        raise DataError(f"{rows}: leads to {target}; name that path at data in consent.yaml if it is meant")
    require_private(rows)
    return target


def packed_rows(data: Dataset) -> bytes:
    """The training rows of a data set as the bytes of an ``.npz`` file, as `read_rows` reads it."""
    arrays: dict[str, Any] = {"features": data.train_features, "labels": data.train_labels}
    if data.train_targets is not None:
        arrays["targets"] = data.train_targets
    if data.train_persons is not None:
        arrays["persons"] = data.train_persons
    archive = io.BytesIO()
    np.savez(archive, outputs=np.array([data.facts.outputs]), **arrays)
    return archive.getvalue()


def read_rows(path: Path) -> Dataset:
    """Read a file of rows (``.npz``) as a data set without test rows.

    It holds ``features`` ``[N, ...]``, ``labels`` ``[N]``, the number of the model's ``outputs`` ``[1]`` and,
    where a model learns these and not the labels, ``targets`` ``[N, K]``. ``persons`` ``[N]``, whole numbers
    or text, say whose row each is; only where persons are the unit they have to be there.

    Raises:
        DataError: the file cannot be read, its arrays do not fit together, or values are not as the task
            needs.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            features, labels, outputs = archive["features"], archive["labels"], int(archive["outputs"][0])
            targets, persons = (
                archive[name] if name in archive.files else None for name in ("targets", "persons")
            )
    except _UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    if features.ndim < 1 or labels.ndim != 1:
        raise DataError(f"{path}: must have rows of features, and one label a row")
    if len(features) != len(labels) or (targets is not None and len(targets) != len(labels)):
        raise DataError(f"{path}: has {len(features):,} rows of features and {len(labels):,} labels")
    if persons is not None:
        if persons.shape != labels.shape or persons.dtype.kind not in "iuU":
            raise DataError(f"{path}: persons must be one whole number, or one text, a row")
        persons = np.unique(persons, return_inverse=True)[1].astype(np.int64)
    for name, found in (("features", features), ("targets", targets)):
        if found is not None and found.dtype.kind not in "fiu":
            raise DataError(f"{path}: {name} must be numbers; they are {found.dtype}")
    features = features.astype(np.float32 if features.dtype.kind == "f" else np.int64, copy=False)
    if targets is None:
        if not np.issubdtype(labels.dtype, np.integer):
            raise DataError(f"{path}: labels must be whole numbers; they are {labels.dtype}")
        labels = labels.astype(np.int64, copy=False)
        if len(labels) and not (labels.min() >= 0 and labels.max() < outputs):
            raise DataError(f"{path}: labels must be whole numbers from 0 to {outputs - 1}")
    facts = DatasetFacts(str(path), len(labels), 0, outputs, features.shape[1:])
    none = None if targets is None else targets[:0]
    return Dataset(
        facts,
        features,
        labels,
        features[:0],
        labels[:0],
        train_targets=targets,
        test_targets=none,
        train_persons=persons,
    )

"""``test_labels.json``: how many test examples have each label, by which an accuracy is judged.

    {"labels": {"benign": 24, "malignant": 22}, "persons": 16}

``persons``, how many they are of, is there where persons are protected and their rows are held out.
Nobody trains on test examples, and no ε is about them (docs/run-folder.md). Labels of training examples are
never counted here. Folders of earlier versions, and tasks without classes, have no such file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sfumato.errors import RunError
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import TEST_LABELS_FILE, read_json, write_json


def write_test_labels(folder: Path, counts: Mapping[str, int], persons: int | None = None) -> FileRecord:
    """Write how many test examples have each label; returns the file's record.

    ``counts``: by label, one or more labels. ``persons``: how many persons they are of; ``None`` where that
    is not known.
    """
    known = {} if persons is None else {"persons": persons}
    return write_json(folder / TEST_LABELS_FILE, {"labels": dict(counts)} | known)


def read_test_labels(folder: Path) -> dict[str, int] | None:
    """The number of test examples with each label of a run; ``None`` where its folder has no such file.

    Raises:
        RunError: the file is damaged.
    """
    path = folder / TEST_LABELS_FILE
    if not path.exists():
        return None
    counts = read_json(path).get("labels")
    if not isinstance(counts, dict) or not all(
        type(count) is int and count >= 0 for count in counts.values()
    ):
        raise RunError(f"{path}: must hold how many test examples have each label")
    if not any(counts.values()):
        raise RunError(f"{path}: there must be at least one test example")
    return counts


def read_test_persons(folder: Path) -> int | None:
    """How many persons the test examples of a run are of; ``None`` where its folder does not say.

    Raises:
        RunError: the file is damaged.
    """
    path = folder / TEST_LABELS_FILE
    persons = read_json(path).get("persons") if path.exists() else None
    if persons is not None and (type(persons) is not int or persons < 1):
        raise RunError(f"{path}: must hold how many persons the test examples are of")
    return persons

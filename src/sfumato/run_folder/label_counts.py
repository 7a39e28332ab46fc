"""``test_labels.json``: how many test examples have each label, by which an accuracy is judged.

    {"labels": {"benign": 24, "malignant": 22}}

Nobody trains on test examples, and no ε is about them (docs/run-folder.md). Labels of training examples are
never counted here. Folders of earlier versions, and tasks without classes, have no such file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sfumato.errors import RunError
from sfumato.run_folder.manifest import FileRecord
from sfumato.run_folder.reader import TEST_LABELS_FILE, read_json, write_json


def write_test_labels(folder: Path, counts: Mapping[str, int]) -> FileRecord:
    """Write how many test examples have each label (one or more labels); returns the file's record."""
    return write_json(folder / TEST_LABELS_FILE, {"labels": dict(counts)})


def read_test_labels(folder: Path) -> dict[str, int] | None:
    """Label to number of test examples with it, of a run; ``None`` where its folder has no such file.

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

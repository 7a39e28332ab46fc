"""CIFAR's binary files: read as published, and refused where they are damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato.data.dataset_sizes import describe_dataset
from sfumato.data.datasets import load_dataset
from sfumato.data.locate import files_of
from sfumato.errors import DataError

CIFAR10 = {f"data_batch_{i}.bin": 6 for i in range(1, 6)} | {"test_batch.bin": 4}
CIFAR100 = {"train.bin": 30, "test.bin": 4}


def written(folder: Path, files: dict[str, int], labels: int, classes: int) -> Path:
    """Files with so many rows each; pixel p of row r is (r + p) modulo 256, the label r modulo classes."""
    for name, rows in files.items():
        numbers = np.arange(rows)[:, None]
        pixels = (numbers + np.arange(3072)) % 256
        head = [numbers % 20] * (labels - 1) + [numbers % classes]
        (folder / name).write_bytes(np.hstack([*head, pixels]).astype(np.uint8).tobytes())
    return folder


def test_cifar_10_is_read_in_the_order_of_its_batches(tmp_path: Path) -> None:
    source = str(written(tmp_path, CIFAR10, 1, 10))
    data = load_dataset(source)
    assert data.train_features.shape == (30, 3, 32, 32)
    assert data.test_features.shape == (4, 3, 32, 32)
    assert data.train_labels.tolist() == [*range(6)] * 5
    pixels = np.asarray(data.train_features)[1] * 0.5 + 0.5  # as scaled without published constants
    assert pixels.reshape(-1) * 255 == pytest.approx((1 + np.arange(3072)) % 256, abs=1e-3)
    assert describe_dataset(source) == data.facts
    assert sorted(files_of(source)) == sorted(CIFAR10)


def test_cifar_100_has_its_fine_labels(tmp_path: Path) -> None:
    data = load_dataset(str(written(tmp_path, CIFAR100, 2, 100)))
    assert data.train_labels.tolist() == [*range(30)]


def test_cifar_10_is_found_by_its_name_and_must_have_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cifar10").mkdir()
    written(tmp_path / "cifar10", CIFAR10, 1, 10)
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path))
    with pytest.raises(DataError, match="this copy has train_examples 30, the published set 50000"):
        load_dataset("cifar10")


@pytest.mark.parametrize("missing", ["data_batch_3.bin", "test_batch.bin"])
def test_a_missing_file_is_named(missing: str, tmp_path: Path) -> None:
    written(tmp_path, CIFAR10, 1, 10)
    (tmp_path / missing).unlink()
    with pytest.raises(DataError, match=f"{missing} is missing"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-1], "must hold rows of 3,073 bytes"),
        (lambda raw: b"", "must hold rows of 3,073 bytes"),
        (lambda raw: b"\x0a" + raw[1:], "has a label 10; must be below 10"),
    ],
)
def test_a_damaged_file_is_refused(damage, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = written(tmp_path, CIFAR10, 1, 10) / "data_batch_2.bin"
    path.write_bytes(damage(path.read_bytes()))
    for read in (load_dataset, describe_dataset):
        with pytest.raises(DataError, match=message) as caught:
            read(str(tmp_path))
        assert "\n" not in str(caught.value)

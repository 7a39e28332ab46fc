"""Reads the binary files that CIFAR-10 and CIFAR-100 are published in, unpacked: rows of labels and pixels.

CIFAR-10 has ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``, a row of one byte of label
and 3,072 of pixels; CIFAR-100 has ``train.bin`` and ``test.bin``, with a coarse label before the fine one,
which is read. Pixels are red, green and blue in turn, each row by row. The releases for Python are pickles,
which may run code when they are read: they are not read here.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import DataError

CIFAR_SHAPE = (3, 32, 32)
"""Of an image."""
_PIXELS = 3 * 32 * 32
_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
# Files of both splits, number of labels before the pixels, and classes of the last of them.
_RELEASES: tuple[tuple[dict[str, tuple[str, ...]], int, int], ...] = (
    ({"train": _BATCHES, "test": ("test_batch.bin",)}, 1, 10),
    ({"train": ("train.bin",), "test": ("test.bin",)}, 2, 100),
)


def holds_cifar(folder: Path) -> bool:
    """Whether ``folder`` holds the first training file of CIFAR-10 or of CIFAR-100 in binary form."""
    return any((folder / files["train"][0]).is_file() for files, _, _ in _RELEASES)


def cifar_files(folder: Path) -> list[Path]:
    """Paths of the binary files of the CIFAR release in ``folder``: training files first, then test files.

    Raises:
        DataError: one is missing.
    """
    return [folder / name for split in ("train", "test") for name in _release(folder)[0][split]]


def read_cifar_split(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images ``[N, 3, 32, 32]`` in bytes and labels ``[N]`` of ``split``, ``"train"`` or ``"test"``.

    Raises:
        DataError: a file is missing or damaged.
    """
    rows = _rows(folder, split)
    return rows[:, -_PIXELS:].reshape(-1, *CIFAR_SHAPE), _labels(rows)


def read_cifar_labels(folder: Path, split: str) -> NDArray[np.int64]:
    """Labels ``[N]`` of ``split``, ``"train"`` or ``"test"``.

    Raises:
        DataError: a file is missing or damaged.
    """
    return _labels(_rows(folder, split))


def _labels(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The labels ``[N]`` of ``rows``: the byte before the pixels of each."""
    return rows[:, -_PIXELS - 1].astype(np.int64)


def _release(folder: Path) -> tuple[dict[str, tuple[str, ...]], int, int]:
    """Which release is in ``folder``, as three facts.

    Its file names by split, the number of label bytes of a row, and the number of classes.

    Raises:
        DataError: a file of it is missing.
    """
    found = next(one for one in _RELEASES if (folder / one[0]["train"][0]).is_file())
    missing = [name for names in found[0].values() for name in names if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder}: CIFAR's {', '.join(missing)} is missing; unpack the archive again")
    return found


def _rows(folder: Path, split: str) -> NDArray[np.uint8]:
    """All rows of a split: labels, then pixels, ``[N, labels + 3072]``.

    Raises:
        DataError: a file is missing, damaged or cannot be read.
    """
    files, labels, classes = _release(folder)
    parts = []
    for name in files[split]:
        path = folder / name
        try:
            raw = np.fromfile(path, np.uint8)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error}); unpack the archive again") from error
        width = labels + _PIXELS
        if not len(raw) or len(raw) % width:
            allowed = f"must hold rows of {width:,} bytes"
            raise DataError(f"{path}: its {len(raw):,} bytes {allowed}; unpack the archive again")
        rows = raw.reshape(-1, width)
        if (worst := int(rows[:, labels - 1].max())) >= classes:
            raise DataError(f"{path}: has a label {worst}; must be below {classes}")
        parts.append(rows)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)

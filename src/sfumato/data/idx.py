"""Reads the IDX files that MNIST and its kin are published in, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import DataError

# Two zero bytes, 0x08 for unsigned bytes, the number of dimensions.
_IMAGES_MAGIC = b"\x00\x00\x08\x03"
_LABELS_MAGIC = b"\x00\x00\x08\x01"

_MOST_BYTES = 4 * 2**30

# What reading a damaged file, gzipped or not, may raise.
_UNREADABLE = (OSError, EOFError, zlib.error)

# "t10k" in MNIST's own names, "test" in EMNIST's.
_NAMES = {"train": ("train",), "test": ("t10k", "test")}


def holds_idx(folder: Path) -> bool:
    """Whether ``folder`` holds files named like IDX training images."""
    return bool(_candidates(folder, "train", "images"))


def idx_files(folder: Path) -> list[Path]:
    """Paths of the four IDX files in ``folder``: training images and labels, then test images and labels.

    Raises:
        DataError: one is missing or ambiguous.
    """
    return [_find_file(folder, split, content) for split in _NAMES for content in ("images", "labels")]


def read_idx_split(folder: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, H, W] and labels [N] of ``split``, ``"train"`` or ``"test"``.

    Raises:
        DataError: a file is missing, ambiguous, truncated or not IDX, or the two disagree.
    """
    path = _find_file(folder, split, "images")
    images = _read_file(path, _IMAGES_MAGIC)
    labels = read_idx_labels(folder, split)
    if len(images) != len(labels):
        raise DataError(f"{path}: {len(images):,} images but {len(labels):,} labels")
    return images, labels


def read_idx_labels(folder: Path, split: str) -> NDArray[np.int64]:
    """Labels [N] of ``split``, ``"train"`` or ``"test"``, without reading the images.

    Raises:
        DataError: the file is missing, ambiguous, truncated or not IDX.
    """
    return _read_file(_find_file(folder, split, "labels"), _LABELS_MAGIC).astype(np.int64)


def read_idx_shape(folder: Path, split: str) -> tuple[int, ...]:
    """(N, H, W) of the images of ``split``, ``"train"`` or ``"test"``, from the header of the file alone.

    Raises:
        DataError: the file is missing, ambiguous or not IDX.
    """
    path = _find_file(folder, split, "images")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _shape_in_header(path, file.read(16), _IMAGES_MAGIC)
    except _UNREADABLE as error:
        raise _unreadable_file_error(path, error) from error


def _candidates(folder: Path, split: str, content: str) -> list[Path]:
    """Paths in ``folder`` that may be the IDX file of a split; ``content``: ``images`` or ``labels``."""
    if not folder.is_dir():
        return []
    digits = {"images": "idx3", "labels": "idx1"}[content]
    names = [
        f"*{name}-{content}[-.]{digits}-ubyte{suffix}" for name in _NAMES[split] for suffix in ("", ".gz")
    ]
    # a pipe or a device may never end
    return sorted(path for name in names for path in folder.glob(name) if path.is_file())


def _find_file(folder: Path, split: str, content: str) -> Path:
    """The IDX file of a split's ``content``, which is ``images`` or ``labels``.

    Raises:
        DataError: there is none, or there are several that are not the same file plain and as .gz.
    """
    found = _candidates(folder, split, content)
    if not found:
        raise DataError(f"{folder}: no IDX file of {split} {content} (as in MNIST, plain or .gz)")
    # A plain file beside its own .gz is one file kept twice.
    if len({path.name.removesuffix(".gz") for path in found}) > 1:
        raise DataError(
            f"{folder}: several IDX files of {split} {content}: {[p.name for p in found]}; keep one set"
        )
    return found[0]


def _read_file(path: Path, magic: bytes) -> NDArray[np.uint8]:
    """The array in an IDX file, plain or gzipped; ``magic``: the four bytes that it must begin with.

    Raises:
        DataError: it cannot be read, or is not as long as its header says.
    """
    header = 4 + 4 * magic[3]
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            shape = _shape_in_header(path, file.read(header), magic)
            # Python integers: a damaged header can name a product beyond 64 bits.
            promised = math.prod(shape)
            if promised > _MOST_BYTES:
                allowed = f"more than the {_MOST_BYTES // 2**30} GiB that are read; fetch it again"
                raise DataError(f"{path}: its header promises {promised:,} bytes of data, {allowed}")
            raw = file.read(promised + 1)  # no more, however far a damaged file would unpack
    except _UNREADABLE as error:
        raise _unreadable_file_error(path, error) from error
    if len(raw) != promised:
        held = f"{len(raw):,}" if len(raw) < promised else "more"
        raise DataError(
            f"{path}: its header promises {promised:,} bytes of data, it holds {held}; fetch it again"
        )
    return np.frombuffer(raw, np.uint8).reshape(shape)


def _shape_in_header(path: Path, raw: bytes, magic: bytes) -> tuple[int, ...]:
    """The shape that ``raw``, the first bytes of an IDX file, states; ``magic``: how it must begin.

    Raises:
        DataError: it begins otherwise, or is too short.
    """
    if raw[:4] != magic or len(raw) < 4 + 4 * magic[3]:
        raise DataError(f"{path}: not an IDX file of unsigned bytes in {magic[3]} dimensions; fetch it again")
    return tuple(int(n) for n in np.frombuffer(raw, ">u4", count=magic[3], offset=4))


def _unreadable_file_error(path: Path, error: Exception) -> DataError:
    """The error for an IDX file that cannot be read."""
    return DataError(f"{path}: cannot be read ({error}); fetch it again")

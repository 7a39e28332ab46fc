"""Folders of images: a sub-folder a class, alone or under ``train`` and ``test`` (extra ``images``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.rows import Rows
from sfumato.errors import DataError, MissingExtraError, first_line

SUFFIXES = (".png", ".jpg", ".jpeg")
_TRAIN, _TEST = "train", "test"
# How to see an image as greyscale or RGB bytes; other modes (16 bits, CMYK, ...) would lose something.
MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "RGBA": "RGB"}


def is_image_folder(folder: Path) -> bool:
    """Whether ``folder`` holds one sub-folder of images a class, itself or in ``train`` and ``test``."""
    return bool(_image_classes(_train_folder(folder)))


def image_files(folder: Path) -> list[Path]:
    """Paths of all images in an image folder: training images, then test images, class by class."""
    parts = [_train_folder(folder), *([folder / _TEST] if _has_test(folder) else [])]
    return [path for part in parts for _, paths in _image_classes(part) for path in paths]


def open_images(folder: Path) -> tuple[Rows, Rows | None]:
    """The training images of ``folder`` as rows, and the test images, or ``None`` if there are none.

    Of all images but the first only the names are read.

    Raises:
        MissingExtraError: Pillow is not installed.
        DataError: the first image cannot be read.
    """
    train = _image_rows(_train_folder(folder))
    return train, _image_rows(folder / _TEST) if _has_test(folder) else None


def _train_folder(folder: Path) -> Path:
    """The folder of the training images."""
    return folder / _TRAIN if _has_test(folder) else folder


def _has_test(folder: Path) -> bool:
    """Whether ``folder`` has both ``train`` and a test folder with images."""
    return bool(_image_classes(folder / _TRAIN) and _image_classes(folder / _TEST))


def _image_classes(folder: Path) -> list[tuple[str, list[Path]]]:
    """(name, paths of its images) of every class, in order of names."""
    if not folder.is_dir():
        return []
    found = []
    for child in sorted(path for path in folder.iterdir() if path.is_dir()):
        images = sorted(
            path for path in child.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file()
        )
        if images:
            found.append((child.name, images))
    return found


def _image_rows(folder: Path) -> Rows:
    """The images of a folder as rows; pixels are read when asked for."""
    classes = _image_classes(folder)
    paths = [path for _, images in classes for path in images]
    labels = np.repeat([name for name, _ in classes], [len(images) for _, images in classes])
    shape = _pixels(paths[0]).shape
    return Rows(str(folder), labels, shape, partial(_read_images, paths, shape), is_image=True)


def _read_images(
    paths: Sequence[Path], shape: tuple[int, ...], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The images at ``paths`` with the numbers ``rows``, ``[n, C, H, W]``, pixels from 0 to 1.

    ``shape``: that each must have, ``(C, H, W)``.

    Raises:
        DataError: an image cannot be read, or has another shape.
    """
    found = np.empty((len(rows), *shape), np.float32)
    for number, row in enumerate(rows.tolist()):
        pixels = _pixels(paths[row])
        if pixels.shape != shape:
            allowed = f"all images must have the size and colours of the first, {_size_as_text(shape)}"
            raise DataError(f"{paths[row]}: is {_size_as_text(pixels.shape)}; {allowed}")
        found[number] = pixels
    return found / np.float32(255)


def _pixels(path: Path) -> NDArray[np.uint8]:
    """One image as bytes, ``[C, H, W]``; `DataError` if it cannot be read."""
    library = _library(str(path))
    try:
        with library.open(path) as image:
            if image.mode in MODES:
                pixels = np.asarray(image.convert(MODES[image.mode]))
                return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
            mode = image.mode
    except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be read as an image ({first_line(error)})") from None
    raise DataError(f"{path}: an image of mode {mode}; convert it to greyscale (L) or RGB")


def _size_as_text(shape: tuple[int, ...]) -> str:
    """The width, height and colour of an image shape as text."""
    channels, height, width = shape
    return f"{width} x {height} in {'colour' if channels == 3 else 'grey'}"


def _library(feature: str) -> Any:
    """The module of Pillow; `MissingExtraError`, which names ``feature``, if it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(f"data.source: {feature}", "images") from error
    return Image

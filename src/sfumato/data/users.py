"""Rows of files that say what each user (a writer, a client) has: every user is a natural group.

Images in such files are numbers from 0 to 1, or bytes, which are divided by 255.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import Array, FeatureSource, RowNumbers
from sfumato.data.rows import Rows
from sfumato.errors import DataError


def rows_of_users(
    name: str,
    labels: Sequence[NDArray[Any]],
    shape: tuple[int, ...],
    read_features: Callable[[RowNumbers], NDArray[np.float32]],
    source: FeatureSource | None = None,
) -> Rows:
    """The rows of all users, one user after the other; each user is a natural group.

    Args:
        name: of the source, for messages.
        labels: labels of the rows of each user, whole numbers or text, one array a user; not all empty.
        shape: of the features of one row; of images ``[C, H, W]``.
        read_features: as of `Rows`.
        source: as of `Rows`.

    Raises:
        DataError: labels are numbers of some users and text of others.
    """
    if len({part.dtype.kind == "U" for part in labels if len(part)}) > 1:
        raise DataError(f"{name}: labels must be whole numbers of all users, or text of all")
    groups = np.repeat(np.arange(len(labels)), list(map(len, labels)))
    # Of users without rows NumPy does not know what their labels would be.
    every = np.concatenate([part for part in labels if len(part)])
    return Rows(name, every, shape, read_features, source, is_image=len(shape) == 3, groups=groups)


def labels_of_user(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Labels ``[n]`` of one user's rows, as int64 or text.

    Args:
        values: as stored; whole numbers may be written 1.0.
        name: of the file and the user, for messages.

    Raises:
        DataError: they are neither whole numbers nor text, or not one a row.
    """
    if values.dtype.kind == "f" and (values == np.floor(values)).all():
        values = values.astype(np.int64)  # of no rows, too
    if values.ndim != 1 or values.dtype.kind not in "iuU":
        what = f"{values.dtype} of shape {list(values.shape)}"
        raise DataError(f"{name}: labels must be whole numbers or text, one a row, not {what}")
    return values if values.dtype.kind == "U" else values.astype(np.int64)


def refuse_invalid_pixels(features: Array, name: str, rows: RowNumbers) -> None:
    """Refuse images with a value outside [0, 1].

    Args:
        features: images ``[n, C, H, W]``.
        name: of the source, for the message, which names the first such row.
        rows: number of each row in the source, from 0, ``[n]``.

    Raises:
        DataError: there is one.
    """
    pixels = features.reshape(len(features), -1)
    bad = np.flatnonzero(~((pixels >= 0) & (pixels <= 1)).all(axis=1))
    if len(bad):
        row = int(bad[0])
        value = pixels[row][~((pixels[row] >= 0) & (pixels[row] <= 1))][0]
        raise DataError(
            f"{name}: row {rows[row] + 1:,}: got {value:g}; pixels of images must be numbers from 0 to 1"
        )

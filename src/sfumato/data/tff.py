"""HDF5 files as TensorFlow Federated has its data sets in (extra ``hdf5``): a group a client.

``examples/CLIENT/pixels`` (or ``image``) holds a client's rows, [n, H, W], [n, H, W, C] or [n, F], and
``examples/CLIENT/label`` their labels. A folder has a file to train on and one whose name has ``test``.

EMNIST by writer, as published: ``fed_emnist_digitsonly_train.h5`` and ``fed_emnist_digitsonly_test.h5``
(3,383 writers, 341,873 and 40,832 images of digits), and ``fed_emnist_train.h5`` and ``fed_emnist_test.h5``
(3,400 writers, 671,585 and 77,483 images of 62 classes); paper is 1 and ink 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import (
    FLOAT32,
    LARGEST_IN_MEMORY,
    Array,
    RowNumbers,
    refuse_not_finite,
    take_rows,
)
from sfumato.data.locate import Columns
from sfumato.data.rows import Rows
from sfumato.data.users import labels_of_user, refuse_invalid_pixels, rows_of_users
from sfumato.errors import DataError, MissingExtraError, SpecError, first_line
from sfumato.spec.data import HDF5_SUFFIXES
from sfumato.spec.limits import MAX_DATA_VALUES

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_EXAMPLES, _IMAGES, _LABEL = "examples", ("pixels", "image"), "label"
_COLOURS = (1, 3)
_LAYOUT = "a file of TensorFlow Federated has a group 'examples' with a group for each client"


def is_hdf5(path: Path) -> bool:
    """Whether a file begins with the signature of HDF5."""
    with path.open("rb") as file:
        return file.read(len(_SIGNATURE)) == _SIGNATURE


def holds_hdf5(folder: Path) -> bool:
    """Whether ``folder`` holds a file that is HDF5 by the ending of its name and by its first bytes."""
    return any(is_hdf5(path) for path in _hdf5_files(folder))


def tff_files(folder: Path) -> tuple[Path, Path | None]:
    """The HDF5 file to train on, and the one to test on, whose name contains "test", or ``None``.

    Raises:
        DataError: not exactly one to train on, or several to test on.
    """
    found = _hdf5_files(folder)
    test = [path for path in found if "test" in path.stem.lower()]
    train = [path for path in found if path not in test]
    if len(train) != 1 or len(test) > 1:
        names = ", ".join(path.name for path in found)
        allowed = "must hold one HDF5 file to train on, and at most one whose name has 'test'"
        raise DataError(f"{folder}: {allowed}, not {names}; or name a file, and data.test_file")
    return train[0], test[0] if test else None


def open_tff(path: Path, columns: Columns, test_file: Path | None = None) -> tuple[Rows, Rows | None]:
    """The training rows of an HDF5 file of TensorFlow Federated, and the test rows or ``None``.

    Of the features only shapes and types are read now; large ones are read client by client when used.

    Args:
        path: of a file, or of a folder; see `tff_files`.
        columns: names of the images and labels, if the spec says them.
        test_file: a file of rows to test on, in place of that in the folder.

    Raises:
        MissingExtraError: h5py is not installed.
        SpecError: there are no such columns.
        DataError: a file cannot be read, or has another layout.
    """
    train, test = tff_files(path) if path.is_dir() else (path, None)
    test = test_file or test
    return _rows_of(train, columns), None if test is None else _rows_of(test, columns)


def _hdf5_files(folder: Path) -> list[Path]:
    """The files of a folder that are HDF5 by their names, in order."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in HDF5_SUFFIXES and p.is_file())


@dataclass(frozen=True, eq=False)
class ClientRows:
    """Rows of all clients of a file, read client by client when they are used.

    Attributes:
        path: of the file.
        clients: their names, in order.
        starts: [clients + 1], the number of each client's first row, and of all rows.
        column: name of the images or vectors of a client.
        stored: shape of one row in the file.
        shape: [N, ...]; of images [N, C, H, W].
    """

    path: Path
    clients: tuple[str, ...]
    starts: NDArray[np.int64]
    column: str
    stored: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = FLOAT32

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the features of ``rows`` to ``out``, read client by client; bytes are divided by 255.

        Arguments as of `FeatureSource.take`.

        Raises:
            DataError: the file has changed, a value is not finite, or a pixel is not in [0, 1].
        """
        cuts = np.searchsorted(rows, self.starts)
        with _opened(self.path) as file:
            for client in np.flatnonzero(np.diff(cuts)).tolist():
                part = slice(cuts[client], cuts[client + 1])
                found = file[_EXAMPLES][self.clients[client]][self.column][()]
                own = found[rows[part] - self.starts[client]]
                if own.shape[1:] != self.stored:
                    raise DataError(f"{self.path}: the file has changed while it was in use")
                if own.ndim == 4:
                    own = own.transpose(0, 3, 1, 2)
                out[part] = own.reshape(out[part].shape)
                if own.dtype == np.uint8:
                    out[part] /= np.float32(255)
        refuse_not_finite(out, str(self.path), rows, "")
        if len(self.shape) == 4:
            refuse_invalid_pixels(out, str(self.path), rows)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Context with the open file; what goes wrong in it is a `DataError`."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError(f"data.source: {path}", "hdf5") from error
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        raise DataError(f"{path}: cannot be read as an HDF5 file ({first_line(error)})") from None


def _rows_of(path: Path, columns: Columns) -> Rows:
    """The rows of all clients of a file, one client after the other; a client is a natural group.

    Args:
        path: of the HDF5 file.
        columns: names of the images and labels, if the spec says them.

    Raises:
        SpecError: there are no such columns.
        DataError: the file has another layout or no rows, or rows differ in shape.
    """
    with _opened(path) as file:
        examples = file.get(_EXAMPLES)
        if not hasattr(examples, "items"):
            has = ", ".join(map(str, file)) or "nothing"
            raise DataError(f"{path}: {_LAYOUT}; this one has {has}")
        clients = tuple(map(str, examples))
        if not clients:
            raise DataError(f"{path}: has no clients")
        names = _columns_of(path, clients[0], examples[clients[0]], columns)
        labels, shapes = [], set()
        for client in clients:
            shape, own = _client(f"{path}: client {client!r}", examples[client], *names)
            shapes.add(shape)
            labels.append(own)
    if len(shapes) > 1:
        raise DataError(f"{path}: rows of shape {min(shapes)} and {max(shapes)}; all must be alike")
    (stored,) = shapes
    if not any(map(len, labels)):
        raise DataError(f"{path}: has no rows")
    starts = np.concatenate([[0], np.cumsum(list(map(len, labels)))]).astype(np.int64)
    one = {2: (1, *stored), 3: (*stored[2:], *stored[:2])}.get(len(stored), stored)
    source = ClientRows(path, clients, starts, names[0], stored, (int(starts[-1]), *one))

    def read_features(rows: RowNumbers) -> NDArray[np.float32]:
        return np.asarray(take_rows(source, rows), np.float32)

    is_large = 4 * int(np.prod(source.shape)) > LARGEST_IN_MEMORY
    return rows_of_users(str(path), labels, one, read_features, source if is_large else None)


def _columns_of(path: Path, client: str, data: Any, columns: Columns) -> tuple[str, str]:
    """The names of a client's images (or vectors) and of its labels.

    Raises:
        SpecError: there are no such columns.
        DataError: the client has none at all.
    """
    if not hasattr(data, "items"):
        raise DataError(f"{path}: client {client!r} is no group; {_LAYOUT}")
    found, label = list(map(str, data)), columns.label or _LABEL
    if isinstance(label, tuple):
        raise SpecError("data.label_column", list(label), "must be one column of an HDF5 file")
    image = columns.image or next((name for name in _IMAGES if name in found), None)
    for option, name in (("image_column", image), ("label_column", label)):
        if name not in found:
            written = getattr(columns, option.removesuffix("_column"))
            raise SpecError(f"data.{option}", written, f"clients of {path} have {', '.join(found)}; name one")
    assert image is not None  # it is among those found
    return image, label


def _client(name: str, data: Any, image: str, label: str) -> tuple[tuple[int, ...], NDArray[Any]]:
    """The shape of one row of a client, and the labels of all of its rows.

    Args:
        name: of the client.
        data: of the client, open.
        image: name of its column of images or vectors.
        label: name of its column of labels.

    Raises:
        DataError: the client's columns are not there, or do not fit together.
    """
    for column in (image, label):
        if not hasattr(data, "items") or not hasattr(data.get(column), "dtype"):
            raise DataError(f"{name}: has no column {column!r}")
        if data[column].size > MAX_DATA_VALUES:  # which a small file may promise
            size = f"{data[column].size:,} values; at most {MAX_DATA_VALUES:,}"
            raise DataError(f"{name}: {column} has {size}")
    rows, labels = data[image], data[label][()]
    shape = tuple(rows.shape)
    is_image = len(shape) == 3 or (len(shape) == 4 and shape[3] in _COLOURS)
    if rows.dtype.kind not in "iufb" or not (is_image or len(shape) == 2) or 0 in shape[1:]:
        allowed = "numbers of the shape [n, H, W], [n, H, W, 1 or 3] or [n, F]"
        raise DataError(f"{name}: {image} must be {allowed}, not {rows.dtype} of {list(shape)}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind in "SO":
        labels = np.array([_text(one) for one in labels.tolist()], np.str_)
    checked = labels_of_user(labels, f"{name}: {label}")
    if len(checked) != shape[0]:
        raise DataError(f"{name}: {shape[0]:,} rows of {image}, but {len(checked):,} of {label}")
    return shape[1:], checked


def _text(value: Any) -> str:
    """``value``, a label that HDF5 keeps as bytes or text, as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

"""Arrays: ``.npz`` files, folders of ``.npy`` files, and tuples of arrays given in Python.

A folder of ``.npy`` files holds what an ``.npz`` file would, array by array. Its features are mapped, as are
those of a mapped array in Python; all others are read at once.

Vectors are [N, F], images [N, H, W] or [N, C, H, W]. Bytes are divided by 255; images in bytes are then
scaled as all images are. Other numbers are taken as they are.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import RowNumbers, take_rows
from sfumato.data.locate import Columns
from sfumato.data.mapped import ArrayRows, array_files, map_array
from sfumato.data.rows import Rows, target_columns
from sfumato.errors import DataError, SpecError, first_line
from sfumato.spec.limits import MAX_DATA_VALUES

_CHANNELS = (1, 3, 4)
_TEST = "test_"


@dataclass(frozen=True, eq=False)
class ArrayHeader:
    """What is known of an array before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def open_npz(path: Path, columns: Columns) -> tuple[Rows, Rows | None]:
    """The training rows of an ``.npz`` file, and its test rows if it has test features and labels.

    Labels, groups and sites are read at once; of the features only the header (shape and type) is read.

    Raises:
        SpecError: an array that the spec names is missing.
        DataError: the file is damaged, or an array has another shape or type than it should.
    """
    return _named_arrays(path, columns, _headers_of_arrays(path), partial(_read_array, path))


def open_npy_folder(folder: Path, columns: Columns) -> tuple[Rows, Rows | None]:
    """The training rows of a folder of ``.npy`` files, and its test rows, by the names in `open_npz`.

    Features stay on disk as mapped arrays; each row is read when it is used.

    Raises:
        SpecError: an array that the spec names is missing.
        DataError: a file is damaged, or an array has another shape or type than it should.
    """
    arrays = {name: map_array(path) for name, path in array_files(folder).items()}
    headers = {name: ArrayHeader(array.shape, array.dtype) for name, array in arrays.items()}
    mapped = columns.image or "features"

    def read(name: str) -> NDArray[Any]:
        """Features as they are mapped, all else in memory."""
        return arrays[name] if name in (mapped, _TEST + mapped) else np.array(arrays[name])

    return _named_arrays(folder, columns, headers, read)


def _named_arrays(
    path: Path,
    columns: Columns,
    headers: Mapping[str, ArrayHeader],
    read: Callable[[str], NDArray[Any]],
) -> tuple[Rows, Rows | None]:
    """The training rows in named arrays, and the test rows; ``None`` if no array has them.

    Args:
        path: of the archive or the folder; those in a folder are mapped, not read.
        columns: which array has what, by name.
        headers: shape and type by name of the array.
        read: gives the array of a name.

    Raises:
        SpecError: there is no array of a name that the spec gives.
    """
    features, label = columns.image or "features", _label_of(columns)
    site = columns.site or ("sites" if "sites" in headers else None)
    named = {"image": features, "label": label, "group": columns.group, "site": site}
    for what, name in named.items():
        if name is not None and name not in headers:
            allowed = f"{path} has no such array; it has {', '.join(headers)}"
            raise SpecError(f"data.{what}_column", name, allowed)
    has_test = f"{_TEST}{features}" in headers and (label is None or f"{_TEST}{label}" in headers)

    def part(prefix: str) -> Rows:
        def lines(name: str | None) -> NDArray[Any] | None:
            return None if name is None or prefix else read(name)

        return array_rows(
            f"{path}: {prefix}{features}",
            headers[prefix + features],
            partial(read, prefix + features),
            None if label is None else read(prefix + label),
            groups=lines(columns.group),
            sites=lines(site),
            columns=columns,
            is_mapped=path.is_dir(),
        )

    return part(""), part(_TEST) if has_test else None


def _label_of(columns: Columns) -> str | None:
    """The name of the array of labels; ``None`` where next tokens are predicted.

    Raises:
        SpecError: the spec names several.
    """
    if columns.task == "next-token":
        return None
    if isinstance(columns.label, tuple):
        allowed = "must be one array of an .npz file; it may hold several labels a row, [N, K]"
        raise SpecError("data.label_column", list(columns.label), allowed)
    return columns.label or "labels"


def array_rows(
    name: str,
    header: ArrayHeader,
    read: Callable[[], NDArray[Any]],
    labels: NDArray[Any] | None,
    *,
    groups: NDArray[Any] | None = None,
    sites: NDArray[Any] | None = None,
    columns: Columns,
    is_mapped: bool = False,
) -> Rows:
    """The rows of a data set whose features are one array.

    Args:
        name: of the array of features, for messages.
        header: shape and type of the features.
        read: returns the array of features, [N, F], [N, H, W] or [N, C, H, W]; called when rows are used.
        labels: [N], whole numbers or text; of other tasks numbers, [N] or [N, K]; ``None`` for next tokens.
        groups: natural group of each row [N].
        sites: name of the site of each row [N].
        columns: its ``task`` and ``vocabulary`` say what a model learns.
        is_mapped: whether ``read`` gives a mapped array, whose rows are read one by one when they are used.

    Raises:
        DataError: an array has another shape or type than it should.
    """
    shape = _shape_of_one(name, header)
    in_bytes = header.dtype == np.uint8 and columns.vocabulary is None
    rows = header.shape[0]
    targets = None
    if columns.task == "classification":
        assert labels is not None  # every reader has them
        classes = _checked_labels(name, _checked_column(name, "labels", labels, rows))
    else:
        classes = np.zeros(rows, np.int64)
        if labels is not None and columns.task != "next-token":
            targets = target_columns(columns, _checked_column(name, "labels", labels, rows, most=2), name)

    def source() -> ArrayRows:
        return ArrayRows(name, read(), (rows, *shape), in_bytes)

    def read_features(chosen: RowNumbers) -> NDArray[np.float32]:
        return np.asarray(take_rows(source(), chosen), np.float32)

    return Rows(
        name,
        classes,
        shape,
        read_features,
        source() if is_mapped else None,
        is_image=in_bytes and len(shape) == 3,
        groups=None if groups is None else _group_numbers(_checked_column(name, "groups", groups, rows)),
        sites=None if sites is None else _site_names(name, _checked_column(name, "sites", sites, rows)),
        targets=targets,
    )


def _shape_of_one(name: str, header: ArrayHeader) -> tuple[int, ...]:
    """The shape of one example of the array of features called ``name``.

    Raises:
        DataError: it has no examples, or another type than numbers.
    """
    shape, dtype = header.shape, header.dtype
    if dtype.kind not in "iufb":
        raise DataError(f"{name}: features must be numbers, not {dtype}")
    if len(shape) not in (2, 3, 4) or 0 in shape[1:]:
        raise DataError(
            f"{name}: features must have the shape [N, F], [N, H, W] or [N, C, H, W], not {shape}"
        )
    if len(shape) == 4 and shape[1] not in _CHANNELS and shape[3] in _CHANNELS:
        raise DataError(f"{name}: images must have their channels first, [N, C, H, W], not {shape}")
    return (1, *shape[1:]) if len(shape) == 3 else shape[1:]


def _checked_column(name: str, what: str, values: NDArray[Any], rows: int, *, most: int = 1) -> NDArray[Any]:
    """``values`` if they have one entry for each of ``rows``, and at most ``most`` axes; else `DataError`.

    ``name`` of the source and ``what`` the values are stand in the message.
    """
    if values.shape[:1] != (rows,) or values.ndim > most:
        raise DataError(
            f"{name}: {rows:,} rows of features, but {what} of shape {values.shape}, not [{rows}]"
        )
    return values


def _checked_labels(name: str, labels: NDArray[Any]) -> NDArray[Any]:
    """``labels`` ``[N]`` if they are whole numbers or text, truth values as numbers; else `DataError`.

    ``name`` of the source stands in the message.
    """
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.tolist()):
        return labels.astype(np.str_)
    if labels.dtype.kind not in "iuU":
        raise DataError(f"{name}: labels must be whole numbers or text, not {labels.dtype}")
    return labels


def _group_numbers(groups: NDArray[Any]) -> NDArray[np.int64]:
    """The place, from 0, of every row's group among the sorted different ones: int64 ``[n]``."""
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _site_names(name: str, sites: NDArray[Any]) -> NDArray[np.str_]:
    """The name of the site of every row as text ``[n]``, without white space around it.

    Raises:
        DataError: a row has no site, or ``sites`` are neither text nor whole numbers.
    """
    whole = sites.dtype.kind in "iuU"
    if not whole and not all(isinstance(site, str | int) for site in sites.tolist()):
        raise DataError(f"{name}: sites must be text or whole numbers, not {sites.dtype}")
    texts = np.array([str(site).strip() for site in sites.tolist()], dtype=np.str_)
    empty = np.flatnonzero(texts == "")
    if len(empty):
        raise DataError(f"{name}: row {empty[0] + 1:,}: every row needs a site")
    return texts


def _headers_of_arrays(path: Path) -> Mapping[str, ArrayHeader]:
    """Array name to shape and type, of all arrays in an ``.npz`` file.

    Raises:
        DataError: the file cannot be read, or an array holds Python objects or too many values.
    """
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    old = version == (1, 0)
                    header = (
                        np.lib.format.read_array_header_1_0(file)
                        if old
                        else np.lib.format.read_array_header_2_0(file)
                    )
                found[member.removesuffix(".npy")] = ArrayHeader(header[0], header[2])
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path}: cannot be read as an .npz file ({first_line(error)})") from None
    for name, array in found.items():
        values = int(np.prod(array.shape, dtype=object)) if array.shape else 1
        if values > MAX_DATA_VALUES:
            raise DataError(f"{path}: {name} has {values:,} values; at most {MAX_DATA_VALUES:,}")
        if array.dtype.hasobject:
            raise DataError(
                f"{path}: {name} holds Python objects, which would run code; save numbers or text"
            )
    return found


def _read_array(path: Path, name: str) -> NDArray[Any]:
    """The array ``name`` of an ``.npz`` file; `DataError` if it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[name])
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{path}: {name} cannot be read ({first_line(error)})") from None

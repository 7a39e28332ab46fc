"""JSON files as LEAF (Caldas et al. 2018) writes them: ``users``, ``num_samples``, and ``user_data``.

A user's data are ``x``, a list of numbers for each row, and ``y``, its labels. A folder has such files in
``train`` and in ``test``, or beside each other, and then a share of the rows is held out. Rows of 784 numbers
are FEMNIST's: images of 28 x 28 pixels, paper 1 and ink 0.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import RowNumbers, refuse_not_finite, row_numbers
from sfumato.data.rows import Rows
from sfumato.data.users import labels_of_user, refuse_invalid_pixels, rows_of_users
from sfumato.errors import DataError, first_line

_FEMNIST_PIXELS, _FEMNIST_SHAPE = 784, (1, 28, 28)
_BEGINS = re.compile(rb'\s*\{\s*"(users|num_samples|user_data|hierarchies)"\s*:')
_LOOKED_AT = 256
_PARTS = ("users", "num_samples", "user_data")
_LAYOUT = "a LEAF file is a JSON object with users, num_samples and user_data"


def is_leaf_file(path: Path) -> bool:
    """Whether a file begins with a JSON object whose first key is one of LEAF's."""
    with path.open("rb") as file:
        return _BEGINS.match(file.read(_LOOKED_AT)) is not None


def holds_leaf(folder: Path) -> bool:
    """Whether one of `leaf_files` of ``folder`` begins as files of LEAF do."""
    return any(is_leaf_file(path) for files in leaf_files(folder) for path in files)


def leaf_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The JSON files in ``folder`` to train on, and those to test on, each sorted.

    They lie in ``train/`` and ``test/``; where ``train/`` has none, all in ``folder`` itself are to train on.
    """
    train, test = (_json_files(folder / part) for part in ("train", "test"))
    return (train, test) if train else (_json_files(folder), [])


def open_leaf(path: Path, test_file: Path | None = None) -> tuple[Rows, Rows | None]:
    """The training rows of LEAF's JSON files, and the test rows (``None`` without test files).

    Args:
        path: of one file to train on, or of a folder; see `leaf_files`.
        test_file: a file of rows to test on, in place of those in the folder.

    Raises:
        DataError: a file is no LEAF file, or its parts do not fit together.
    """
    train, test = leaf_files(path) if path.is_dir() else ([path], [])
    if test_file is not None:
        test = [test_file]
    return _rows_of(path, train), _rows_of(test[0].parent, test) if test else None


def _json_files(folder: Path) -> list[Path]:
    """The JSON files in ``folder``, sorted; an empty list if it is no folder."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".json" and path.is_file())


def _rows_of(place: Path, paths: Sequence[Path]) -> Rows:
    """The rows of all users, one user after the other; a user is a natural group. All are read at once.

    Args:
        place: the folder, which names several files in messages.
        paths: LEAF files, at least one.

    Raises:
        DataError: a file is no LEAF file, a user is in two, or rows differ in length or are none.
    """
    name = str(paths[0] if len(paths) == 1 else place)
    where: dict[str, Path] = {}
    labels: list[NDArray[Any]] = []
    parts: list[NDArray[np.float32]] = []
    for path in paths:
        for user, (x, y) in _users_of(path).items():
            if user in where:
                raise DataError(f"{path}: user {user!r} is in {where[user].name}, too; must be in one file")
            where[user] = path
            parts.append(x)
            labels.append(y)
    widths = {x.shape[1] for x in parts if len(x)}
    if len(widths) > 1:
        raise DataError(f"{name}: rows of {min(widths)} and of {max(widths)} numbers; all must have as many")
    width = max(widths, default=0)
    shape = _FEMNIST_SHAPE if width == _FEMNIST_PIXELS else (width,)
    features = _put_together(parts, shape)
    if not len(features):
        raise DataError(f"{name}: has no rows")
    numbers = row_numbers(len(features))
    refuse_not_finite(features, name, numbers, "")
    if len(shape) == 3:
        refuse_invalid_pixels(features, name, numbers)

    def read_features(chosen: RowNumbers) -> NDArray[np.float32]:
        return features if len(chosen) == len(features) else features[chosen]

    return rows_of_users(name, labels, shape, read_features)


def _put_together(parts: list[NDArray[np.float32]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """All parts as one array ``[N, *shape]``; the list is emptied, since two copies may not fit in memory."""
    out = np.empty((sum(map(len, parts)), *shape), np.float32)
    end = len(out)
    while parts:
        part = parts.pop()
        out[end - len(part) : end] = part.reshape(len(part), *shape)
        end -= len(part)
    return out


def _users_of(path: Path) -> dict[str, tuple[NDArray[np.float32], NDArray[Any]]]:
    """Features ``[n, F]`` and labels ``[n]`` of each user, by name, in the order of ``users`` in the file.

    Raises:
        DataError: it is no LEAF file, or does not fit together.
    """
    try:
        with path.open("rb") as file:
            found = json.load(file, object_hook=_with_arrays)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({first_line(error)}); {_LAYOUT}") from None
    users, counts, data = _parts_of(path, found)
    users_and_counts = dict(zip(users, counts, strict=True))
    return {user: _rows_of_user(path, user, count, data[user]) for user, count in users_and_counts.items()}


def _with_arrays(made: dict[str, Any]) -> dict[str, Any]:
    """``made``, a JSON object with ``x`` and ``y``, with ``x`` as an array: lists take ten times the memory.

    What cannot become one stays as it is.
    """
    if made.keys() == {"x", "y"} and isinstance(made["x"], list):
        with contextlib.suppress(ValueError, TypeError, OverflowError), np.errstate(over="ignore"):
            made["x"] = np.array(made["x"], np.float32)
    return made


def _parts_of(path: Path, found: Any) -> tuple[list[str], list[int], Mapping[str, Any]]:
    """The users' names, their numbers of rows, and their data by name.

    ``found``: the content of the LEAF file at ``path``.

    Raises:
        DataError: one of them is missing, or they do not fit together.
    """
    if not isinstance(found, dict):
        raise DataError(f"{path}: holds no JSON object; {_LAYOUT}")
    missing = [part for part in _PARTS if part not in found]
    if missing:
        raise DataError(f"{path}: has no {', '.join(missing)}; {_LAYOUT}")
    users, counts, data = (found[part] for part in _PARTS)
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users):
        raise DataError(f"{path}: users must be a list of names")
    if len(set(users)) != len(users):
        twice = next(user for number, user in enumerate(users) if user in users[:number])
        raise DataError(f"{path}: users: {twice!r} is there twice")
    if not isinstance(counts, list) or len(counts) != len(users):
        raise DataError(f"{path}: num_samples must be a list of {len(users):,} numbers, one for each user")
    if not isinstance(data, dict):
        raise DataError(f"{path}: user_data must be an object with the data of each user")
    absent = next((user for user in users if user not in data), None)
    if absent is not None:
        raise DataError(f"{path}: user_data has nothing of user {absent!r}")
    if len(data) != len(users):
        other = next(user for user in data if user not in set(users))
        raise DataError(f"{path}: user_data has a user {other!r} that is not among users")
    return users, counts, data


def _rows_of_user(path: Path, user: str, count: Any, data: Any) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Features ``[n, F]`` and labels ``[n]`` of one user.

    Args:
        path: of the file, for messages.
        user: the name.
        count: how many rows ``num_samples`` says; any JSON value.
        data: of ``user_data``; any JSON value, lists of numbers as arrays.

    Raises:
        DataError: rows and labels are not there, have other shapes, or are not ``count``.
    """
    name = f"{path}: user {user!r}"
    if not isinstance(data, dict) or not {"x", "y"} <= data.keys():
        raise DataError(f"{name}: must have x, a list of numbers for each row, and y, its labels")
    x, y = data["x"], data["y"]
    if isinstance(x, np.ndarray) and x.shape == (0,):
        x = x.reshape(0, 0)
    if not isinstance(x, np.ndarray) or x.ndim != 2 or (len(x) and not x.shape[1]):
        allowed = "a list of numbers for each row, all of one length; texts and names of files are not read"
        raise DataError(f"{name}: x must be {allowed}")
    try:
        labels = labels_of_user(np.array(y), name)
    except ValueError:  # lists of several lengths
        raise DataError(f"{name}: y must be a list of labels") from None
    if len(labels) != len(x) or len(x) != count:
        sizes = f"{len(x):,} rows of x, {len(labels):,} of y, and num_samples says {count!r}"
        raise DataError(f"{name}: {sizes}; must be as many")
    return x, labels

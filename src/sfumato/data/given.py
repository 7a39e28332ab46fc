"""Data given in Python: a data frame, arrays, a torch data set, or a `Dataset`.

A spec stands for them with ``data.source: python:TYPE``; what was given is known within `given` only, and in
a run folder by the hash of its arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.locate import Columns
from sfumato.errors import DataError, SpecError
from sfumato.spec.document import Spec
from sfumato.user_code import GIVEN, call_user_code

if TYPE_CHECKING:
    from sfumato.data.rows import Rows

_DATA: ContextVar[Any] = ContextVar("data given in Python", default=None)
_ALLOWED = (
    "must be a pandas DataFrame, a tuple of arrays (features, labels) or (features, labels, sites), or "
    "(tokens,) with task: next-token, a torch Dataset of such pairs or triples, or a sfumato Dataset"
)


@contextmanager
def given(data: Any) -> Iterator[None]:
    """Context in which ``data.source: python:TYPE`` in a spec means ``data``; ``None`` changes nothing."""
    token = _DATA.set(data if data is not None else _DATA.get())
    try:
        yield
    finally:
        _DATA.reset(token)


def with_given(spec: Spec, data: Any) -> Spec:
    """``spec`` with the source ``python:TYPE``, TYPE the class of ``data``; unchanged for ``None``."""
    if data is None:
        return spec
    source = f"{GIVEN}{type(data).__name__}"
    section = {"source": source, "examples_per_device": None, "test_file": None}
    return spec.model_copy(update={"data": spec.data.model_copy(update=section)})


def given_data(source: str) -> Any:
    """The data that the context `given` holds; ``source`` is named in the message.

    Raises:
        DataError: there are none: the spec is of a run that was started from Python with data.
    """
    data = _DATA.get()
    if data is None:
        raise DataError(f"{source}: the data were given in Python; give them again: sf.run(spec, data=...)")
    return data


def given_rows(source: str, columns: Columns) -> Rows:
    """The rows of the data that `given` holds; features of arrays and frames are not read yet.

    ``source`` is named in messages; ``columns``: what holds what.

    Raises:
        SpecError: the data are none of the types allowed, or have no such column.
        DataError: no data are given, or their parts do not fit together.
    """
    from sfumato.data.table_files import open_data_frame
    from sfumato.data.tables import table_rows

    data = given_data(source)
    if type(data).__name__ == "DataFrame" and hasattr(data, "columns"):
        return table_rows(open_data_frame(data, source), columns)
    for what, value in vars(replace(columns, task="classification", vocabulary=None)).items():
        if value and what != "task":
            key = {"features": "feature_columns", "scale": "scale"}.get(what, f"{what}_column")
            raise SpecError(f"data.{key}", None, "goes with a data frame: other data have no named columns")
    if isinstance(data, tuple):
        return _of_arrays(source, data, columns)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, list | dict | str):
        return _of_arrays(source, _collected(source, data), columns)
    raise SpecError("data", type(data).__name__, _ALLOWED)


def _of_arrays(source: str, parts: tuple[Any, ...], columns: Columns) -> Rows:
    """The rows in ``parts``, a tuple of arrays: features, labels and perhaps sites.

    ``source`` is for messages.

    Raises:
        SpecError: they are not two or three, or the first is a single number.
        DataError: they do not fit together.
    """
    from sfumato.data.arrays import ArrayHeader, array_rows

    if columns.task == "next-token" and len(parts) == 1:
        parts = (*parts, np.zeros(len(parts[0]), np.int64))
    if len(parts) not in (2, 3):
        raise SpecError("data", f"a tuple of {len(parts)}", _ALLOWED)
    arrays = [part if isinstance(part, np.memmap) else np.asarray(part) for part in parts]
    features = arrays[0]
    if not features.ndim:
        raise SpecError("data", type(parts[0]).__name__, _ALLOWED)
    header = ArrayHeader(features.shape, features.dtype)
    sites = arrays[2] if len(arrays) == 3 else None
    labels, is_mapped = np.asarray(arrays[1]), isinstance(features, np.memmap)
    return array_rows(
        source, header, lambda: features, labels, sites=sites, columns=columns, is_mapped=is_mapped
    )


def _collected(source: str, data: Any) -> tuple[NDArray[Any], ...]:
    """The items of ``data``, a torch Dataset, read once, as one array for each part of an item.

    ``source`` is named in messages.

    Raises:
        SpecError: it cannot be read, has no items, or items have different lengths.
    """

    def collect() -> tuple[NDArray[Any], ...]:
        items = [tuple(data[number]) for number in range(len(data))]
        if len({len(item) for item in items}) != 1:
            raise ValueError("its items must be pairs (x, y) or triples (x, y, site), and there must be some")
        return tuple(np.stack([np.asarray(part) for part in column]) for column in zip(*items, strict=True))

    return call_user_code("data", source, "the data set cannot be read", collect)

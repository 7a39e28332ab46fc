"""Tables: CSV, Parquet and Arrow files, and data frames. A row is an example, a feature a column of numbers.

Numbers are taken as they are, or brought to a scale that the spec states. No mean, deviation or extreme is
computed from the rows: it would be a release that nobody accounts for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import LARGEST_IN_MEMORY, RowNumbers, refuse_not_finite, row_numbers
from sfumato.data.locate import Columns
from sfumato.data.row_groups import GroupedRows
from sfumato.data.rows import Rows, target_columns
from sfumato.data.table_files import ColumnTable
from sfumato.errors import DataError, SpecError, listed_names
from sfumato.spec.base import closest_hint

if TYPE_CHECKING:
    import pyarrow as pa

_LABELS = ("label", "labels")
_MOST_LABEL = 2.0**53  # whole numbers of a double are apart below it
_TESTED = {"true": True, "1": True, "test": True, "false": False, "0": False, "train": False}


def table_rows(table: ColumnTable, columns: Columns) -> Rows:
    """The rows of a table; labels, groups, sites and persons are read at once, features when they are used.

    Args:
        table: the table.
        columns: which columns hold what; without feature columns, all other columns of numbers are features.

    Raises:
        SpecError: a column is missing or holds something else.
        DataError: a row has no label, group, site or person.
    """
    labels = _label_names(table, columns)
    if not labels and columns.task != "next-token":
        allowed = f"is required: the column of labels; {table.name} has {listed_names(table.types)}"
        raise SpecError("data.label_column", None, allowed)
    named = [("label", label) for label in labels]
    single = {"group": columns.group, "site": columns.site, "person": columns.person, "test": columns.test}
    named += [(what, name) for what, name in single.items() if name is not None]
    for what, name in named:
        _refuse_missing(table, f"data.{what}_column", name)
    features = _features(table, columns, labels, {name for _, name in named})
    targets = None
    if columns.task in ("regression", "multi-label"):
        targets = target_columns(
            columns, _read_numbers(table, labels, columns.scale, what="label"), table.name
        )
    is_test = None if columns.test is None else _test_marks(table, columns.test)
    sites = None if columns.site is None else _text_column(table, columns.site, "site")
    persons = None if columns.person is None else _text_column(table, columns.person, "person")
    if columns.task == "classification":
        classes = _label_column(table, labels[0])
    else:
        classes = np.zeros(len(table.column(features[0])), np.int64)
    groups = None if columns.group is None else _text_column(table, columns.group, "group")
    source = None
    if table.groups is not None and 4 * len(classes) * len(features) > LARGEST_IN_MEMORY:
        convert = partial(_as_numbers, table.name, features, columns.scale)
        source = GroupedRows(table.groups, features, convert)
    return Rows(
        table.name,
        classes,
        (len(features),),
        partial(_read_numbers, table, features, columns.scale),
        source,
        groups=None if groups is None else np.unique(groups, return_inverse=True)[1].astype(np.int64),
        sites=sites,
        is_test=is_test,
        targets=targets,
        feature_columns=features,
        persons=persons,
    )


def _label_names(table: ColumnTable, columns: Columns) -> tuple[str, ...]:
    """The names of the label columns of a table; none where there is no label."""
    if columns.task == "next-token":
        return ()
    if columns.label is None:
        return tuple(name for name in _LABELS if name in table.types)[:1]
    return (columns.label,) if isinstance(columns.label, str) else columns.label


def _features(
    table: ColumnTable, columns: Columns, labels: Sequence[str], others: set[str]
) -> tuple[str, ...]:
    """The names of the feature columns: those of ``columns``, or all that hold numbers.

    Args:
        table: whose columns they are.
        columns: what the spec says of columns.
        labels: names of the label columns; they may be scaled in a regression.
        others: names of columns that are no features, the labels among them.

    Raises:
        SpecError: one is missing, holds something else, or is named twice.
    """
    place = "data.feature_columns"
    chosen = columns.features
    if chosen is None:
        chosen = tuple(
            name for name, kind in table.types.items() if name not in others and holds_numbers(kind)
        )
        if not chosen:
            hint = _decimal_comma(table, [name for name in table.types if name not in others])
            allowed = f"{table.name} has no other column of numbers: {listed_names(table.types)}{hint}"
            raise SpecError(place, None, allowed)
    for name in chosen:
        _refuse_missing(table, place, name)
        if name in others:
            raise SpecError(
                place, name, "must not be the column of labels, groups, sites, persons or test rows"
            )
        if not holds_numbers(table.types[name]):
            hint = _decimal_comma(table, [name]) or _first_text(table, name)
            raise SpecError(place, name, f"must be a column of numbers; it holds {table.types[name]}{hint}")
    if len(set(chosen)) < len(chosen):
        raise SpecError(place, list(chosen), "must name each column once")
    scaled = (*chosen, *(labels if columns.task == "regression" else ()))
    for name, _, _ in columns.scale:
        if name not in scaled:
            allowed = f"is no feature{closest_hint(name, chosen)}; the features are {listed_names(chosen)}"
            raise SpecError("data.scale", name, allowed)
    return chosen


def _decimal_comma(table: ColumnTable, names: Sequence[str]) -> str:
    """The hint to set ``data.decimal`` if the first row has a decimal comma in one of ``names``; else ""."""
    for name in names if table.decimal == "." else ():
        text = str(table.texts(name).slice(0, 1).to_pylist()[0] or "")
        if is_decimal_comma(text):
            return f"; {text!r} in column {name!r} has a decimal comma: write data.decimal: ','"
    return ""


def _first_text(table: ColumnTable, name: str) -> str:
    """Where column ``name``, which holds mostly numbers, has its first text, and what to do; else empty."""
    texts = [str(text or "") for text in table.texts(name).to_pylist()]
    found = first_text_among_numbers(texts, table.decimal or ".")
    if found is None:
        return ""
    return f", as row {found[0] + 1:,} has {found[1]!r}: {WITHOUT_TEXTS}"


WITHOUT_TEXTS = "leave such rows out of the file, or write a number that everybody knows without the rows"
"""What to do about texts in a column of numbers."""


WITHOUT_DATES = (
    "write a number in its place, such as days since a day that everybody knows, or an age in years"
)
"""What to do about dates in a column to learn from."""

_UNIT_BEHIND = re.compile(r"[+-]?\d+(?:[.,]\d+)?\s*[a-zA-Zµ%°/²³]+")
_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[T ].*)?")


def has_unit_behind(text: str) -> bool:
    """Whether ``text`` is a number with a unit behind it, as "12 mg" or "80%"."""
    return _UNIT_BEHIND.fullmatch(text.strip()) is not None


def is_date(text: str) -> bool:
    """Whether ``text`` is written as a date, as "31.12.2024" or "2024-12-31"."""
    return _DATE.fullmatch(text.strip()) is not None


def first_text_among_numbers(texts: Sequence[str], decimal: str) -> tuple[int, str] | None:
    """Row (from 0) and content of the first text in a column of which more than half are numbers.

    ``None`` if all are numbers or empty, or half or more are texts. ``decimal``: the sign before decimals.
    """
    others = [row for row, text in enumerate(texts) if not is_number(text.strip().replace(decimal, "."))]
    if not 0 < 2 * len(others) < len(texts):
        return None
    return others[0], texts[others[0]].strip()


def is_number(text: str) -> bool:
    """Whether ``text`` is a number, empty, or a usual mark of a missing one ("NA", "null", ...)."""
    try:
        float(text or "nan")
    except ValueError:
        return text in ("NA", "N/A", "null", "NULL", "#N/A")
    return True


def is_decimal_comma(text: str) -> bool:
    """Whether ``text`` is digits, a comma and digits, as "3,14"."""
    return re.fullmatch(r"[+-]?\d+,\d+", text.strip()) is not None


def _read_numbers(
    table: ColumnTable,
    names: Sequence[str],
    scale: Sequence[tuple[str, float, float]],
    rows: RowNumbers | None = None,
    *,
    what: str = "feature",
) -> NDArray[np.float32]:
    """Numeric columns as an array float32 ``[rows, names]``.

    Args:
        table: to read from.
        names: of the columns, one or more.
        scale: (column, low, high) of columns that are mapped from this range to [0, 1].
        rows: which rows; all by default.
        what: kind of the columns, for errors.

    Raises:
        DataError: a value is missing, no number or not finite.
    """
    read = table.read(dict.fromkeys(names, "numbers"))
    rows = row_numbers(len(read[names[0]])) if rows is None else rows
    return _as_numbers(table.name, names, scale, read, rows, chosen=rows, what=what)


def _as_numbers(
    table: str,
    names: Sequence[str],
    scale: Sequence[tuple[str, float, float]],
    read: Mapping[str, pa.ChunkedArray],
    rows: RowNumbers,
    *,
    chosen: RowNumbers | slice = slice(None),
    what: str = "feature",
) -> NDArray[np.float32]:
    """The ``chosen`` values of the columns ``names`` of ``read``, on their scale, float32 ``[rows, names]``.

    ``rows`` are their numbers in the table; ``table``: its name; ``what``: a value is called in messages.
    """
    bounds = {name: (low, high) for name, low, high in scale}
    features = np.empty((len(rows), len(names)), np.float32)
    for number, name in enumerate(names):
        values = np.asarray(read[name].to_numpy(), np.float64)[chosen]
        low, high = bounds.get(name, (0.0, 1.0))
        with np.errstate(over="ignore"):
            features[:, number] = (values - low) / (high - low)
        refuse_not_finite(features[:, number], table, rows, f", column {name!r}", kind=what)
    return features


def _label_column(table: ColumnTable, name: str) -> NDArray[Any]:
    """The values ``[N]`` of the label column ``name``, whole numbers or text.

    Raises:
        DataError: a value is missing or of another type.
    """
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    _refuse_gap(table, column, name, "label")
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    if pa.types.is_integer(kind):
        return np.asarray(column.to_numpy())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_column(table, name, "label")
    if not pa.types.is_floating(kind):
        holds = f"dates; {WITHOUT_DATES}" if pa.types.is_temporal(kind) else str(kind)
        raise SpecError("data.label_column", name, f"must hold whole numbers or text; it holds {holds}")
    numbers = np.asarray(column.to_numpy(), np.float64)
    other = np.flatnonzero(~(np.abs(numbers) < _MOST_LABEL) | (numbers != np.floor(numbers)))
    if len(other):
        row, value = other[0], numbers[other[0]]
        allowed = f"must hold whole numbers (1 or 1.0) or text; row {row + 1:,} has {value:g}"
        raise SpecError(
            "data.label_column", name, f"{allowed}; a number to predict needs data.task: regression"
        )
    return numbers.astype(np.int64)


def _text_column(table: ColumnTable, name: str, what: str) -> NDArray[np.str_]:
    """The texts ``[N]`` of column ``name``; ``what``: every row needs there, for the message.

    Raises:
        DataError: one is empty or missing.
    """
    column = table.texts(name)
    _refuse_gap(table, column, name, what)
    texts = np.array([text.strip() for text in column.to_pylist()], dtype=np.str_)
    empty = np.flatnonzero(texts == "")
    if len(empty):
        raise DataError(f"{table.name}: row {empty[0] + 1:,}, column {name!r}: every row needs a {what}")
    return texts


def _test_marks(table: ColumnTable, name: str) -> NDArray[np.bool_]:
    """Whether each row is a test row ``[N]``, from ``name``, a column of truth values.

    Raises:
        DataError: a value is not one of true, false, 1, 0, test and train, in any case.
    """
    texts = _text_column(table, name, "test set or not").tolist()
    for row, text in enumerate(texts):
        if text.lower() not in _TESTED:
            allowed = "must be true or false, 1 or 0, or test or train"
            raise DataError(f"{table.name}: row {row + 1:,}, column {name!r}: got {text!r}; {allowed}")
    return np.array([_TESTED[text.lower()] for text in texts], dtype=np.bool_)


def _refuse_gap(table: ColumnTable, column: pa.ChunkedArray, name: str, what: str) -> None:
    """Raise `DataError` if ``column``, called ``name``, has a missing value.

    ``what``: every row needs there, for the message.
    """
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise DataError(f"{table.name}: row {row + 1:,}, column {name!r}: every row needs a {what}")


def _refuse_missing(table: ColumnTable, place: str, name: str) -> None:
    """Raise `SpecError` if the table has no column ``name``; ``place``: the key that names it."""
    if name not in table.types:
        near = closest_hint(name, table.types)
        raise SpecError(
            place, name, f"{table.name} has no such column{near}; it has {listed_names(table.types)}"
        )


def holds_numbers(kind: pa.DataType) -> bool:
    """Whether values of the column type ``kind`` are whole, floating or decimal numbers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

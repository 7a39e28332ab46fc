"""Files of tables, and data frames: their columns, of which each is read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from sfumato.data.row_groups import RowGroups
from sfumato.errors import DataError, first_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

WantedColumns: TypeAlias = Mapping[str, Literal["text", "numbers", "stored"]]
"""Columns to read, by name: their values converted to text, converted to 64-bit numbers, or as stored."""


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """A table whose columns are known and whose values are not read yet.

    Attributes:
        name: for messages.
        types: of every column, in order; of a CSV file as its first rows have them.
        read: reads the wanted columns of all rows.
        groups: of rows, where they can be read one by one.
        decimal: of a CSV file, the sign before the decimals of a number.
    """

    name: str
    types: Mapping[str, pa.DataType]
    read: Callable[[WantedColumns], Mapping[str, pa.ChunkedArray]]
    groups: RowGroups | None = None
    decimal: str | None = None

    def column(self, name: str) -> pa.ChunkedArray:
        """The values of column ``name`` as stored, one for each row."""
        return self.read({name: "stored"})[name]

    def texts(self, name: str) -> pa.ChunkedArray:
        """The values of column ``name``, converted to text; a missing value stays missing."""
        return self.read({name: "text"})[name]


def open_parquet(path: Path) -> ColumnTable:
    """The table in a Parquet file, whose row groups can be read one by one; values are not read yet.

    Raises:
        DataError: it cannot be read, or two columns have one name.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        about = parquet.read_metadata(path)
        schema = about.schema.to_arrow_schema()
    except (OSError, pa.ArrowException) as error:
        raise unreadable_table(path, error) from None

    def read(wanted: WantedColumns) -> Mapping[str, pa.ChunkedArray]:
        try:
            return _converted_columns(parquet.read_table(path, columns=list(wanted)), wanted)
        except (OSError, pa.ArrowException) as error:
            raise unreadable_table(path, error) from None

    def read_group(group: int, names: Sequence[str]) -> Mapping[str, pa.ChunkedArray]:
        try:
            with parquet.ParquetFile(path, metadata=about) as file:
                found = file.read_row_group(group, columns=list(names))
            return _converted_columns(found, dict.fromkeys(names, "numbers"))
        except (OSError, pa.ArrowException) as error:
            raise unreadable_table(path, error) from None

    sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    return ColumnTable(str(path), column_types(path, schema), read, RowGroups(sizes, read_group))


def open_arrow(path: Path) -> ColumnTable:
    """The table in an Arrow file, file or stream format; it is mapped, so values are read when used.

    Raises:
        DataError: it cannot be read, or two columns have one name.
    """
    import pyarrow as pa

    try:
        table = _mapped_table(path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_table(path, error) from None
    batches = table.to_batches()

    def read_group(group: int, names: Sequence[str]) -> Mapping[str, pa.ChunkedArray]:
        one = pa.Table.from_batches([batches[group]])
        try:
            return _converted_columns(one, dict.fromkeys(names, "numbers"))
        except pa.ArrowException as error:
            raise unreadable_table(path, error) from None

    def read(wanted: WantedColumns) -> Mapping[str, pa.ChunkedArray]:
        try:
            return _converted_columns(table, wanted)
        except pa.ArrowException as error:
            raise unreadable_table(path, error) from None

    groups = RowGroups([len(batch) for batch in batches], read_group)
    return ColumnTable(str(path), column_types(path, table.schema), read, groups)


def _mapped_table(path: Path) -> pa.Table:
    """The table in an Arrow file of either format."""
    import pyarrow as pa

    try:
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


def open_data_frame(frame: pd.DataFrame, name: str) -> ColumnTable:
    """The table of a pandas data frame, without its index; ``name`` is used in messages.

    Raises:
        DataError: its columns mix types, or have no names or the same name.
    """
    import pyarrow as pa

    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name}: cannot be read as a table ({first_line(error)})") from None
    return ColumnTable(name, column_types(name, table.schema), partial(_converted_columns, table))


def _converted_columns(table: pa.Table, wanted: WantedColumns) -> Mapping[str, pa.ChunkedArray]:
    """The wanted columns of ``table`` by name, without dictionary encoding, in the form wanted of each."""
    import pyarrow as pa

    found = {}
    for name, form in wanted.items():
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if form != "stored":
            column = column.cast(pa.string() if form == "text" else pa.float64())
        found[name] = column
    return found


def column_types(name: object, schema: pa.Schema) -> Mapping[str, pa.DataType]:
    """Name to type of every column; ``name`` of the table is for the message.

    Raises:
        DataError: two columns have one name.
    """
    twice = [column for column in schema.names if schema.names.count(column) > 1]
    if twice:
        number = twice[0].strip().replace(".", "", 1).lstrip("-").isdecimal()
        missing = ": is the line of headings missing?" if number else ""
        raise DataError(
            f"{name}: two columns are called {twice[0]!r}; every column needs a name of its own, in "
            f"the first line of a CSV file{missing}"
        )
    return {field.name: field.type for field in schema}


def unreadable_table(path: Path, error: BaseException) -> DataError:
    """The error for a file that cannot be read as a table."""
    return DataError(f"{path}: cannot be read as a table ({first_line(error)})")

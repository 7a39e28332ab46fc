"""Rows of a user's own file, folder or object, whatever its form.

Readers of other forms than tables are imported when they are called: `account` opens tables only
(`sfumato.data.repeats`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sfumato.data.csv_files import open_csv
from sfumato.data.forms import Form
from sfumato.data.locate import CsvFormat, DataLocation, Request, existing_file
from sfumato.data.rows import Rows
from sfumato.data.table_files import ColumnTable, open_arrow, open_parquet
from sfumato.data.tables import table_rows


def own_rows(place: DataLocation, request: Request) -> tuple[Rows, Rows | None]:
    """Training rows of a user's own file, folder or Python object, and test rows if the source has some.

    Raises:
        SpecError: a column is missing or holds something else.
        DataError: the source cannot be read, or a row lacks what every row needs.
        MissingExtraError: the source needs an extra that is not installed.
    """
    columns, named = request.columns, request.test_file
    test_file = None if named is None else existing_file(named, "data.test_file")
    table = open_table(place.folder, place.form, request.csv)
    if table is not None:
        tested = None if test_file is None else open_table(test_file, place.form, request.csv)
        ungrouped = replace(columns, group=None, site=None)
        return table_rows(table, columns), None if tested is None else table_rows(tested, ungrouped)
    match place.form:
        case "npz":
            from sfumato.data.arrays import open_npz

            return open_npz(place.folder, columns)
        case "npy":
            from sfumato.data.arrays import open_npy_folder

            return open_npy_folder(place.folder, columns)
        case "images":
            from sfumato.data.image_folder import open_images

            return open_images(place.folder)
        case "leaf":
            from sfumato.data.leaf import open_leaf

            return open_leaf(place.folder, test_file)
        case "tff":
            from sfumato.data.tff import open_tff

            return open_tff(place.folder, columns, test_file)
        case _:
            from sfumato.data.given import given_rows

            return given_rows(place.source, columns), None


def open_table(path: Path, form: Form, written: CsvFormat) -> ColumnTable | None:
    """The table in a CSV, Parquet or Arrow file; ``None`` for any other ``form``, and nothing is read.

    Args:
        path: of the file.
        form: of the data.
        written: how numbers and columns are separated, if it is a CSV file.

    Raises:
        SpecError: the headings of a CSV file have another separator.
        DataError: the file cannot be read.
    """
    match form:
        case "csv":
            return open_csv(path, written)
        case "parquet":
            return open_parquet(path)
        case "arrow":
            return open_arrow(path)
        case _:
            return None

"""Rows of a user's own file, folder or object, whatever its form."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sfumato.data.arrays import open_npy_folder, open_npz
from sfumato.data.csv_files import open_csv
from sfumato.data.given import given_rows
from sfumato.data.image_folder import open_images
from sfumato.data.leaf import open_leaf
from sfumato.data.locate import DataLocation, Request, existing_file
from sfumato.data.rows import Rows
from sfumato.data.table_files import OPEN_TABLE
from sfumato.data.tables import table_rows
from sfumato.data.tff import open_tff


def own_rows(place: DataLocation, request: Request) -> tuple[Rows, Rows | None]:
    """Rows of a user's own file, folder or object: to train on, and to test on where these are apart.

    Raises:
        SpecError: a column is missing or holds something else.
        DataError: the source cannot be read, or a row lacks what every row needs.
    """
    columns, named = request.columns, request.test_file
    test_file = None if named is None else existing_file(named, "data.test_file")
    match place.form:
        case "csv" | "parquet" | "arrow":
            is_csv = place.form == "csv"
            opened = partial(open_csv, written=request.csv) if is_csv else OPEN_TABLE[place.form]
            tested = None
            if test_file is not None:
                tested = table_rows(opened(test_file), replace(columns, group=None, site=None))
            return table_rows(opened(place.folder), columns), tested
        case "npz":
            return open_npz(place.folder, columns)
        case "npy":
            return open_npy_folder(place.folder, columns)
        case "images":
            return open_images(place.folder)
        case "leaf":
            return open_leaf(place.folder, test_file)
        case "tff":
            return open_tff(place.folder, columns, test_file)
        case _:
            return given_rows(place.source, columns), None

"""A user's own data, opened: files, folders of images, and what was given in Python."""

from __future__ import annotations

from dataclasses import replace

from sfumato.data.arrays import open_npz
from sfumato.data.columns import Columns
from sfumato.data.given import given_rows
from sfumato.data.image_folder import open_images
from sfumato.data.locate import DataLocation, existing_file
from sfumato.data.rows import Rows
from sfumato.data.tables import OPEN_TABLE, table_rows


def open_own(place: DataLocation, columns: Columns, test_file: str | None) -> tuple[Rows, Rows | None]:
    """Rows of a user's own file, folder or object: to train on, and to test on where these are apart.

    Raises:
        SpecError: a column is missing or holds something else.
        DataError: the source cannot be read, or a row lacks what every row needs.
    """
    match place.form:
        case "csv" | "parquet":
            tested = None
            if test_file is not None:
                path = existing_file(test_file, "data.test_file")
                tested = table_rows(OPEN_TABLE[place.form](path), replace(columns, group=None, site=None))
            return table_rows(OPEN_TABLE[place.form](place.folder), columns), tested
        case "npz":
            return open_npz(place.folder, columns)
        case "images":
            return open_images(place.folder)
        case _:
            return given_rows(place.source, columns), None

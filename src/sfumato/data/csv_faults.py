"""What is wrong with a file that cannot be read as CSV: its line, what is there, and what to do about it."""

from __future__ import annotations

import csv
from pathlib import Path

from sfumato.data.table_files import unreadable_table
from sfumato.errors import DataError, first_line

_OTHER_FILES = {
    b"PK\x03\x04": "is a spreadsheet or another packed file and no CSV file: open it, and save it as CSV",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet and no CSV file: open it, and save it as CSV",
    b"PAR1": "is a Parquet file: its name must end in .parquet",
    b"\x1f\x8b": "is packed (gzip): unpack it first",
    b"\xff\xfe": "is text in UTF-16: save it as UTF-8",
    b"\xfe\xff": "is text in UTF-16: save it as UTF-8",
}
"""First bytes of files that are often called .csv and are none."""
_MOST_SHOWN = 40


def refuse_other_files(path: Path) -> None:
    """Refuse a file of another kind, by its first bytes, and a first line that is a note to a spreadsheet.

    Raises:
        DataError: it is no CSV file in UTF-8, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
            line = start + file.readline() if start.lower().startswith(b"sep=") else b""
    except OSError as error:
        raise unreadable_table(path, error) from None
    for sign, said in _OTHER_FILES.items():
        if start.startswith(sign):
            raise DataError(f"{path}: {said}")
    if line:
        noted = line.splitlines()[0].decode("utf-8", "replace")
        raise DataError(
            f"{path}: line 1 is {noted!r}, a note to spreadsheets: take it out; line 1 must name the columns"
        )


def unreadable_csv(path: Path, separator: str, error: BaseException) -> DataError:
    """The error for a CSV file that cannot be read, with the line at fault where that can be told.

    Args:
        path: of the file.
        separator: between columns.
        error: of the reader.
    """
    try:
        fault = _not_utf8(path) or _uneven_row(path, separator)
    except (OSError, csv.Error):
        fault = None
    return DataError(f"{path}: {fault}") if fault else unreadable_table(path, error)


def _not_utf8(path: Path) -> str | None:
    """The first line that is not in UTF-8, and what to do about it; ``None`` if all are."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                start = max(error.start - 10, 0)
                near = line[start : error.start + 10].decode("latin-1").strip()
                return (
                    f"line {number:,} is not text in UTF-8 (near {near!r}, if it is Latin-1): save the file "
                    "as UTF-8 (in Excel: CSV UTF-8), or convert it: iconv -f latin1 -t utf-8 OLD > NEW"
                )
    return None


def _uneven_row(path: Path, separator: str) -> str | None:
    """A sentence on the first row with more or fewer columns than the headings; ``None`` if none has.

    ``separator``: between columns.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        headings = next(rows, [])
        for row in rows:
            if not row or len(row) == len(headings):
                continue
            if len(headings) == 1:
                title = first_line(ValueError(headings[0]))[:_MOST_SHOWN]
                return (
                    f"line 1 must name the columns; it holds one, {title!r}, and line {rows.line_num:,} has "
                    f"{len(row)}: take out lines above the headings"
                )
            return (
                f"line {rows.line_num:,} has {len(row)} columns, and the headings have {len(headings)}: a "
                "text with the separator in it must stand in double quotes"
            )
    return None

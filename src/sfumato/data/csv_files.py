"""CSV files: what is between columns and before decimals, and hints where it is something else.

Nothing is guessed in a run: what is not a comma and a point stands in the spec, where everybody can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.data.csv_faults import refuse_other_files, unreadable_csv
from sfumato.data.locate import CsvFormat
from sfumato.data.table_files import ColumnTable, WantedColumns, column_types, unreadable_table
from sfumato.data.tables import is_decimal_comma, is_number
from sfumato.errors import DataError, SpecError

if TYPE_CHECKING:
    import pyarrow as pa

SIGNS_IN_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What separators are called in messages."""


def open_csv(path: Path, written: CsvFormat) -> ColumnTable:
    """The table in a CSV file in UTF-8 with a line of headings; only the types of columns are read.

    ``written``: the separator and the decimal sign.

    Raises:
        SpecError: the headings have another separator.
        DataError: the file cannot be read, or two columns have one name.
    """
    import pyarrow as pa
    from pyarrow import csv

    refuse_other_files(path)
    headings, first_row = _first_lines(path)
    _refuse_other_separator(path, headings, written)
    parsed = csv.ParseOptions(delimiter=written.separator)
    try:
        converted = csv.ConvertOptions(decimal_point=written.decimal)
        with csv.open_csv(path, parse_options=parsed, convert_options=converted) as reader:
            types = column_types(path, reader.schema)
    except (OSError, pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise unreadable_csv(path, written.separator, error) from None
    if not first_row:
        raise DataError(f"{path}: has a line of headings and no rows")

    def read(wanted: WantedColumns) -> Mapping[str, pa.ChunkedArray]:
        types = {
            name: pa.string() if form == "text" else pa.float64()
            for name, form in wanted.items()
            if form != "stored"
        }
        options = csv.ConvertOptions(
            include_columns=list(wanted), column_types=types, decimal_point=written.decimal
        )
        try:
            table = csv.read_csv(path, parse_options=parsed, convert_options=options)
        except (OSError, pa.ArrowInvalid) as error:
            for name in (name for name, form in wanted.items() if form == "numbers"):
                _refuse_text(path, name, read({name: "text"})[name].to_pylist(), written)
            raise unreadable_csv(path, written.separator, error) from None
        return {name: table[name] for name in wanted}

    return ColumnTable(str(path), types, read, decimal=written.decimal)


def format_of(path: Path) -> CsvFormat:
    """Guess the separator and the decimal sign of a CSV file from its headings and its first row.

    The separator is the most frequent of comma, semicolon and tab in the headings; a comma if there is none.
    The decimal sign is a comma where a value of the first row looks so and the separator is another, else a
    point.

    Raises:
        DataError: the file cannot be read.
    """
    headings, first = _first_lines(path)
    separator = (
        max(SIGNS_IN_WORDS, key=headings.count) if any(sign in headings for sign in SIGNS_IN_WORDS) else ","
    )
    comma = separator != "," and any(is_decimal_comma(value) for value in first.split(separator))
    return CsvFormat(separator, "," if comma else ".")


def _refuse_other_separator(path: Path, headings: str, written: CsvFormat) -> None:
    """Check that the headings are not one column by this separator but several by another.

    Args:
        path: of the file.
        headings: its first line.
        written: the format that the spec says it has.

    Raises:
        SpecError: ``data.separator`` must be another.
        DataError: they are separated by |, which is not supported.
    """
    if written.separator in headings:
        return
    for sign, name in SIGNS_IN_WORDS.items():
        if sign in headings:
            right = f"write data.separator: {CsvFormat(sign).separator_name!r}"
            allowed = f"the headings of {path} have {name} between them: {right}"
            raise SpecError("data.separator", written.separator_name, allowed)
    if "|" in headings:
        allowed = "save the file with commas, semicolons or tabs between them"
        raise DataError(f"{path}: the headings have | between columns: {allowed}")


def _first_lines(path: Path) -> tuple[str, str]:
    """The line of headings and the first row of a file, without line ends; "" for a line that is missing.

    Raises:
        DataError: the file cannot be opened.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            headings = file.readline().rstrip("\r\n")
            return headings, next((line.rstrip("\r\n") for line in file if line.strip()), "")
    except OSError as error:
        raise unreadable_table(path, error) from None


def _refuse_text(path: Path, name: str, texts: list[Any], written: CsvFormat) -> None:
    """Refuse the first of ``texts``, the values of column ``name``, that is no number.

    Raises:
        DataError: there is one.
    """
    for row, text in enumerate(texts):
        if not is_number(text.replace(written.decimal, ".")):
            said = f"{path}: row {row + 1:,}, column {name!r}: got {text!r}; every feature must be a number"
            other = "," if written.decimal == "." else "."
            swapped = written.decimal not in text and is_number(text.replace(other, "."))
            hint = (
                f"; numbers with {other!r} before the decimals need data.decimal: {other!r}"
                if swapped
                else ""
            )
            raise DataError(said + hint)

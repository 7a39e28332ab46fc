"""Files that cannot be read as CSV: the message says the line, what stands there, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfumato.data.csv_files import open_csv
from sfumato.data.locate import CsvFormat
from sfumato.data.tables import first_text_among_numbers
from sfumato.errors import DataError

TABLE = "klinik,alter\nköln,40\nulm,50\n"
FAULTS: dict[str, tuple[bytes, str]] = {
    "Latin-1 in the headings": (
        "gerät,alter\n1,2\n".encode("latin-1"), r"line 1 is not text in UTF-8 \(near 'gerät.*iconv -f latin1"
    ),
    "a spreadsheet": (b"PK\x03\x04" + bytes(99), "is a spreadsheet .* save it as CSV"),
    "an old spreadsheet": (b"\xd0\xcf\x11\xe0" + bytes(99), "is a spreadsheet .* save it as CSV"),
    "Parquet": (b"PAR1" + bytes(99), r"its name must end in \.parquet"),
    "UTF-16": (TABLE.encode("utf-16"), "is text in UTF-16: save it as UTF-8"),
    "a note to spreadsheets": (b"sep=;\n" + TABLE.encode(), "line 1 is 'sep=;'.*take it out"),
    "headings alone": (b"klinik,alter\n", "has a line of headings and no rows"),
    "headings and empty lines": (b"klinik,alter\n\n\n", "has a line of headings and no rows"),
    "bars": (b"klinik|alter\nulm|50\n", r"headings have \| between columns: save the file with commas"),
    "a title": (b"Export 2024\n" + TABLE.encode(), "holds one, 'Export 2024', and line 2 has 2: take out"),
    "a row too long": (TABLE.encode() + b"bonn,1,2\n", "line 4 has 3 columns, and the headings have 2"),
    "a row too short": (TABLE.encode() + b"bonn\n", "line 4 has 1 columns, and the headings have 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_a_file_is_said(name: str, tmp_path: Path) -> None:
    written, message = FAULTS[name]
    (tmp_path / "rows.csv").write_bytes(written)
    with pytest.raises(DataError, match=message):
        open_csv(tmp_path / "rows.csv", CsvFormat())


def test_a_row_in_latin_1_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(TABLE.encode("latin-1"))
    with pytest.raises(DataError, match=r"line 2 is not text in UTF-8 \(near 'köln,40'"):
        open_csv(tmp_path / "rows.csv", CsvFormat()).texts("klinik")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_utf_8_is_read_with_and_without_a_mark(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(TABLE.encode(encoding))
    table = open_csv(tmp_path / "rows.csv", CsvFormat())
    assert table.texts("klinik").to_pylist() == ["köln", "ulm"]


def test_the_first_text_among_numbers() -> None:
    assert first_text_among_numbers(["1", "2.5", "n.a.", "", "?"], ".") == (2, "n.a.")
    assert first_text_among_numbers(["1,5", "2,5", " - "], ",") == (2, "-")
    assert first_text_among_numbers(["1,5", "2,5", "-"], ".") is None  # all are texts
    assert first_text_among_numbers(["1", "a", "b"], ".") is None  # most are texts
    assert first_text_among_numbers(["1", "NA", ""], ".") is None  # no texts, but marks of missing values

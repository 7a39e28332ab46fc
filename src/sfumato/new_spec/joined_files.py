"""Several CSV files, one a site, put together into one table with a column that says whose a row is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sfumato.arguments import Argument
from sfumato.errors import DataError, SpecError
from sfumato.new_spec.table import OwnTable, open_own_table

SITE = "site"
"""The column that is added; a row has the name of its file there, without the ending."""
_CSV = Argument("csv")
_BY_HAND = "put the files together into one, with a column that says whose a row is, and give"


@contextmanager
def joined_sites(files: Sequence[Path], name: str | None) -> Iterator[OwnTable]:
    """The table of several files, one a site, written to ``NAME.csv`` in the working directory.

    Each file keeps the order of its rows; columns have the order of the first file. A file that is there
    already with the same content is kept. One that was written is deleted if the block raises an error: it
    can be tried again.

    Args:
        files: at least two, as `open_own_table` reads them.
        name: of the spec; ``None``: ``sites``.

    Raises:
        SpecError: a file is no CSV file, is written or headed otherwise than the first, has a column ``site``
            already or the name of another; or ``NAME.csv`` holds something else.
        DataError: a file cannot be read, or a row has not as many values as there are columns.
    """
    tables = [open_own_table(path) for path in files]
    first = tables[0]
    for table in tables:
        _check_alike(table, first)
    text = _joined(tables, _site_names(files))
    path = joined_path(name)
    there = path.exists()
    if there and path.read_bytes() != text.encode("utf-8"):
        raise SpecError(_CSV, str(path), "exists, and the files would be put together there: give a NAME")
    try:
        if not there:
            path.touch(mode=0o600)  # private rows
            path.write_text(text, encoding="utf-8")
        yield open_own_table(path)
    except BaseException:
        if not there:
            path.unlink(missing_ok=True)
        raise


def joined_path(name: str | None) -> Path:
    """Where the table of several files is written. ``name``: of the spec; ``None``: ``sites``."""
    return Path(f"{(name or 'sites').removesuffix('.yaml')}.csv")


def _check_alike(table: OwnTable, first: OwnTable) -> None:
    """Refuse a file that cannot be put below the first.

    Raises:
        SpecError: it is no CSV file, or has other columns, another separator or a column `SITE`.
    """
    if table.csv is None:
        raise SpecError(_CSV, str(table.path), f"is no CSV file: {_BY_HAND} {Argument('site')}")
    if SITE in table.names:
        raise SpecError(
            _CSV, str(table.path), f"has a column {SITE} already: {_BY_HAND} {Argument('site', SITE)}"
        )
    if first.csv is not None and table.csv.separator != first.csv.separator:
        what = f"has another separator than {first.path}: save all files in the same way"
        raise SpecError(_CSV, str(table.path), what)
    for one, other in ((table, first), (first, table)):
        odd = [column for column in one.names if column not in other.names]
        if odd:
            raise SpecError(
                _CSV, str(table.path),
                f"must have the columns of {first.path}; only {one.path} has {', '.join(odd[:5])}",
            )  # fmt: skip


def _site_names(files: Sequence[Path]) -> list[str]:
    """The name of each site: that of its file, or of its folder where files are called alike.

    Raises:
        SpecError: both kinds of names repeat.
    """
    for names in ([path.stem for path in files], [path.resolve().parent.name for path in files]):
        if len(set(names)) == len(names):
            return names
    raise SpecError(_CSV, ", ".join(map(str, files)), "must be called differently: a name is that of a site")


def _joined(tables: Sequence[OwnTable], sites: Sequence[str]) -> str:
    """The text of one CSV file with the rows of all tables and the column `SITE`.

    Raises:
        DataError: a file is not UTF-8, or a row has more or fewer values than there are headings.
    """
    assert tables[0].csv is not None
    separator, columns = tables[0].csv.separator, tables[0].names
    text = io.StringIO()
    written = csv.writer(text, delimiter=separator, lineterminator="\n")
    written.writerow([*columns, SITE])
    for table, site in zip(tables, sites, strict=True):
        try:
            written.writerows([*row, site] for row in _rows(table, columns, separator))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{table.path}: cannot be read as a CSV file in UTF-8: {error}") from None
    return text.getvalue()


def _rows(table: OwnTable, columns: Sequence[str], separator: str) -> Iterator[list[str]]:
    """Yield the rows of a file, with their values in the order of ``columns``.

    Raises:
        DataError: a row has more or fewer values than there are headings.
    """
    with table.path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        headings = next(rows)
        order = [headings.index(column) for column in columns]
        for number, row in enumerate(filter(None, rows), 2):
            if len(row) != len(headings):
                what = f"row {number} has {len(row)} values, the headings {len(headings)}"
                raise DataError(f"{table.path}: {what}")
            yield [row[at] for at in order]

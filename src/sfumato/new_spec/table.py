"""A table of one's own: which columns it has, and which sites and labels stand in them.

Of features only the types are looked at: no range, mean or extreme is ever computed from rows. (What is
before decimals in a CSV file is told by its first row.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sfumato.arguments import Argument
from sfumato.data.csv_files import format_of, open_csv
from sfumato.data.locate import CsvFormat, existing_file
from sfumato.data.repeats import looks_like_id
from sfumato.data.sites import sort_sites
from sfumato.data.table_files import ColumnTable, open_parquet
from sfumato.data.tables import (
    first_text_among_numbers,
    holds_numbers,
    is_date,
    is_decimal_comma,
    is_number,
)
from sfumato.errors import DataError, SpecError, listed_names
from sfumato.spec.base import closest_hint

_MOST_CATEGORIES = 20
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class _Values:
    """What a column holds.

    Attributes:
        rows: how many have a value.
        different: how many different values there are.
        missing: how many rows have none.
        first_missing: the first of those, from 0; -1 for none.
        first: the first value as text; "" for none.
    """

    rows: int
    different: int
    missing: int
    first_missing: int
    first: str


_NO_VALUES = _Values(0, 0, 0, -1, "")


@dataclass(frozen=True)
class OwnTable:
    """A file of rows.

    Attributes:
        path: of the file.
        columns: its columns, not read yet.
        csv: how it is written, if it is a CSV file.
    """

    path: Path
    columns: ColumnTable
    csv: CsvFormat | None = None
    _found: dict[tuple[str, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """A tuple of the names of all columns, in order."""
        return tuple(self.columns.types)

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """A tuple of the names of the columns of numbers."""
        return tuple(name for name, kind in self.columns.types.items() if holds_numbers(kind))

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """A tuple of the names of the columns of whole numbers."""
        import pyarrow as pa

        return tuple(name for name, kind in self.columns.types.items() if pa.types.is_integer(kind))

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """A tuple of the names of the columns of text."""
        import pyarrow as pa

        kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_dictionary)
        return tuple(name for name, kind in self.columns.types.items() if any(is_(kind) for is_ in kinds))

    def categories(self) -> tuple[str, ...]:
        """A tuple of the names of the columns of text with 2 to 20 different values."""
        return tuple(name for name in self.texts if 2 <= self.rows_and_values(name)[1] <= _MOST_CATEGORIES)

    def ids(self, *others: str | None) -> tuple[str, ...]:
        """A tuple of the columns with names like those of identifiers, without ``others``.

        ``others``: columns of labels and the like.
        """
        return tuple(name for name in self.names if looks_like_id(name) and name not in others)

    def column_called(self, name: str, argument: Argument) -> str:
        """``name`` itself, if there is such a column.

        Raises:
            SpecError: there is none; about ``argument``, with the most similar name.
        """
        if name not in self.names:
            raise SpecError(
                argument, name, f"is no column{closest_hint(name, self.names)}; there are {self.listed}"
            )
        return name

    @property
    def listed(self) -> str:
        """The names of the columns, joined by commas; of many only the first, and how many there are."""
        return listed_names(self.names)

    def sites(self, name: str) -> Mapping[str, int]:
        """The number of rows of each site, by its name in column ``name``, sorted (`sort_sites`).

        Rows without a site are left out.
        """

        def find() -> Mapping[str, int]:
            found = Counter(self._texts(name))
            return {site: found[site] for site in sort_sites(found) if site}

        return self._once(("sites", name), find)

    def persons(self, name: str, site: str | None) -> Mapping[str, int]:
        """The number of different persons at each site, by name of the site, in order.

        Args:
            name: column of persons.
            site: column of sites, whose rows without a site are left out; ``None``: all persons are counted
                under "".
        """

        def find() -> Mapping[str, int]:
            who = self._texts(name)
            where = [""] * len(who) if site is None else self._texts(site)
            found = Counter(place for place, _ in set(zip(where, who, strict=True)))
            return {place: found[place] for place in sort_sites(found) if place or site is None}

        return self._once(("persons", name) if site is None else ("persons", name, site), find)

    def rows_and_values(self, name: str) -> tuple[int, int]:
        """How many rows have a value in column ``name`` (of numbers or text), and how many values differ.

        (0, 0) for other columns.
        """
        found = self._values.get(name, _NO_VALUES)
        return found.rows, found.different

    def missing(self, name: str) -> tuple[int, int]:
        """How many rows have no value in column ``name`` (numbers or text), and the first of them, from 0.

        The first is -1 where none is missing; (0, -1) for other columns.
        """
        found = self._values.get(name, _NO_VALUES)
        return found.missing, found.first_missing

    def has_decimal_commas(self, name: str) -> bool:
        """Whether the first value of ``name``, a column of text, is a number with a decimal comma."""
        return name in self.texts and is_decimal_comma(self.first(name))

    def first(self, name: str) -> str:
        """The first value of ``name``, a column of text or numbers, as text.

        "" of other columns, and of one without a value.
        """
        return self._values.get(name, _NO_VALUES).first

    def holds_dates(self, name: str) -> bool:
        """Whether column ``name`` holds dates or times, or texts of which the first is written as a date."""
        import pyarrow as pa

        return bool(pa.types.is_temporal(self.columns.types[name])) or (
            name in self.texts and is_date(self.first(name))
        )

    def text_among_numbers(self, name: str) -> tuple[int, str] | None:
        """Row (from 0) and content of the first text in ``name``, a column of text that holds mostly numbers.

        ``None`` for other columns.
        """
        if name not in self.texts:
            return None
        decimal = self.columns.decimal or "."
        return self._once(("text", name), lambda: first_text_among_numbers(self._texts(name), decimal))

    @cached_property
    def _values(self) -> Mapping[str, _Values]:
        """The values of all columns of numbers or text, counted in one reading of the file."""
        import pyarrow as pa
        from pyarrow import compute, csv

        names = [name for name in self.names if name in self.numeric or name in self.texts]
        no_number = pa.array(csv.ConvertOptions().null_values)
        found = {}
        for name, column in self.columns.read(dict.fromkeys(names, "text")).items():
            texts = compute.fill_null(compute.utf8_trim_whitespace(column), "")
            gaps = compute.is_in(texts, no_number if name in self.numeric else pa.array([""]))
            there = texts.filter(compute.invert(gaps))
            found[name] = _Values(
                rows=len(there),
                different=compute.count_distinct(there).as_py(),
                missing=len(texts) - len(there),
                first_missing=compute.index(gaps, value=True).as_py(),
                first=there[0].as_py() if len(there) else "",
            )
        return found

    def _texts(self, name: str) -> list[str]:
        """The values of column ``name`` as text, one a row, without spaces around them.

        "" where there is none.
        """
        return [str(text or "").strip() for text in self.columns.texts(name).to_pylist()]

    def labels(self, name: str) -> tuple[str, ...]:
        """The different labels in column ``name``, in order: numbers as they are written shortest, or texts.

        Rows without a label are left out.
        """
        if name not in self.numeric:
            return tuple(self.sites(name))

        def find() -> tuple[str, ...]:
            values = {float(value) for value in self.columns.column(name).to_pylist() if value is not None}
            return tuple(f"{value:.15g}" for value in sorted(values))

        return self._once(("labels", name), find)

    def _once(self, key: tuple[str, ...], find: Callable[[], _Found]) -> _Found:
        """What ``find`` makes of columns, read once for each ``key``."""
        if key not in self._found:
            self._found[key] = find()
        found: _Found = self._found[key]
        return found


def open_own_table(source: Path) -> OwnTable:
    """Open a CSV or Parquet file; the separator of a CSV file is found from its first two lines.

    Raises:
        SpecError: the name of the file ends in neither ``.csv`` nor ``.parquet``.
        DataError: there is no such file, it cannot be read, or its first line holds numbers instead of names
            of columns.
    """
    argument, suffix = Argument("csv"), source.suffix.lower()
    if suffix in (".xlsx", ".xls", ".ods"):
        raise SpecError(argument, str(source), "is a spreadsheet: save it as CSV there, then give that file")
    if suffix not in (".csv", ".parquet"):
        hint = "; rename a text file with columns to .csv" if suffix in (".txt", ".tsv", ".data") else ""
        raise SpecError(argument, str(source), f"must end in .csv or .parquet{hint}")
    path = existing_file(str(source), str(argument))
    if suffix == ".parquet":
        return OwnTable(path, open_parquet(path))
    written = format_of(path)
    table = OwnTable(path, open_csv(path, written), written)
    if all(is_number(name) for name in table.names):
        raise DataError(
            f"{path}: the first line must name the columns; it holds numbers: {table.listed}: "
            "put a line like age,bmi,outcome above it"
        )
    return table

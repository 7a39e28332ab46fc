"""What a user decides about a table: columns, unit, ε. Each decision is checked against the columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from sfumato.arguments import Argument
from sfumato.data.tables import WITHOUT_TEXTS
from sfumato.errors import DataError, SpecError
from sfumato.new_spec.table import OwnTable
from sfumato.spec.other_words import value_hint, word_hint

Protected = Literal["record", "person", "device"]
MOST_SITES = 1_000
DEFAULT_ROW = "record"
_MOST_CLASSES = 100
_EXAMPLE = "COLUMN=LOW:HIGH, e.g. age=0:100"
_COMMA_IN_RANGE = re.compile(r"(?<==)[+-]?\d+,\d+(?=:)|(?<=:)[+-]?\d+,\d+(?=,|$)")
_UNITS: tuple[Protected, ...] = get_args(Protected)


@dataclass(frozen=True)
class Decisions:
    """What the author of a new spec decided: columns, sites, privacy.

    Attributes:
        label: the column to predict.
        site: the column of sites; ``None``: rows are dealt evenly.
        sites: how many sites there are, where no column says it.
        person: the column that says whose row it is, where one person may have several.
        ids: other columns that are no features.
        scale: public range of columns, stated by the user.
        row: what one row is, in words.
        several: whether several rows may be of one person; ``None``: not stated.
        protect: one row, all rows of a person, or all rows of a site.
        epsilon: towards the server.
        delta: of all guarantees.
    """

    label: str
    site: str | None
    sites: int
    person: str | None
    ids: tuple[str, ...]
    scale: Mapping[str, tuple[float, float]]
    row: str
    several: bool | None
    protect: Protected
    epsilon: float
    delta: float

    @property
    def counted_noun(self) -> str:
        """What a site is counted in, as a noun: "persons" if a column tells whose a row is, else "rows"."""
        return "rows" if self.person is None else "persons"

    def features(self, table: OwnTable) -> tuple[str, ...]:
        """A tuple of the names of the model's input columns: columns of numbers that mean nothing else.

        Left out are the columns of labels, sites, persons and identifiers, and one without a heading.
        """
        others = {self.label, self.site, self.person, *self.ids}
        return tuple(name for name in table.numeric if name.strip() and name not in others)


def check_decisions(decisions: Decisions, table: OwnTable) -> None:
    """Check that the decisions fit the table.

    Raises:
        SpecError: a column does not exist, is used twice, or cannot be what it is to be.
    """
    label, site = Argument("label"), Argument("site")
    table.column_called(decisions.label, label)
    if decisions.site is not None:
        table.column_called(decisions.site, site)
    _check_person(decisions, table)
    for name in decisions.ids:
        table.column_called(name, Argument("id"))
        if name in (decisions.label, decisions.site, decisions.person):
            raise SpecError(Argument("id"), name, "must not be the column of labels, sites or persons")
    if decisions.site == decisions.label:
        raise SpecError(site, decisions.site, "must not be the column to predict")
    features = decisions.features(table)
    if not features:
        allowed = f"leave a column of numbers to learn from; columns of numbers: {', '.join(table.numeric)}"
        raise SpecError(Argument("id"), list(decisions.ids), allowed)
    for name in decisions.scale:
        table.column_called(name, Argument("scale"))
        if name not in (*features, decisions.label):
            why = "holds no numbers" if name not in table.numeric else "is no feature"
            if table.has_decimal_commas(name):
                why = (
                    "holds text: numbers with decimal commas, in a file with commas between columns (save it "
                    "with semicolons between columns, or with points in numbers)"
                )
            elif (found := table.text_among_numbers(name)) is not None:
                why = f"row {found[0] + 1:,} has {found[1]!r} among its numbers ({WITHOUT_TEXTS})"
            raise SpecError(Argument("scale"), name, f"{why}: only features are scaled")
    _check_gaps((decisions.label, *features), table)
    _check_labels(decisions.label, table)
    if decisions.site is not None:
        count = len(table.sites(decisions.site))
        if not 2 <= count <= MOST_SITES:
            allowed = f"has {count:,} different values; sites must be 2 to {MOST_SITES:,}"
            raise SpecError(site, decisions.site, allowed)


def _check_person(decisions: Decisions, table: OwnTable) -> None:
    """Refuse a column of persons that is not there or is used otherwise, and persons without a column.

    Raises:
        SpecError: one of these, with the option that is wrong.
    """
    argument, person = Argument("person"), decisions.person
    if (decisions.protect == "person") != (person is not None):
        if person is None:
            protected = Argument("protect", "person")
            raise SpecError(
                argument, None, f"is required with {protected}: the column that says whose row it is"
            )
        allowed = f"must be person, or left out, with {argument}"
        raise SpecError(Argument("protect"), decisions.protect, allowed)
    if person is None:
        return
    table.column_called(person, argument)
    if person in (decisions.label, decisions.site):
        raise SpecError(argument, person, "must not be the column of labels or of sites")


def _check_gaps(names: Sequence[str], table: OwnTable) -> None:
    """Raise a `DataError` if one of the columns ``names`` lacks values in some rows."""
    gaps = {name: table.missing(name) for name in names}
    said = [
        f"{name} in {count:,} {'row' if count == 1 else 'rows'} (first in row {first + 1:,} of the data)"
        for name, (count, first) in gaps.items()
        if count
    ]
    if said:
        raise DataError(
            f"{table.path}: a value is missing in the column {', '.join(said)}: leave these rows out of the "
            "file, or fill them in with what everybody knows, before (a mean of the rows would be a release "
            "that nobody accounts for)"
        )


def is_regression(label: str, table: OwnTable) -> bool:
    """Whether the column ``label`` holds numbers, not all whole, so that quantities are predicted."""
    return label in table.numeric and any(not float(value).is_integer() for value in table.labels(label))


def _check_labels(label: str, table: OwnTable) -> None:
    """Refuse labels of one value, negative classes, and more texts than classes should be.

    Raises:
        SpecError: one of these.
    """
    labels = table.labels(label)
    if len(labels) < 2:
        raise SpecError(Argument("label"), label, f"has {len(labels)} value; there is nothing to predict")
    if label not in table.numeric:
        if len(labels) > _MOST_CLASSES:
            allowed = f"is text of {len(labels):,} different values: labels of a class must repeat"
            raise SpecError(Argument("label"), label, allowed)
        return
    if not is_regression(label, table) and float(labels[0]) < 0:
        allowed = f"must not be negative; it has {', '.join(labels[:5])}: write classes as 0, 1, ... or text"
        raise SpecError(Argument("label"), label, allowed)


def ranges_in(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The range (low, high) of each column, from texts ``COLUMN=LOW:HIGH[,COLUMN=LOW:HIGH...]``.

    Raises:
        SpecError: a text has another form, or a low number is not below its high one.
    """
    for text in texts:
        if comma := _COMMA_IN_RANGE.search(text):
            right = comma[0].replace(",", ".")
            raise SpecError(
                Argument("scale"), text, f"write decimals with a point, like {right} ({_EXAMPLE})"
            )
    found: dict[str, tuple[float, float]] = {}
    for text in (part for one in texts for part in one.split(",")):
        column, equals, bounds = text.strip().rpartition("=")
        if not equals or not column:
            raise SpecError(Argument("scale"), text, f"must be {_EXAMPLE}")
        found[column] = range_of(bounds, Argument("scale"), column)
    return found


def range_of(text: str, argument: Argument, column: str) -> tuple[float, float]:
    """The pair (low, high) of a text ``LOW:HIGH``, the public range that ``column`` is scaled from.

    Args:
        text: such as ``0:120``.
        argument: that the text came with; errors name it together with the column.
        column: name of the column.

    Raises:
        SpecError: the text has another form, a number is not finite, or the low one is not below the high
            one.
    """
    low, colon, high = text.partition(":")
    try:
        numbers = float(low), float(high)
    except ValueError:
        numbers = math.nan, math.nan
    if not colon or not numbers[0] < numbers[1] or math.inf in map(abs, numbers):
        raise SpecError(argument.at(column), text, f"must be LOW:HIGH, the lower number first ({_EXAMPLE})")
    return numbers


def parsed_unit(text: str, allowed: Sequence[Protected] = _UNITS) -> Protected:
    """``text`` as a privacy unit.

    Raises:
        SpecError: it is none of ``allowed``.
    """
    if text not in allowed:
        known = " or ".join([", ".join(allowed[:-1]), allowed[-1]])
        hint = value_hint(text, list(allowed)).replace("data.person_column", f"{Argument('person')} COLUMN")
        raise SpecError(Argument("protect"), text, f"must be {known}{hint}")
    return cast("Protected", text)


def parsed_epsilon(text: str) -> float:
    """The ε that ``text`` gives.

    Raises:
        SpecError: it is no number from 0.001 to 1,000.
    """
    return parsed_number(text, "epsilon", 1e-3, 1e3, "; 1 to 8 are usual, and a smaller one protects more")


def parsed_delta(text: str) -> float:
    """The δ that ``text`` gives.

    Raises:
        SpecError: it is no number from 1e-30 to 0.1.
    """
    return parsed_number(
        text, "delta", 1e-30, 0.1, "; it should be far below 1 over the number of rows, like 1e-5"
    )


def parsed_number(text: str, option: str, least: float, most: float, hint: str = "") -> float:
    """The number that ``text`` gives for ``option``; ``hint`` is added to the message of an error.

    Raises:
        SpecError: it is no number from ``least`` to ``most``, or not whole for the option ``sites``.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most or (option == "sites" and not number.is_integer()):
        allowed = f"must be a number from {least:g} to {most:,g}{hint}{word_hint('', text)}"
        raise SpecError(Argument(option), text, allowed)
    return number


def parsed_columns(text: str, option: str, table: OwnTable) -> tuple[str, ...]:
    """A tuple of the columns of ``table`` that ``text`` names for ``option``: one, or several with commas.

    Raises:
        SpecError: one of them is no column.
    """
    names = [text] if text in table.names else [name.strip() for name in text.split(",")]
    return tuple(table.column_called(name, Argument(option)) for name in names)

"""Hints of `sfumato init --csv`: what a user may not have meant, a line each. They refuse nothing.

Each is a function of its own that yields sentences, none where there is nothing to say. What they say is for
whoever holds the rows: some count the values of a column.
"""

from __future__ import annotations

from collections.abc import Iterator

from sfumato.arguments import Argument
from sfumato.data.csv_files import SIGNS_IN_WORDS
from sfumato.data.repeats import looks_like_id
from sfumato.data.tables import WITHOUT_DATES, WITHOUT_TEXTS, has_unit_behind
from sfumato.errors import first_names
from sfumato.new_spec.decisions import Decisions, is_regression
from sfumato.new_spec.spec_text import devices_can_be_named, site_names, units_at_sites
from sfumato.new_spec.table import OwnTable

_FEW_ROWS, _MANY_CLASSES, _FEW_SITES = 30, 20, 100
_MOST_NAMED = 6  # columns
_FEW_VALUES = 20
"""Texts of so few values are categories, and not who a row is of."""
_MANY_NUMBERS = 300
"""So many different whole numbers in a column are seldom ages, counts or scores."""
_ROWS_OF_ONE = {"text": 100, "whole": 10}
"""Rows of one person on average, at most, in a column that is not called like persons or identifiers."""


def hints(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """Yield lines on decisions that the user may not have meant, those on privacy first."""
    yield from _of_persons(decisions, table)
    yield from _of_ranges(decisions, table)
    yield from _of_identifiers(decisions, table)
    yield from _of_small_sites(decisions, table)
    yield from _of_label_and_site(decisions, table)
    yield from _of_labels(decisions, table)
    yield from _of_the_file(decisions, table)


def may_say_persons(name: str, site: str | None, table: OwnTable) -> bool:
    """Whether the column ``name`` may say who a row is of, where one person has several rows.

    Its values repeat, and its name is that of persons or identifiers, or it is text or whole numbers with so
    many values that each stands in few rows, or that each stands at one site only. ``site``: column of sites.
    """
    rows, values = table.rows_and_values(name)
    if not 1 < values < rows or table.holds_dates(name):
        return False
    if looks_like_id(name):
        return True
    holds_numbers = table.has_decimal_commas(name) or table.text_among_numbers(name) is not None
    kind = "text" if name in table.texts and not holds_numbers else "whole" if name in table.whole else None
    if kind is None or values <= _FEW_VALUES:
        return False
    enough = kind == "text" or values >= _MANY_NUMBERS
    few_rows_each = enough and rows <= values * _ROWS_OF_ONE[kind]
    return few_rows_each or (site is not None and sum(table.persons(name, site).values()) == values)


def _of_persons(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """One row is protected, and a column may say that a person has several.

    Where the user said that each row is another person's, only columns that are called so are named.
    """
    if decisions.protect != "record":
        return
    others = (decisions.label, decisions.site)
    columns = [name for name in table.names if name.strip() and name not in others]
    found = [
        name
        for name in columns
        if may_say_persons(name, decisions.site, table)
        and (decisions.several is not False or looks_like_id(name))
    ]
    for name in found:
        rows, values = table.rows_and_values(name)
        yield (
            f"column {name} repeats ({values:,} values in {rows:,} rows), and ε is about one row; if it says "
            f"who a row is of, protect all rows of one person: {Argument('person', name)}"
        )
    if decisions.several and not found:
        yield (
            "ε is about one row: of a person with several rows more is learned; name the column that "
            f"says whose row it is ({Argument('person')}), or merge them to one row each"
        )


def _of_ranges(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """A hint on features without a stated range. As `warn_of_unscaled_columns` it reads no value."""
    bare = [name for name in decisions.features(table) if name not in decisions.scale]
    if bare:
        option = Argument("scale", ",".join(f"{name}=LOW:HIGH" for name in bare[:_MOST_NAMED]))
        more = f", and so on for {len(bare) - _MOST_NAMED} more" if len(bare) > _MOST_NAMED else ""
        yield (
            f"no range is stated for {first_names(bare, _MOST_NAMED)}: from numbers far above 1 little or "
            "nothing is learned; write what everybody knows without the rows, so wide that few values are "
            "beyond it: "
            f"{option}{more} (0:1 changes nothing)"
        )


def _of_identifiers(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """A feature of whole numbers that are all different, or of one value."""
    for name in decisions.features(table):
        rows, values = table.rows_and_values(name)
        if values == 1:
            yield (
                f"every row has the same {name}, which is a feature: nothing can be learned from it; to "
                f"leave it out: {Argument('id', name)}"
            )
        if name in table.whole and values == rows > _FEW_ROWS:
            yield (
                f"every row has another {name}, which is a feature: identifiers are so, and a model learns "
                f"nothing of use from them; to leave it out: {Argument('id', name)}"
            )


def _of_small_sites(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """Few sites, or few rows or persons at one."""
    if decisions.site is not None:
        what = decisions.counted_noun
        for name, found in units_at_sites(decisions, table).items():
            if found < _FEW_ROWS:
                yield f"{name} has {found} {what}: noise hides most of what so few {what} say"
                break
    count = len(site_names(decisions, table)) or decisions.sites
    if count == 2:
        yield (
            "there are two sites: each can subtract what it sent itself from what it gets back, so the other "
            "site learns as much as the server does; with a third site it learns less"
        )
    if decisions.protect == "device" and count < _FEW_SITES:
        yield (
            f"all rows of one of {count} sites are protected together: the noise is as "
            "large as what a site says, and hardly anything is learned; to protect one row: "
            f"{Argument('protect', 'record')}"
        )


def _of_label_and_site(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """A text is predicted that has more values than there are sites: the two may be swapped."""
    label, site = decisions.label, decisions.site
    if site is None or label in table.numeric:
        return
    labels, sites = len(table.labels(label)), len(table.sites(site))
    if labels > sites:
        yield (
            f"{label} ({labels} values) is predicted, and {site} ({sites} values) says whose a row is; if it "
            f"is the other way round: {Argument('label', site)} {Argument('site', label)}"
        )


def _of_labels(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """A number is predicted, or classes are numbers that do not begin at 0 or are very many."""
    label = decisions.label
    if label not in table.numeric:
        return
    if is_regression(label, table):
        others = {decisions.site, decisions.person, *decisions.ids}
        classes = [name for name in table.categories() if name not in others]
        instead = f"; columns of classes: {', '.join(classes)}" if classes else ""
        yield f"{label} holds numbers, so a number is predicted and no class (data.task: regression){instead}"
        return
    values = table.labels(label)
    if float(values[0]) > 0:
        yield f"labels begin at {values[0]}: classes are counted from 0, and the first has no rows"
    if len(values) > _MANY_CLASSES:
        yield f"{label} has {len(values)} values: for a quantity write data.task: regression"


def _of_the_file(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """How the file is written, categories that are left out, and names of sites that cannot be kept."""
    if table.csv is not None and table.csv.separator != ",":
        sign = SIGNS_IN_WORDS[table.csv.separator]
        comma = ", numbers have decimal commas" if table.csv.decimal == "," else ""
        written = "data.separator and data.decimal say so" if comma else "data.separator says so"
        yield f"columns are separated by {sign}{comma}: {written}"
    if any(not name.strip() for name in table.names):
        yield (
            "a column has no heading and is left out: R and pandas write row numbers so; to learn from it, "
            "give it a heading in the file"
        )
    others = {decisions.label, decisions.site, decisions.person, *decisions.ids}
    swapped = [name for name in table.texts if name not in others and table.has_decimal_commas(name)]
    if swapped:
        yield (
            f"{', '.join(swapped)}: numbers with decimal commas in a file of commas are text, and left out; "
            "save the file with semicolons between columns, or with points in numbers"
        )
    yield from _of_dates_and_units(decisions, table)
    for name in (name for name in table.texts if name not in others):
        if (found := table.text_among_numbers(name)) is not None:
            yield f"{name} is left out, as row {found[0] + 1:,} has {found[1]!r}: {WITHOUT_TEXTS}"
            swapped.append(name)
    swapped += [name for name in table.texts if table.holds_dates(name) or has_unit_behind(table.first(name))]
    left = [name for name in table.categories() if name not in others and name not in swapped]
    if left:
        one = len(left) == 1
        yield (
            f"{', '.join(left)} {'is' if one else 'are'} left out as text; to learn from "
            f"{'it' if one else 'them'}, write 0 and 1 in the file (of more than two values, a column each)"
        )
    names = site_names(decisions, table)
    if names and not devices_can_be_named(names):
        yield f"results call sites by numbers: {names[0]} is device:0; names like site-1 would be kept"


def _of_dates_and_units(decisions: Decisions, table: OwnTable) -> Iterator[str]:
    """Columns of dates, and of numbers with a unit behind them, are left out."""
    others = {decisions.label, decisions.site, decisions.person, *decisions.ids}
    left = [name for name in table.names if name not in others]
    for name in left:
        first = table.first(name)
        if table.holds_dates(name):
            yield f"{name} is left out, as it holds dates: {WITHOUT_DATES}"
        elif has_unit_behind(first):
            yield (
                f"{name} is left out as text, as its first value is {first!r}: write the number alone, and "
                "the unit into the name of the column"
            )

"""Findings on the columns of a table of one's own, and on whose rows they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sfumato.data.dataset_sizes import dataset_facts
from sfumato.data.repeats import looks_like_id, repeating_ids
from sfumato.errors import SfumatoError, first_names
from sfumato.schedule.base import Plan
from sfumato.spec.data import TABLE_SUFFIXES
from sfumato.user_code import GIVEN

_NAMED = 5  # sites in a sentence


def feature_columns_of(plan: Plan) -> tuple[str, ...]:
    """A tuple of the names of the feature columns of the plan's table.

    Empty for data that are no table (images, tokens), and where the table cannot be read now: it is missing
    or was given in Python to a call that is over. No error is raised.
    """
    data = plan.spec.data
    if data.vocabulary is not None or not _is_table(data.source):
        return ()
    try:
        return dataset_facts(data, plan.parties.device_count).feature_columns
    except SfumatoError:  # data given in Python are known inside a call only
        return ()


def warn_of_unscaled_columns(columns: Sequence[str], scale: Mapping[str, object]) -> str | None:
    """A warning that names the features without a stated range; ``None`` where all have one.

    Values are not looked at: a warning that depends on them would be a release nobody accounts for.

    Args:
        columns: names of the features.
        scale: the section ``data.scale``: a column's name to its range, the lowest and the highest value.
    """
    unscaled = [name for name in columns if name not in scale]
    if not unscaled:
        return None
    named = _named(unscaled)
    has = "has" if len(unscaled) == 1 else "have"
    return (
        f"{named} {has} no range in data.scale and so {'is' if len(unscaled) == 1 else 'are'} used as in the "
        "file: where numbers are far above 1, little or nothing is learned; write the range that everybody "
        f"knows without the rows, like data.scale: {{{unscaled[0]}: [LOW, HIGH]}}, so wide that few values "
        "are beyond it (those are kept, below 0 or above 1; [0, 1] changes nothing)"
    )


def warn_of_columns_of_ids(columns: Sequence[str]) -> str | None:
    """A warning about feature ``columns`` with names like those of identifiers.

    ``None`` where there are none.
    """
    ids = [name for name in columns if looks_like_id(name)]
    if not ids:
        return None
    one = len(ids) == 1
    return (
        f"{_named(ids)} {'is a feature and is' if one else 'are features and are'} called like "
        f"{'an identifier' if one else 'identifiers'}: a model learns nothing of use from "
        f"{'it' if one else 'them'}; list the others in data.feature_columns"
    )


def warn_of_sites_without_rows(plan: Plan) -> str | None:
    """A warning where sites have names but no column of the table names the site of a row; or ``None``."""
    names, data = plan.parties.site_names, plan.spec.data
    if not names or data.site_column is not None or not _is_table(data.source):
        return None
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return (
        f"the sites are called {shown}, but the rows are divided among them by data.partition, whosever they "
        "are: no figure is about these sites; name the column that says whose a row is in data.site_column, "
        "or leave the names out"
    )


def warn_of_forgotten_persons(plan: Plan) -> str | None:
    """A warning where rows are protected though a column named like persons or ids repeats; or ``None``.

    Of a file on this machine. It says only that a value stands in several rows, not in how many.
    """
    data, unit = plan.spec.data, plan.spec.privacy.unit
    if unit not in ("record", "both") or not data.source.lower().endswith(TABLE_SUFFIXES):
        return None
    try:
        repeated = repeating_ids(data)
    except SfumatoError:  # not on this machine
        return None
    labels = (data.label_column,) if isinstance(data.label_column, str) else data.label_column or ()
    found = [name for name in repeated if name not in (*labels, data.site_column, data.group_column)]
    if not found:
        return None
    return (
        f"several rows have the same {found[0]}, and ε is about one row: if it says who a row is of, more is "
        "learned about a person with several rows than ε says; to protect all rows of one, write "
        f"privacy.unit: person and data.person_column: {found[0]}"
    )


def _is_table(source: str) -> bool:
    """Whether ``data.source`` is a table of one's own."""
    return source.lower().endswith(TABLE_SUFFIXES) or source.startswith(GIVEN)


def _named(columns: Sequence[str]) -> str:
    """``the column age``, ``the columns age, bmi and 3 more``."""
    if len(columns) == 1:
        return f"the column {columns[0]}"
    return f"the columns {first_names(columns)}"

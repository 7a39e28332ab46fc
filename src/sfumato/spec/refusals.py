"""The form of a refusal: whether it applies, and the place, the value and what is allowed, for the message.

A table of refusals is a function that yields its rows for a subject: a spec, a section, the rounds of a tree
or a plan. It is read up to the first row that applies, so a row may rely on the rows before it. All parts of
a row that is read are computed, also where it does not apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from sfumato.errors import SpecError


class Refused(NamedTuple):
    """What one refusal says: the key path, the value there (``None`` shows none), and what is allowed."""

    key: str
    value: Any
    allowed: str


Refusals: TypeAlias = Iterator[tuple[object, str, Any, str]]
"""Rows of a table: whether each applies, and what is `Refused` then."""


def tuple_as_list(value: object) -> object:
    """``value`` as it stands in a YAML file: a tuple as a list, anything else as it is."""
    return list(value) if isinstance(value, tuple) else value


def first_refused(rows: Refusals) -> Refused | None:
    """The first row (applies, key, value, allowed) that applies, as `Refused`; ``None`` if none does."""
    for applies, key, value, allowed in rows:
        if applies:
            return Refused(key, value, allowed)
    return None


def refuse_first(rows: Refusals) -> None:
    """Raise a SpecError for the first row (applies, key, value, allowed) that applies, if any does."""
    if (refused := first_refused(rows)) is not None:
        raise SpecError(*refused)

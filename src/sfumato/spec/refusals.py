"""The form of a refusal: when it applies, and the place, the value and what is allowed, for the message.

Tables of them are read from the first row to the last, and the first that applies is raised, so a row may
rely on the rows before it. A table is a function that yields its rows for a spec or a section (`Refusals`),
or a tuple of rows whose parts are functions (`Refusal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from sfumato.errors import SpecError

Subject = TypeVar("Subject")

AT_KEY: Any = object()
"""As the value of a refusal: what the subject holds at its key, down the dots; a tuple is shown as a list."""


class Refused(NamedTuple):
    """What one refusal says: the key path, the value there (``None`` shows none), and what is allowed."""

    key: str
    value: Any
    allowed: str


Refusals: TypeAlias = Iterator[tuple[object, str, Any, str]]
"""Rows of a table: whether each applies, and what is `Refused` then."""


@dataclass(frozen=True)
class Refusal(Generic[Subject]):
    """A row of a table of refusals; its parts may be functions of the subject: a spec, a section or a plan.

    Attributes:
        applies: whether the subject is to be refused.
        key: path of the key that is wrong.
        value: that stands there, ``None`` to show none; `AT_KEY` looks it up.
        allowed: what may stand there, as a short clause.
    """

    applies: Callable[[Subject], object]
    key: str | Callable[[Subject], str]
    value: Any
    allowed: str | Callable[[Subject], str]

    def of(self, subject: Subject) -> Refused | None:
        """What it says of ``subject``; ``None`` where it does not apply."""
        if not self.applies(subject):
            return None
        key, value, allowed = (
            part(subject) if callable(part) else part for part in (self.key, self.value, self.allowed)
        )
        if value is AT_KEY:
            value = reduce(getattr, key.split("."), subject)
            value = list(value) if isinstance(value, tuple) else value
        return Refused(key, value, allowed)


def first_refused(rows: Refusals) -> Refused | None:
    """What the first row that applies refuses; ``None`` where none does."""
    for applies, key, value, allowed in rows:
        if applies:
            return Refused(key, value, allowed)
    return None


def refuse_first(subject: Subject, rows: Iterable[Refusal[Subject]]) -> None:
    """Raise the first refusal that applies to ``subject``.

    Raises:
        SpecError: one does.
    """
    for row in rows:
        if (refused := row.of(subject)) is not None:
            raise SpecError(*refused)

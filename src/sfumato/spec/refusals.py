"""The form of a refusal: when it applies, and the place, the value and what is allowed, for the message.

Tables of them are read from the first row to the last, and the first that applies is raised, so a row may
rely on the rows before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

from sfumato.errors import SpecError

Subject = TypeVar("Subject")

AT_KEY: Any = object()
"""As the value of a refusal: what the subject holds at its key, down the dots; a tuple is shown as a list."""


class Refused(NamedTuple):
    """What one refusal says: the key path, the value there (``None`` to show none), and what is allowed."""

    key: str
    value: Any
    allowed: str


@dataclass(frozen=True)
class Refusal(Generic[Subject]):
    """A row of a table of refusals; functions get the subject, which is a spec, a section or a plan.

    Attributes:
        applies: whether the subject is to be refused.
        key: path of the key that is wrong.
        value: that stands there, or a function that finds it; `AT_KEY` looks it up.
        allowed: what may stand there, as a short clause, or a function that writes the clause.
    """

    applies: Callable[[Subject], object]
    key: str | Callable[[Subject], str]
    value: Any
    allowed: str | Callable[[Subject], str]

    def of(self, subject: Subject) -> Refused:
        """What it says of ``subject``."""
        key = self.key(subject) if callable(self.key) else self.key
        value = self.value(subject) if callable(self.value) else self.value
        if value is AT_KEY:
            value = reduce(getattr, key.split("."), subject)
            value = list(value) if isinstance(value, tuple) else value
        return Refused(key, value, self.allowed(subject) if callable(self.allowed) else self.allowed)


def first_refusal(subject: Subject, rows: Iterable[Refusal[Subject]]) -> Refused | None:
    """What the first row that applies to ``subject`` says; ``None`` where none applies."""
    return next((row.of(subject) for row in rows if row.applies(subject)), None)


def refuse_first(subject: Subject, rows: Iterable[Refusal[Subject]]) -> None:
    """Raise the first refusal that applies to ``subject``.

    Raises:
        SpecError: one does.
    """
    if (refused := first_refusal(subject, rows)) is not None:
        raise SpecError(*refused)

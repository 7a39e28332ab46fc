"""Tables of refusals: in each row a condition, and the place, the value and what is allowed, for the message.

A table is a list of rows, or a function that yields them where a row needs what the rows before it exclude.
The first row that applies is raised. Long rows are laid out by hand (``# fmt: off``), one under the other::

    refuse_first([
        (faults and on_air, "faults", None, "must be left out with air: see air.min_gain for silent devices"),
        (rate and not elects, "faults.supernode_failure_rate", rate, "goes with supernodes: elected"),
    ])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from sfumato.errors import SpecError

Refused: TypeAlias = tuple[str, Any, str]
"""The path of the wrong key, the value there (``None`` shows none), what is allowed."""
Refusal: TypeAlias = tuple[object, str, Any, str]
"""A row: whether it applies, and what is `Refused` then."""


def first_refusal(rows: Iterable[Refusal]) -> Refused | None:
    """What the first row that applies refuses; ``None`` where none does."""
    return next(((key, value, allowed) for applies, key, value, allowed in rows if applies), None)


def refuse_first(rows: Iterable[Refusal]) -> None:
    """Raise the first refusal that applies.

    Raises:
        SpecError: one does.
    """
    if (refused := first_refusal(rows)) is not None:
        raise SpecError(*refused)

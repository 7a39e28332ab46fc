"""Units and observers: their names in the files of a run, and their kind, tier and index."""

from __future__ import annotations

import re
from typing import TypeAlias

from sfumato.verify.read import Json

Party: TypeAlias = tuple[str, int, int]
"""Kind, tier and index of a unit or an observer."""


def is_within_device(row: Json) -> bool:
    """Whether a row of privacy.json is about a record or a person, not about a whole device."""
    return str(row["unit"]).startswith(("record:", "person:"))


def kind_and_index(name: str) -> tuple[str, int]:
    """The kind and the index in the name of a party, such as ("device", 3) of ``device:3``.

    Raises:
        ValueError: the name is written in another way, with leading zeros for example.
    """
    found = re.fullmatch(r"(.+):(0|[1-9][0-9]{0,9})", name, re.ASCII)
    if found is None:
        raise ValueError(f"there is no party {name!r}")
    return found[1], int(found[2])


def require_index_below(name: str, index: int, count: int) -> None:
    """Raise a `ValueError` that names the party ``name`` unless ``index`` is below ``count``."""
    if index >= count:
        raise ValueError(f"there is no party {name!r}")

"""Counts that may differ from edge to edge: one for all, a list, or a mapping by name or by trust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import Discriminator, Field, Tag

from sfumato.spec.base import TAG, Count, count_limit
from sfumato.spec.limits import MAX_NUMBER

BY_TRUST = frozenset({"trusted", "untrusted"})
"""The keys of a mapping that tells trusted edges from untrusted ones."""


def _how(value: Any) -> str:
    if isinstance(value, list | tuple):
        return TAG + "list"
    return TAG + ("by name" if isinstance(value, dict) else "one")


CountPerEdge = Annotated[
    Annotated[
        int,
        Field(ge=1, le=MAX_NUMBER),
        count_limit(MAX_NUMBER, instead=", a list with one for each edge, or a mapping by edge"),
        Tag("=one"),
    ]
    | Annotated[tuple[Count, ...], Field(min_length=1), Tag("=list")]
    | Annotated[dict[str, Count], Field(min_length=1), Tag("=by name")],
    Discriminator(_how),
]

Written: TypeAlias = int | tuple[int, ...] | Mapping[str, int]
"""What a user wrote: one number, one for each edge, or some by name."""


def numbers_in(value: Written) -> tuple[int, ...]:
    """All numbers that ``value`` holds."""
    if isinstance(value, int):
        return (value,)
    return tuple(value.values() if isinstance(value, Mapping) else value)

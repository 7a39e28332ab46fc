"""Which sections may stand at a place of the spec, read off the models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from pydantic.fields import FieldInfo

from sfumato.spec.base import TAG, Section
from sfumato.spec.document import Spec


def sections_at(location: Iterable[str | int]) -> list[type[Section]]:
    """The sections that may stand at ``location``; several where a section has kinds, none at a value.

    A ``location`` may hold union tags (see ``base.TAG``), which narrow the choice, and list positions.
    """
    found: list[type[Section]] = [Spec]
    for part in location:
        if isinstance(part, int):
            continue
        if part.startswith(TAG):
            found = [section for section in found if kind_of(section) == part[len(TAG) :]] or found
        else:
            fields = [field for section in found if (field := field_of(section, part)) is not None]
            found = list(dict.fromkeys(inner for field in fields for inner in _sections_in(field.annotation)))
    return found


def field_of(section: type[Section], key: str) -> FieldInfo | None:
    """The field that a user writes as ``key``."""
    for name, field in section.model_fields.items():
        if key == (field.alias or name):
            return field
    return None


def kind_of(section: type[Section]) -> str | None:
    """What ``kind`` says in this section, where it says anything in particular."""
    field = section.model_fields.get("kind")
    return None if field is None or field.is_required() else str(field.default)


def _sections_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for inner in get_args(annotation) for section in _sections_in(inner)]

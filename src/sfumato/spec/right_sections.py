"""What does not fit between the sections of a spec that are right by themselves, where others are not.

A check between sections is made if every section that it reads is right, so nothing is said that follows
from a wrong one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from sfumato.spec.document import Spec


class _SectionIsWrongError(Exception):
    """A check reads a section that is not right by itself."""


class _PartialSpec(Spec):
    """A spec that lacks sections. It is never validated, so no validator is built."""

    model_config = ConfigDict(defer_build=True)

    def __getattr__(self, name: str) -> Any:  # called for what is not there only
        if name in Spec.model_fields:
            raise _SectionIsWrongError(name)
        raise AttributeError(name)


def misfits_of_right_sections(document: Mapping[str, Any]) -> list[PydanticCustomError]:
    """The misfits between the right sections of ``document``, which is not valid as a whole."""
    right = _right_sections(document)
    spec = _PartialSpec.model_construct(**right)
    for name in Spec.model_fields.keys() - right.keys():
        spec.__dict__.pop(name, None)  # a default, which nobody wrote
    return list(spec.misfits(unless=(_SectionIsWrongError,)))


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Spec.model_fields[name]
    described: Any = Annotated[field.annotation, field]
    return TypeAdapter(described)


def _right_sections(document: Mapping[str, Any]) -> dict[str, Any]:
    """The sections, checked one by one; those that are left out have their defaults."""
    right = {}
    for name, field in Spec.model_fields.items():
        if name not in document:
            if not field.is_required():
                right[name] = field.get_default(call_default_factory=True)
            continue
        try:
            right[name] = _adapter(name).validate_python(document[name])
        except ValidationError:
            continue
    return right

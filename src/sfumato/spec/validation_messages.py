"""From pydantic's errors to the one sentence a user reads: key path, value, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sfumato.spec.base import TAG, closest
from sfumato.spec.structure import field_of, kind_of, sections_at
from sfumato.user_text import join


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: ``place`` is the key path as the user wrote it, ``""`` the whole spec."""

    place: str
    value: Any
    allowed: str


def first_problem(error: ValidationError) -> Problem:
    """The most useful problem of ``error``; it says how many others there are."""
    details = error.errors(include_url=False)
    worst = min(details, key=lambda detail: detail["type"] != "unknown_key")
    problem = _problem(worst)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return Problem(problem.place, problem.value, problem.allowed + more)


_PLAIN = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a section",
    "string_too_short": "must not be empty",
}


def _problem(detail: ErrorDetails) -> Problem:
    location, context, value = detail["loc"], detail.get("ctx", {}), detail["input"]
    place = _dotted(location)
    match detail["type"]:
        case "refused" | "unknown_key":
            place = _inside(place, context["key"])
            value, allowed = context["value"], context["allowed"]
            if value is None and (not context["key"] and detail["input"] is None):
                allowed = f"is empty; {allowed}"
            return Problem(place, value, allowed)
        case "kind":
            kinds = [kind for section in sections_at(location) if (kind := kind_of(section))]
            allowed = detail["msg"]
            if isinstance(value, dict) and "kind" in value:
                place, value = join(place, "kind"), value["kind"]
                allowed = f"must be one of {', '.join(kinds)}"
            if isinstance(value, str):
                allowed += closest(value, kinds)
        case "missing":
            return Problem(place, None, f"is required{_description(location)}")
        case "literal_error":
            known = re.findall(r"'([^']*)'", context["expected"])
            allowed = f"must be one of {', '.join(known)}{closest(str(value), known)}"
        case "too_long":
            value, allowed = context["actual_length"], f"must have at most {context['max_length']} entries"
        case "too_short":
            allowed = f"must have at least {context['min_length']} entries"
        case other:
            allowed = _PLAIN.get(other, detail["msg"])
    return Problem(place, value, f"is empty; {allowed}" if value is None else allowed)


def _inside(place: str, key: str) -> str:
    """``place`` with ``key`` appended: nothing, a key, or the ``[number]`` of an entry."""
    if not key or re.fullmatch(r"\[\d+\]", key):
        return place + key
    return join(place, key)


def _dotted(location: Sequence[str | int]) -> str:
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not part.startswith(TAG):
            place = join(place, part)
    return place


def _description(location: Sequence[str | int]) -> str:
    key = str(location[-1])
    for section in sections_at(location[:-1]):
        field = field_of(section, key)
        if field is not None and field.description:
            return f": {field.description}"
    return ""

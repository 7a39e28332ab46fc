"""What is wrong with a spec, as a user reads it: key path, value, what is allowed.

Most of it comes from pydantic. A check between sections is made if every section that it reads is right, so
nothing is said that follows from a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from sfumato.errors import SpecError, SpecProblemsError
from sfumato.spec.base import TAG, closest_hint, nearest
from sfumato.spec.document import Spec, field_of, kind_of, sections_at
from sfumato.spec.other_words import section_hint, value_hint, word_hint
from sfumato.spec.refusals import Refused
from sfumato.spec.used_keys import WITHOUT_NOISE
from sfumato.user_text import join

_WITHOUT_NOISE = {
    "protocol": (*WITHOUT_NOISE, "wfl-p"),
    "privacy.noise": ("none",),
    "privacy.noise.kind": ("none",),
}
"""Dotted key to its values by which nobody adds noise."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        place: the key path as the user wrote it, ``""`` the whole spec.
        value: there.
        allowed: what is, instead.
        is_unknown: whether there is no such key.
        near: of a key that there is not, the one that may have been meant.
    """

    place: str
    value: Any
    allowed: str
    is_unknown: bool = False
    near: str | None = None


def problems_of(error: ValidationError) -> list[Problem]:
    """The problems in a pydantic error, one for each key, unknown keys before others.

    Unknown keys come first because one may be a misspelling of a key that is missing.
    """
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "unknown_key")
    found: dict[str, Problem] = {}
    for detail in details:
        for problem in _problems_in(detail):
            found.setdefault(problem.place, problem)
    # a list is too short for pydantic where its entries are wrong
    around = {place[: part.start()] for place in found for part in re.finditer(r"[.[]", place)}
    return [problem for place, problem in found.items() if place not in around]


def all_problems(document: dict[str, Any]) -> list[Problem]:
    """All problems of ``document``, a spec as plain data, including those that unknown keys hide.

    ``document`` is changed: unknown keys are replaced by the key that was meant, or removed.
    """
    problems: dict[str, Problem] = {}

    def known() -> set[str]:
        return {*problems, *(place for one in problems.values() for place in _follow_up_places(one))}

    while True:
        try:
            Spec.model_validate(document)
            break
        except ValidationError as error:
            seen = known()
            fresh = [problem for problem in problems_of(error) if problem.place not in seen]
            problems |= {problem.place: problem for problem in fresh}
            if not [problem for problem in fresh if _replace_unknown_key(document, problem)]:
                break
    seen = known()
    conflicts = conflicts_of_valid_sections(document)
    problems |= {one.key: Problem(*one) for one in conflicts if one.key not in seen}
    return list(problems.values())


def _follow_up_places(problem: Problem) -> tuple[str, ...]:
    """Dotted keys at which later problems may only follow from how an unknown key was replaced.

    For the problem of an unknown key: the section that it stands in ("" for the whole spec), and the key that
    may have been meant, in that section. Empty for any other problem.
    """
    if not problem.is_unknown:
        return ()
    section, dot, _ = problem.place.rpartition(".")
    return section, f"{section}{dot}{problem.near}"


def _replace_unknown_key(document: dict[str, Any], problem: Problem) -> bool:
    """Rename an unknown key of ``document`` to the one that may have been meant, or drop it, in place.

    Returns:
        Whether ``problem`` is about an unknown key that was there.
    """
    section: Any = document
    *sections, key = problem.place.split(".")
    for name in sections:
        section = section.get(name) if isinstance(section, dict) else None
    if not problem.is_unknown or not isinstance(section, dict) or key not in section:
        return False
    value = section.pop(key)
    if problem.near is not None:
        section.setdefault(problem.near, value)
    return True


def _problems_in(detail: ErrorDetails) -> list[Problem]:
    """A list of the problems that one entry of a validation error tells."""
    if detail["type"] != "refused_several":
        return [_problem_of_detail(detail)]
    place = _dotted_key(detail["loc"])
    return [
        Problem(_place_of_key(place, one["key"]), one["value"], one["allowed"])
        for one in detail["ctx"]["problems"]
    ]


def error_of_problems(
    problems: Sequence[Problem], located: Callable[[Problem], SpecError], file: str
) -> SpecError:
    """One error for all ``problems``; of more than 20, the first 20 and how many more there are.

    Args:
        problems: one or more.
        located: gives the error of one problem, with its file, line and key.
        file: the place of the note that there are more.

    Returns:
        A SpecError, or a SpecProblemsError with several.
    """
    shown, more = [located(problem) for problem in problems[:_MOST_SHOWN]], len(problems) - _MOST_SHOWN
    if more > 0:
        said = f"has {more:,} more problems, which are shown once these are mended"
        shown.append(SpecError(file, None, said))
    return shown[0] if len(shown) == 1 else SpecProblemsError(shown)


_MOST_SHOWN = 20
_PLAIN = {
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list, in brackets: [first, second]",
    "dict_type": "must be a section",
    "string_too_short": "must not be empty",
}


def _problem_of_detail(detail: ErrorDetails) -> Problem:
    """The problem that one entry of a validation error tells: its place, the value, and what is allowed."""
    location, context, value = detail["loc"], detail.get("ctx", {}), detail["input"]
    place = _dotted_key(location)
    match detail["type"]:
        case "refused" | "unknown_key":
            place = _place_of_key(place, context["key"])
            value, allowed = context["value"], context["allowed"]
            allowed += section_hint(place, value) or word_hint(place, value)
            if value is None and (not context["key"] and detail["input"] is None):
                allowed = f"is empty; {allowed}"
            return Problem(place, value, allowed, detail["type"] == "unknown_key", context.get("near"))
        case "kind":
            kinds = [kind for section in sections_at(location) if (kind := kind_of(section))]
            allowed = detail["msg"]
            if isinstance(value, dict) and "kind" in value:
                place, value = join(place, "kind"), value["kind"]
                allowed = f"must be one of {', '.join(kinds)}"
            if isinstance(value, str):
                told = word_hint(place.removesuffix(".kind"), value)
                allowed += told or value_hint(value, kinds) or _closest_value(place, value, kinds)
                return Problem(place, value, allowed)
        case "missing":
            return Problem(place, None, f"is required{_description_of_key(location)}")
        case "literal_error":
            known = re.findall(r"'([^']*)'", context["expected"])
            hint = value_hint(str(value), known) or _closest_value(place, str(value), known)
            allowed = f"must be one of {', '.join(known)}{hint}"
        case "too_long":
            value, allowed = context["actual_length"], f"must have at most {context['max_length']} entries"
        case "too_short":
            allowed = f"must have at least {context['min_length']} entries"
        case other:
            allowed = _PLAIN.get(other, detail["msg"])
    allowed += section_hint(place, value) or word_hint(place, value)
    return Problem(place, value, f"is empty; {allowed}" if value is None else allowed)


def _closest_value(place: str, word: str, known: Sequence[str]) -> str:
    """The hint `` (did you mean 'x'?)`` with the value of ``known`` most similar to ``word``; "" without one.

    A value by which nobody adds noise is said to be one, and the most similar of the others stands beside it.

    ``place``: dotted key at which the word stands.
    """
    silent = _WITHOUT_NOISE.get(place, ())
    near = nearest(word, known)
    if near not in silent:
        return closest_hint(word, known)
    noisy = nearest(word, [value for value in known if value not in silent])
    other = "" if noisy is None else f", or {noisy!r}"
    return f" (did you mean {near!r}, by which nobody adds noise{other}?)"


def _place_of_key(place: str, key: str) -> str:
    """The dotted key ``place`` with ``key`` appended: a name, or the ``[number]`` of an entry."""
    if not key or re.fullmatch(r"\[\d+\]", key):
        return place + key
    return join(place, key)


def _dotted_key(location: Sequence[str | int]) -> str:
    """A location of pydantic as a dotted key, tags of unions left out."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not part.startswith(TAG):
            place = join(place, part)
    return place


def _description_of_key(location: Sequence[str | int]) -> str:
    """The description of the key at a location, after a colon, for a message; empty where it has none."""
    key = str(location[-1])
    for section in sections_at(location[:-1]):
        field = field_of(section, key)
        if field is not None and field.description:
            return f": {field.description}"
    return ""


class _SectionIsWrongError(Exception):
    """A check reads a section that is not right by itself."""


class _PartialSpec(Spec):
    """A spec that lacks sections. It is never validated, so no validator is built."""

    model_config = ConfigDict(defer_build=True)

    def __getattr__(self, name: str) -> Any:  # called for what is not there only
        if name in Spec.model_fields:
            raise _SectionIsWrongError(name)
        raise AttributeError(name)


def conflicts_of_valid_sections(document: Mapping[str, Any]) -> list[Refused]:
    """The conflicts between those sections of ``document`` that are valid each by itself.

    For a document that also has sections that are not: pydantic checks conflicts only where all are valid.
    Checks that read a section that is not valid, or not written, are left out.
    """
    right = _valid_sections(document)
    spec = _PartialSpec.model_construct(**right)
    for name in Spec.model_fields.keys() - right.keys():
        spec.__dict__.pop(name, None)  # a default, which nobody wrote
    return list(spec.section_conflicts(unless=(_SectionIsWrongError,)))


@cache
def _adapter_of_section(name: str) -> TypeAdapter[Any]:
    """The validator of the section ``name``, with the description of its field."""
    field = Spec.model_fields[name]
    described: Any = Annotated[field.annotation, field]
    return TypeAdapter(described)


def _valid_sections(document: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of ``document``, by name, that are valid by themselves, as validated.

    A section that is not written has its default; one that is invalid, or is required and missing, is left
    out.
    """
    right = {}
    for name, field in Spec.model_fields.items():
        if name not in document:
            if not field.is_required():
                right[name] = field.get_default(call_default_factory=True)
            continue
        try:
            right[name] = _adapter_of_section(name).validate_python(document[name])
        except ValidationError:
            continue
    return right

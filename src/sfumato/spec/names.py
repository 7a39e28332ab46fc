"""Names that a user gives to levels and sites: none may be taken for another party."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from sfumato.spec.base import Section, refused_error
from sfumato.spec.refusals import Refusals
from sfumato.user_text import decimal

_LEVEL = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_RESERVED = frozenset(
    {
        "cloud",
        "public",
        "device",
        "devices",
        "peer",
        "other-device",
        "record",
        "person",
        "master",
        "own-edge",
        "other-edge",
        "global",
    }
)
_MOST_CHARACTERS = 100


def unfit_level_names(names: Sequence[object]) -> str | None:
    """What is wrong with the names of levels below the cloud, top down, as "must ..."; ``None`` if all fit.

    Refused are names that already mean another kind of party, unit or hop, and names that occur twice.
    """
    for name in names:
        if not isinstance(name, str) or _LEVEL.fullmatch(name) is None:
            shown = name[:40] if isinstance(name, str) else name
            signs = "lower-case letters, digits, _ or -, the first a letter"
            return f"must be names of at most 40 {signs}; {shown!r} is none"
        if name in _RESERVED or "_to_" in name:
            taken = ", ".join(sorted(_RESERVED))
            return f"must not be {taken}, or hold _to_: these mean something else; {name!r} is given"
    if len(set(names)) != len(names):
        return "must differ from each other"
    if "edge" in names[:-1]:
        return "must have edge for the lowest level only, whose nodes devices are under"
    return None


def unfit_party_name(name: object) -> str | None:
    """What is wrong with the name of a worker or a group, as "must ..."; ``None`` if nothing is.

    Numbers are refused: ``sf.account(unit="3")`` means device 3.
    """
    if decimal(str(name)) is not None:
        return "must not be a number: numbers stand for parties already"
    return unfit_site_name(name)


def unfit_site_name(name: object) -> str | None:
    """What is wrong with the name of a site, as "must ..."; ``None`` if nothing is.

    Commas are refused because they join coalitions, colons because they divide a level from a number.
    """
    if not isinstance(name, str):
        return "must be text; put it in quotes"
    if not name or len(name) > _MOST_CHARACTERS or not name.isprintable() or name != name.strip():
        return (
            f"must be 1 to {_MOST_CHARACTERS} characters that can be printed, without space before or after"
        )
    if any(sign in name for sign in ",:/"):
        return "must not hold a comma, a colon or a slash, which part names from each other"
    if name in _RESERVED or name == "edge":
        return "must not be the name of a kind of party"
    return None


def as_site_name(name: object) -> object:
    """``name`` of a site, with a whole number turned into text; for pydantic.

    Raises:
        PydanticCustomError: it is unfit for a site; see `unfit_site_name`.
    """
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)  # as YAML reads 12
    return _refused_if_unfit(name, unfit_site_name(name))


def _party_name(name: object) -> object:
    """``name`` of a worker or a group; raises a validation error if `unfit_party_name` finds a fault."""
    return _refused_if_unfit(name, unfit_party_name(name))


def _refused_if_unfit(name: object, problem: str | None) -> object:
    """``name``, if ``problem`` is ``None``; otherwise a validation error with this phrase is raised."""
    if problem is not None:
        raise refused_error("", name, problem)
    return name


def names_given_twice(section: Section, *keys: str) -> Refusals:
    """Rows as of `Section.refusals`; they refuse names that occur twice in the lists under ``keys``."""
    taken: set[str] = set()
    for key in keys:
        for number, name in enumerate(getattr(section, key)):
            if name in taken:
                yield True, f"{key}[{number}]", name, "must be the name of one party only"
            taken.add(name)


PartyName = Annotated[str, BeforeValidator(_party_name)]

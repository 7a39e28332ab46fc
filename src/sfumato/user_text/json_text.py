"""Reads JSON of a user's file or a run folder; invalid text is one clear ``SpecError``."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from sfumato.errors import SpecError
from sfumato.user_text.values import MAX_VALUES, plain


def parse_json(text: str, place: str, *, most: int = MAX_VALUES) -> Any:
    """The value that ``text`` holds.

    Args:
        text: one JSON document.
        place: the file or option, for errors.
        most: values that it may hold.

    Raises:
        SpecError: ``text`` is not JSON, repeats a key, holds NaN or an infinity, or is refused by `plain`.
    """
    try:
        value = json.loads(text, object_pairs_hook=_each_key_once, parse_constant=_no_constant)
    except RecursionError:
        raise SpecError(place, None, "is nested too deeply") from None
    except ValueError as error:
        raise SpecError(place, None, f"is not JSON: {error}") from None
    return plain(value, place, most=most)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice[:80]!r} is given twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")

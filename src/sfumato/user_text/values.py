"""The values that a text may contain in any format: mappings, lists, text, numbers, true, false, null.

JSON is read here; its text is one such value.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from sfumato.errors import SpecError

MAX_DEPTH = 32
MAX_VALUES = 1_000_000
MAX_DIGITS = 100
MAX_KEY = 10**9

_MAX_BITS = 332  # of a whole number of MAX_DIGITS digits
# Control characters, line and paragraph separators, and surrogates may not be part of a line of text.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class _UnfitError(Exception):
    """A value that no text may contain; ``way`` collects the keys that lead to it."""

    def __init__(self, value: object, allowed: str) -> None:
        """Keep the value that does not fit, and words for what is allowed."""
        super().__init__(allowed)
        self.value, self.allowed = value, allowed
        self.way: list[str | int] = []


def plain(value: Any, place: str, *, most: int = MAX_VALUES) -> Any:
    """A copy of ``value`` that consists of dicts, lists and scalars.

    Args:
        value: any value.
        place: the file or option, for errors.
        most: largest number of values in it.

    Raises:
        SpecError: it contains something that no text can contain; the error names the keys that lead to it.
    """
    copier = _Copier(most)
    try:
        return copier.copy(value, 1)
    except _UnfitError as error:
        for step in reversed(error.way):
            place = f"{place}[{step}]" if isinstance(step, int) else join(place, step)
        raise SpecError(place, error.value, error.allowed) from None


class _Copier:
    def __init__(self, most: int) -> None:
        """Allow at most ``most`` values in all."""
        self._most = self._left = most

    def copy(self, value: Any, depth: int) -> Any:
        """A copy of ``value`` of dicts, lists and scalars, at ``depth`` levels below the top.

        Raises:
            _UnfitError: a value has no such form, or there are too many.
        """
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            allowed = f"is too large: at most {MAX_DEPTH} deep and {self._most:,} values"
            raise _UnfitError(None, allowed)
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str):
            return _checked_text(value)
        if isinstance(value, int):
            return _checked_int(value)
        if isinstance(value, dict):
            found = {_checked_key(key): self._copy_inside(item, depth, key) for key, item in value.items()}
            if len(found) < len(value):
                raise _UnfitError(None, "names a key twice: as a number and as text")
            return found
        if isinstance(value, list | tuple):
            return [self._copy_inside(item, depth, number) for number, item in enumerate(value)]
        raise _UnfitError(str(value), "must be text, a number, true or false, a list, or a section")

    def _copy_inside(self, value: Any, depth: int, step: str | int) -> Any:
        """Copy ``value``, an item one level below ``depth``.

        ``step``, its key or index, enters the path of an error.
        """
        try:
            return self.copy(value, depth + 1)
        except _UnfitError as error:
            error.way.append(step)
            raise


def _checked_key(key: Any) -> str:
    """The key of a mapping as text: a word, or a whole number from 0.

    Raises:
        _UnfitError: it is anything else.
    """
    if isinstance(key, str):
        return _checked_text(key)
    if isinstance(key, int) and not isinstance(key, bool) and 0 <= key <= MAX_KEY:
        return str(key)
    hint = " (YAML reads yes, no, on and off as booleans)" if isinstance(key, bool) else ""
    unfit = _UnfitError(None, f"a key must be a word, or a whole number of 0 or more{hint}")
    too_long = isinstance(key, int) and key.bit_length() > _MAX_BITS
    unfit.way.append("…" if too_long else str(key).lower() if isinstance(key, bool) else str(key))
    raise unfit


def _checked_text(text: str) -> str:
    """``text`` if it has no control characters; else `_UnfitError`."""
    if not text.isprintable() and (found := _UNFIT.search(text)) is not None:
        allowed = f"must be one line of text without control characters; {found[0]!a} is one"
        raise _UnfitError(text, allowed)
    return text


def _checked_int(number: int) -> int:
    """``number`` if it is not too long to write; else `_UnfitError`."""
    if number.bit_length() > _MAX_BITS:
        raise _UnfitError(None, f"must be a number of at most {MAX_DIGITS} digits")
    return number


def join(place: str, key: str) -> str:
    """The dotted key of ``key`` in the section ``place``; unprintable characters escaped, a long key cut."""
    key = key if len(key) <= MAX_DIGITS else key[: MAX_DIGITS - 1] + "…"
    key = key if key.isprintable() and key else repr(key)[1:-1] or "''"
    return f"{place}.{key}" if place else key


def decimal(text: str) -> int | None:
    """``text`` as a number if it is 1 to 18 decimal digits and nothing else; otherwise ``None``."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def parse_json(text: str, place: str, *, most: int = MAX_VALUES) -> Any:
    """The value that a JSON text holds, as dicts, lists and scalars.

    Args:
        text: one JSON document.
        place: the file or option, for errors.
        most: largest number of values in it.

    Raises:
        SpecError: ``text`` is not JSON, repeats a key, holds NaN or an infinity, or is refused by `plain`.
    """
    try:
        value = json.loads(text, object_pairs_hook=_dict_without_repeats, parse_constant=_refuse_constant)
    except RecursionError:
        raise SpecError(place, None, "is nested too deeply") from None
    except ValueError as error:
        raise SpecError(place, None, f"is not JSON: {error}") from None
    return plain(value, place, most=most)


def _dict_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a JSON object as a dict; `ValueError` if a key is repeated."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice[:80]!r} is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    """Raise `ValueError` for ``name``, one of the JSON extensions NaN, Infinity and -Infinity."""
    raise ValueError(f"{name} is no JSON number")

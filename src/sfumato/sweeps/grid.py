"""The points of a sweep: what varies is read into axes, and the points are their combinations."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.spec.words_of_keys import WORDS
from sfumato.user_text import parse_yaml, plain

MAX_POINTS = 10_000
_MAX_NAME, _MAX_KEYS = 120, 100
_SYNTAX = "must be KEY=A,B,... or, for keys varied together, KEY1,KEY2=A1:A2,B1:B2,..."

Over = Mapping[str | tuple[str, ...], Sequence[Any]]
"""``{"key": [a, b]}``; keys varied together: ``{("key1", "key2"): [(a1, a2), (b1, b2)]}``."""


@dataclass(frozen=True)
class Axis:
    """Keys of a spec that vary together, and their values.

    Attributes:
        keys: dotted, at least one.
        settings: at least one; each has one value for each key.
    """

    keys: tuple[str, ...]
    settings: tuple[tuple[Any, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Axis:
        """The axis of one ``--over``: ``key=a,b``, or ``key1,key2=a1:a2,b1:b2`` for keys that vary together.

        Values are YAML, as in ``--set``; commas and colons inside brackets, braces or quotes do not divide.

        Raises:
            SpecError: ``text`` has neither form.
        """
        written, equals, values = text.partition("=")
        keys = tuple(key.strip() for key in written.split(","))
        place = Argument("over", key=written.strip() if equals else text)
        if not equals:
            raise SpecError(place, None, _SYNTAX)
        if not all(map(_is_path, keys)):
            raise SpecError(place, None, f"a key is missing; {_SYNTAX}")
        steps = []
        for step in _split_outside_brackets(values, ",", place):
            parts = _split_outside_brackets(step, ":", place) if len(keys) > 1 else [step]
            if any(not part.strip() for part in parts):
                raise SpecError(place, values, f"a value is missing; {_SYNTAX}")
            steps.append(tuple(plain(parse_yaml(part, str(place)), str(place)) for part in parts))
        return cls._checked(keys, tuple(steps), place)

    @classmethod
    def of(cls, keys: str | tuple[str, ...], values: Sequence[Any]) -> Axis:
        """The axis of one entry of the mapping ``over``: a key, or keys that vary together, and their values.

        Raises:
            SpecError: there are no keys or no values, a value cannot be in a spec, or a setting does not have
                one value for each key.
        """
        together = (keys,) if isinstance(keys, str) else tuple(keys)
        place = Argument("over", key=",".join(together))
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise SpecError(place, values, "must be a list of values")
        steps = [(value,) if isinstance(keys, str) else value for value in values]
        for step in steps:
            if not isinstance(step, tuple | list):
                raise SpecError(place, step, f"must have {len(together)} values, one for each key")
        copied = tuple(tuple(plain(value, str(place)) for value in step) for step in steps)
        return cls._checked(together, copied, place)

    @classmethod
    def _checked(cls, keys: tuple[str, ...], steps: tuple[tuple[Any, ...], ...], place: Argument) -> Axis:
        """The axis of ``keys`` with the settings ``steps``, each one value for every key, after a check.

        Args:
            keys: dotted.
            steps: the settings.
            place: the argument, for errors.

        Raises:
            SpecError: there are no keys or settings, too many, one of another length, one that is given
                twice, or a number that is not finite.
        """
        if not keys or not all(map(_is_path, keys)):
            raise SpecError(place, None, "a key is missing")
        if not steps:
            raise SpecError(place, None, "must have at least one value")
        if len(steps) > MAX_POINTS:
            raise SpecError(place, f"{len(steps):,} values", f"must be at most {MAX_POINTS:,}")
        for step in steps:
            if len(step) != len(keys):
                said = ":".join(map(as_yaml, step))
                allowed = f"must have {len(keys)} values, one for each key, with : between them"
                raise SpecError(place, said, allowed)
        try:
            texts = [_as_json(step) for step in steps]
        except ValueError:
            raise SpecError(
                place, None, "must be finite numbers; for no noise use privacy.noise=none"
            ) from None
        for repeated, times in Counter(texts).items():
            if times > 1:
                step = steps[texts.index(repeated)]
                raise SpecError(place, ":".join(map(as_yaml, step)), "is given twice")
        return cls(keys, steps)


@dataclass(frozen=True)
class Point:
    """One point of a grid.

    Attributes:
        name: of its folder; it depends on the point's values and the swept keys, not on other points.
        values: key and value, in the order of the axes.
    """

    name: str
    values: tuple[tuple[str, Any], ...]

    @property
    def overrides(self) -> tuple[str, ...]:
        """The values of the point as texts ``key=value``, as `load_spec` takes them; values are JSON."""
        return tuple(f"{key}={_as_json(value)}" for key, value in self.values)


def grid(axes: Sequence[Axis]) -> tuple[Point, ...]:
    """One point for every combination of the axes' settings; the last axis varies fastest.

    Raises:
        SpecError: no axes, too many keys, a key in two axes, or more than ``MAX_POINTS`` points.
    """
    if not axes:
        allowed = "needs a key and its values, e.g. {'privacy.noise.multiplier': [1, 2]}"
        raise SpecError(Argument("over"), None, allowed)
    keys = [key for axis in axes for key in axis.keys]
    if len(keys) > _MAX_KEYS:
        raise SpecError(Argument("over"), f"{len(keys):,} keys", f"must be at most {_MAX_KEYS}")
    for key in keys:
        if keys.count(key) > 1:
            raise SpecError(Argument("over", key=key), None, "is varied twice")
    size = math.prod(len(axis.settings) for axis in axes)
    if size > MAX_POINTS:
        said = f"{size:,} points" if size < 10**15 else f"about 1e{math.log10(size):.0f} points"
        raise SpecError(Argument("over"), said, f"must be at most {MAX_POINTS:,}: each point is a run")
    short = short_names(keys)
    points = []
    for steps in itertools.product(*(axis.settings for axis in axes)):
        values = [value for step in steps for value in step]
        points.append(Point(_folder_name(short, values), tuple(zip(keys, values, strict=True))))
    return tuple(points)


def short_names(keys: Sequence[str]) -> tuple[str, ...]:
    """For each dotted key its shortest end, in whole parts, that no other of ``keys`` ends in.

    Of ``privacy.noise.epsilon`` and ``training.rounds`` they are ``epsilon`` and ``rounds``. A key that is
    the end of another one stays whole. There is at least one key.
    """
    paths = [key.split(".") for key in keys]
    longest = max(map(len, paths))
    names = list(keys)
    for i, path in enumerate(paths):
        for length in range(1, longest + 1):
            end = path[-length:]
            if sum(other[-length:] == end for other in paths) == 1:
                names[i] = ".".join(end)
                break
    return tuple(names)


def key_words(keys: Sequence[str]) -> tuple[str, ...]:
    """For each of ``keys`` its name for people: that in `WORDS`, else its short name without underscores."""
    plain = [name.replace("_", " ") for name in short_names(keys)]
    return tuple(WORDS.get(key, name) for key, name in zip(keys, plain, strict=True))


def as_yaml(value: Any) -> str:
    """A value as it is written in a spec: YAML on one line; text as it is."""
    if isinstance(value, str):
        return value
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
    return text.removesuffix("\n").removesuffix("\n...")


def _as_json(value: Any) -> str:
    """``value`` as JSON, which is YAML too: equal for equal values."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)


def _folder_name(keys: Iterable[str], values: Sequence[Any]) -> str:
    """The name of a point's folder: ``key=value,...`` of ``keys`` and ``values``.

    Of one that is longer than 120 characters, or has other signs than those of file names, its beginning and
    8 digits of a hash.
    """
    text = ",".join(f"{key}={as_yaml(value)}" for key, value in zip(keys, values, strict=True))
    plain = re.sub(r"[^A-Za-z0-9._+=,-]+", "-", text)
    if plain == text and len(text) <= _MAX_NAME:
        return text
    digest = hashlib.sha256(_as_json(list(values)).encode()).hexdigest()[:8]
    return f"{plain[:_MAX_NAME]}-{digest}"


def _is_path(key: str) -> bool:
    """Whether a key consists of words with dots between them."""
    return all(key.split("."))


def _split_outside_brackets(text: str, separator: str, place: Argument) -> list[str]:
    """The parts of ``text`` between separators that are outside brackets, braces and quotes.

    ``place``: the argument, for errors.
    """
    parts, start, depth, quote = [], 0, 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and text[:at].rstrip()[-1:] in ("", *"[{,:"):
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    if quote or depth:
        raise SpecError(place, text, "has a bracket or quote that is not closed")
    return [*parts, text[start:]]

"""Reads YAML of a user's file or option: one document of bounded size, without repeated keys and tags.

The text is read twice: first as a stream of events, in which values, levels and aliases are counted; then by
PyYAML's safe loader. Both use libyaml if PyYAML has it, which is ten times as fast.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

from sfumato.errors import SpecError, first_line
from sfumato.user_text.files import MAX_BYTES
from sfumato.user_text.values import MAX_DEPTH, MAX_DIGITS, MAX_VALUES

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LEFT_AS_TEXT = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")


def parse_yaml(text: str, place: str) -> Any:
    """The value that a YAML text holds: mappings, lists, strings, numbers, booleans, null.

    Args:
        text: one YAML document.
        place: the file name or the option, for errors.

    Raises:
        SpecError: ``text`` is not YAML, repeats a key, has a tag, is larger than ``MAX_BYTES``, or grows past
            ``MAX_VALUES`` values (aliases counted as often as they are used) or ``MAX_DEPTH`` levels.
    """
    if len(text) > MAX_BYTES:
        raise SpecError(place, None, f"is longer than {MAX_BYTES // 2**20} MiB, the most that is read")
    try:
        structure = _StructureCounter()
        for event in yaml.parse(text, Loader=_Base):
            structure.count_event(event)
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        said = ", ".join(part for part in (error.context, error.problem) if part)
        if mark is not None and any("\t" in line for line in text.splitlines()[mark.line : mark.line + 1]):
            said += "; indent with spaces, not with tabs"
        raise SpecError(place + where, None, f"is not valid YAML: {said}") from None
    except _RefusedError as refused:
        raise SpecError(f"{place}, line {refused.line}", None, refused.allowed) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise SpecError(place, None, f"is not valid YAML: {first_line(error)}") from None


class _RefusedError(Exception):
    def __init__(self, mark: Any, allowed: str) -> None:
        self.line = 1 if mark is None else mark.line + 1
        self.allowed = allowed
        super().__init__(allowed)


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet.

    Attributes:
        anchor: of the mapping or list, if it has one.
        before: values counted before it.
        height: levels below it up to now.
        keys: of a mapping, with their lines; ``None`` for a list.
        key_is_next: whether a mapping's key comes next.
    """

    anchor: str | None
    before: int
    height: int = 0
    keys: dict[str, int] | None = None
    key_is_next: bool = True


@dataclass
class _StructureCounter:
    """Counts the values and levels of a document, aliases as often as they are used."""

    values: int = 0
    open: list[_Open] = field(default_factory=list)
    anchored: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    """By anchor: values and levels; ``None`` while it is open."""

    def count_event(self, event: yaml.Event) -> None:
        """Count one event.

        Raises:
            _RefusedError: it has a tag, is an invalid or repeated key, or exceeds a limit.
        """
        match event:
            case yaml.AliasEvent():
                size, height = self._size_of_alias(event)
                self._count_value(event, size, height)
            case yaml.ScalarEvent():
                self._refuse_tag(event)
                self._count_value(event, 1, 1)
                if event.anchor is not None:
                    self.anchored[event.anchor] = (1, 1)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._refuse_tag(event)
                self._count_value(event, 1, 1)
                keys: dict[str, int] | None = {} if isinstance(event, yaml.MappingStartEvent) else None
                self.open.append(_Open(event.anchor, self.values - 1, keys=keys))
                if event.anchor is not None:
                    self.anchored[event.anchor] = None
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close_collection()

    def _refuse_tag(self, event: yaml.NodeEvent) -> None:
        """Raise `_RefusedError` if a node has a tag."""
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _RefusedError(
                event.start_mark, f"tags such as {tag[:80]!r} are not read: write the value only"
            )

    def _size_of_alias(self, event: yaml.AliasEvent) -> tuple[int, int]:
        """The number of values, and the height in levels, of what an alias refers to.

        Raises:
            _RefusedError: the alias is inside of it.
        """
        found = self.anchored.get(event.anchor or "", (1, 1))  # the loader reports an anchor that is missing
        if found is None:
            raise _RefusedError(event.start_mark, "an alias must not refer to what it is part of")
        return found

    def _count_value(self, event: yaml.NodeEvent, size: int, height: int) -> None:
        """Count a value, or a key, at the present level: ``size`` values that are ``height`` levels high.

        Raises:
            _RefusedError: there are too many, or they are too deep.
        """
        self.values += size
        if self.values > MAX_VALUES:
            allowed = f"holds more than {MAX_VALUES:,} values (aliases counted where they are used)"
            raise _RefusedError(event.start_mark, allowed)
        if len(self.open) + height > MAX_DEPTH:
            raise _RefusedError(event.start_mark, f"sections and lists may be at most {MAX_DEPTH} deep")
        if not self.open:
            return
        inside = self.open[-1]
        inside.height = max(inside.height, height)
        if inside.keys is None:
            return
        if inside.key_is_next:
            self._note_key(event, inside.keys)
        inside.key_is_next = not inside.key_is_next

    def _note_key(self, event: yaml.NodeEvent, keys: dict[str, int]) -> None:
        """Record a key of a mapping with its line in ``keys``.

        Raises:
            _RefusedError: it is no plain word, or repeated.
        """
        if not isinstance(event, yaml.ScalarEvent):
            raise _RefusedError(event.start_mark, "a key must be a plain word")
        if event.value in keys:
            allowed = f"key {event.value[:80]!r} is given twice (first in line {keys[event.value]})"
            raise _RefusedError(event.start_mark, allowed)
        mark: Any = event.start_mark
        keys[event.value] = mark.line + 1

    def _close_collection(self) -> None:
        """End the innermost mapping or list, and record its size if it has an anchor."""
        closed = self.open.pop()
        height = closed.height + 1
        if closed.anchor is not None:
            self.anchored[closed.anchor] = (self.values - closed.before, height)
        if self.open:
            self.open[-1].height = max(self.open[-1].height, height)


class _Loader(_Base):  # type: ignore[misc]
    """The safe loader, with dates and ``=`` read as text, and numbers of bounded length."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - how PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_AS_TEXT]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _constructor_of_short_numbers(kind: str) -> Any:
    """PyYAML's constructor of ``kind`` (int or float), which refuses numbers of too many digits."""
    read = yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def construct(loader: Any, node: yaml.ScalarNode) -> Any:
        if len(node.value) > MAX_DIGITS:
            raise _RefusedError(node.start_mark, f"a number may have at most {MAX_DIGITS} digits")
        return read(loader, node)

    return construct


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _constructor_of_short_numbers(_kind))


class KeyLines:
    """The lines of a file's keys; the file is read when the first line is asked for.

    Args:
        text: a YAML document that could be read; ``None`` for no file.
    """

    def __init__(self, text: str | None) -> None:
        """Keep the YAML text, which is parsed when a line is first asked for; ``None``: there is no text."""
        self._text = text

    def of(self, place: str) -> str:
        """Where a key stands in the text, as `` (line 12)``; of a missing key, its section's line.

        Args:
            place: keys with dots between them, entries of lists as ``[0]``.

        Returns:
            "" where no part of ``place`` is in the text.
        """
        node, line = self._root, None
        for part in re.findall(r"[^.\[\]]+", place):
            found = _inside(node, part)
            if found is None:
                break
            line, node = found
        return "" if line is None else f" (line {line})"

    @cached_property
    def _root(self) -> yaml.Node | None:
        """The root node of the text; ``None`` without a text."""
        return None if self._text is None else yaml.compose(self._text, Loader=_Base)


def _inside(node: yaml.Node | None, part: str) -> tuple[int, yaml.Node] | None:
    """The line (from 1) and the value of a key or an entry ``part`` of ``node``; ``None`` if it has none."""
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
        entry = node.value[int(part)]
        return entry.start_mark.line + 1, entry
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line + 1, value
    return None

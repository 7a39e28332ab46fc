"""YAML as a spec may use it: one document, no duplicate keys, bounded size; or one clear SpecError."""

from __future__ import annotations

from typing import Any

import yaml

from sfumato.errors import SpecError

MAX_BYTES = 8 * 2**20
MAX_DEPTH = 32
MAX_NODES = 1_000_000


def parse(text: str, place: str) -> Any:
    """The value that ``text`` holds: mappings, lists, strings, numbers, booleans, null.

    Args:
        text: one YAML document.
        place: what to blame in errors, a file name or an option.

    Raises:
        SpecError: ``text`` is not YAML, repeats a key, or grows past ``MAX_NODES`` values (aliases
            counted as often as they are used) or ``MAX_DEPTH`` levels.
    """
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(place + where, None, f"is not valid YAML: {said}") from None
    except _RefusedError as refused:
        raise SpecError(f"{place}, line {refused.line}", None, refused.allowed) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecError(place, None, f"is not valid YAML: {said}") from None


class _RefusedError(Exception):
    def __init__(self, mark: yaml.Mark | None, allowed: str) -> None:
        self.line = 1 if mark is None else mark.line + 1
        self.allowed = allowed
        super().__init__(allowed)


class _Loader(yaml.SafeLoader):
    """SafeLoader that counts what it composes before anything is built, and takes dates for text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - how PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        before = self._nodes
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _RefusedError(mark, f"sections and lists may be at most {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if alias:
            if id(node) not in self._sizes:
                raise _RefusedError(mark, "an alias must not refer to what it is part of")
            self._nodes += self._sizes[id(node)]
        else:
            self._nodes += 1
            self._sizes[id(node)] = self._nodes - before
        if self._nodes > MAX_NODES:
            allowed = f"holds more than {MAX_NODES:,} values (aliases counted where they are used)"
            raise _RefusedError(mark, allowed)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _RefusedError(key.start_mark, "a key must be a plain word")
            if key.value in lines:
                first = lines[key.value]
                raise _RefusedError(
                    key.start_mark, f"key {key.value!r} is given twice (first in line {first})"
                )
            lines[key.value] = key.start_mark.line + 1
        return node


def plain(value: Any, place: str) -> Any:
    """A copy of ``value`` in dicts, lists and scalars, as a spec's models take it.

    Raises:
        SpecError: at ``place`` (dotted down to the culprit) there is something no spec can hold.
    """
    budget = MAX_NODES

    def copy(value: Any, place: str, depth: int) -> Any:
        nonlocal budget
        budget -= 1
        if depth > MAX_DEPTH or budget < 0:
            raise SpecError(place, None, f"is too large: at most {MAX_DEPTH} deep and {MAX_NODES:,} values")
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    shown = str(key).lower() if isinstance(key, bool) else str(key)
                    hint = " (YAML reads yes, no, on and off as booleans)" if isinstance(key, bool) else ""
                    raise SpecError(join(place, shown), None, f"a key must be a word{hint}")
            return {key: copy(item, join(place, key), depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [copy(item, f"{place}[{number}]", depth + 1) for number, item in enumerate(value)]
        if value is None or isinstance(value, str | int | float):
            return value
        raise SpecError(place, str(value), "must be text, a number, true or false, a list, or a section")

    return copy(value, place, 1)


def join(place: str, key: str) -> str:
    """``place`` one key deeper; what cannot be printed is escaped."""
    key = key if key.isprintable() else repr(key)[1:-1]
    return f"{place}.{key}" if place else key

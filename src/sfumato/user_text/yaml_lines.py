"""Where a key of a YAML file is: the line that an error is about."""

from __future__ import annotations

import re
from functools import cached_property

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML has it, is ten times as fast


class KeyLines:
    """The lines of a file's keys; the file is read when the first line is asked for.

    Args:
        text: a YAML document that could be read; ``None`` for no file.
    """

    def __init__(self, text: str | None) -> None:
        self._text = text

    def of(self, place: str) -> str:
        """`` (line 12)``, the line that gives ``place``, or the section that lacks it.

        Args:
            place: keys with dots between them, entries of lists as ``[0]``.

        Returns:
            Nothing where no part of ``place`` is in the text.
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
        return None if self._text is None else yaml.compose(self._text, Loader=_LOADER)


def _inside(node: yaml.Node | None, part: str) -> tuple[int, yaml.Node] | None:
    """The line and the value of a key or an entry of ``node``."""
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
        entry = node.value[int(part)]
        return entry.start_mark.line + 1, entry
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return key.start_mark.line + 1, value
    return None

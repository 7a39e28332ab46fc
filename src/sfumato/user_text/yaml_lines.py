"""Where a key of a YAML file is: the line that an error is about."""

from __future__ import annotations

import re

import yaml


def in_line(text: str | None, place: str) -> str:
    """`` (line 12)``, the line in which ``text`` gives ``place``, or the section that lacks it.

    Args:
        text: a YAML document that could be read; ``None`` for no file.
        place: keys with dots between them, entries of lists as ``[0]``.

    Returns:
        Nothing where no part of ``place`` is in the text.
    """
    line = None if text is None else _line_of(text, place)
    return "" if line is None else f" (line {line})"


def _line_of(text: str, place: str) -> int | None:
    node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    for part in re.findall(r"[^.\[\]]+", place):
        found = _inside(node, part)
        if found is None:
            return line
        line, node = found
    return line


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

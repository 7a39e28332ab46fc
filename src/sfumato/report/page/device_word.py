"""Devices are called by the word of their network on a whole page: sites, or workers of groups."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sfumato.report.page.html import replaced_in_text

_DEVICE = re.compile(r"(?<![\w./:-])(?<!unit: )([Dd])evice(s?)\b(?!:)")
"""The noun, but in names of parties (``device:0``), keys (``topology.devices``) and ``unit: device``."""


_WORKER = re.compile(r"(?<![\w./:-])device:(\d+)\b")


def with_device_word(sections: Sequence[str], word: str) -> list[str]:
    """The HTML ``sections`` with devices called ``word`` in all text outside ``<pre>``.

    Workers of groups are numbered in text as in drawings: ``device:0`` is "worker 0" there.
    """
    if word == "device":
        return list(sections)

    def renamed(found: re.Match[str]) -> str:
        return f"{word.capitalize() if found[1] == 'D' else word}{found[2]}"

    changed = [replaced_in_text(_DEVICE, renamed, section) for section in sections]
    if word != "worker":
        return changed
    return [replaced_in_text(_WORKER, lambda found: f"worker {found[1]}", one) for one in changed]

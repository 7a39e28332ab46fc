"""Parties are called by words on a whole page: devices by that of their network, such as sites; numbered
parties as in drawings, ``edge:0`` being "edge 0".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sfumato.report.page.html import replaced_in_text

_DEVICE = re.compile(r"(?<![\w./:-])(?<!unit: )([Dd])evice(s?)\b(?!:)")
"""The noun, but in names of parties (``device:0``), keys (``topology.devices``) and ``unit: device``."""


_NUMBERED = re.compile(r"(?<![\w./:-])([A-Za-z][a-z0-9_-]*):(\d+)\b(?!/)")
"""The name of a party without a title, but not of devices under it (``edge:3/devices``)."""

_BARE = re.compile(r"\b([Tt]owards|that|like) (cloud|public)\b")
"""Observers without an article, as in reasons that are written with names."""


def with_words_for_parties(sections: Sequence[str], word: str) -> list[str]:
    """A list: the HTML ``sections`` with parties in words, and devices called ``word``.

    ``edge:0`` becomes "edge 0", and with the word ``site`` "device" becomes "site". Tags and ``<pre>`` stay
    as they are.
    """

    def renamed(found: re.Match[str]) -> str:
        """The word for a device, in the number and case of what was found."""
        return f"{word.capitalize() if found[1] == 'D' else word}{found[2]}"

    def numbered(found: re.Match[str]) -> str:
        """A party with its number: "edge 0" for ``edge:0``."""
        in_groups = word == "worker" and found[1].lower() == "device"
        return f"{('Worker' if found[1][0] == 'D' else word) if in_groups else found[1]} {found[2]}"

    changed = list(sections)
    if word != "device":
        changed = [replaced_in_text(_DEVICE, renamed, section) for section in changed]
    changed = [replaced_in_text(_NUMBERED, numbered, section) for section in changed]
    return [replaced_in_text(_BARE, lambda found: f"{found[1]} the {found[2]}", one) for one in changed]

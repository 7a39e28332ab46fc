"""The names of grouped protocols, and the releases that each of them makes.

A variant from outside this package has a name of its own and makes the releases of one of the four protocols
here: it is accounted for as that protocol.
"""

from __future__ import annotations

from typing import get_args

from sfumato.errors import SpecError
from sfumato.families import GROUPS
from sfumato.privacy.groups.facts import GroupedKind

KIND_OF: dict[str, GroupedKind] = {kind: kind for kind in get_args(GroupedKind)}
"""The protocol whose releases a protocol makes."""


def add_variant(name: str, releases_of: GroupedKind) -> None:
    """Let specs name a variant of a grouped protocol.

    Args:
        name: of the variant, as in ``protocol: NAME``.
        releases_of: the protocol whose releases it makes.

    Raises:
        SpecError: the name is taken, or there is no such protocol.
    """
    if releases_of not in KIND_OF:
        raise SpecError("releases_of", releases_of, f"must be one of {', '.join(KIND_OF)}")
    if KIND_OF.get(name, releases_of) != releases_of or name in set(KIND_OF.values()):
        raise SpecError("protocol", name, "is taken: a variant needs a name of its own")
    KIND_OF[name] = releases_of
    GROUPS.protocols[name] = GROUPS.protocols[releases_of]

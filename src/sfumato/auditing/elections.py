"""Elected supernodes in an audit: what offices a coalition's members may hold in a round, by chance.

A zone's supernodes of a round are the first few of a random order of its devices; how many serve (one, unless
they fail) is public and has nothing to do with who they are. So a zone of m devices, j of them members, of
whom k serve, has a member in office with probability 1 - C(m - j, k) / C(m, k), independently of other zones.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party

Parties = tuple[Party, ...]
_MOST_ZONES = 4


def coalition_outcomes(
    tree: Tree, unit: int, coalition: Parties, terms: Sequence[Sequence[int]]
) -> list[tuple[float, Parties]]:
    """The coalition with every set of offices that its devices may hold, and the chance of it; none first.

    A member ``edge:c`` stands for whoever else than the unit holds that office: a device that knows its own
    noise. In a round in which the unit itself does, nobody in the coalition hears what arrives there.

    Args:
        tree: who is where.
        unit: the target.
        coalition: who listens together.
        terms: for each zone, which of its devices served in the round; empty without elections.

    Raises:
        SpecError: members in more zones than there is room for: every set of zones is played.
    """
    if not terms:
        return [(1.0, coalition)]
    last = tree.depth - 1
    named = {p.index for p in coalition if p.kind == "node" and p.tier == last}
    members = tuple(p for p in coalition if p.kind != "node" or p.tier != last)
    for zone in sorted(named):
        holders = [Party("device", 0, device) for device in terms[zone] if device != unit]
        if holders:
            members += (Party("node", last, zone), *(h for h in holders if h not in members))
    devices = Counter(tree.leaf_of(p.index) for p in coalition if p.kind == "device")
    chances = {
        zone: _probability(int(tree.devices[zone]), count, len(terms[zone]))
        for zone, count in sorted(devices.items())
        if zone not in named
    }
    if len(chances) > _MOST_ZONES:
        name = tree.tiers[last].name
        raise SpecError(
            "--observer",
            ",".join(f"device:{p.index}" for p in coalition if p.kind == "device"),
            f"must have its devices in at most {_MOST_ZONES} zones where supernodes are elected: an audit "
            f"plays every set of offices that they may hold; name {name}:C for zone C's office held anyway",
        )
    found = []
    for held in itertools.product((False, True), repeat=len(chances)):
        factors = [p if holds else 1 - p for holds, p in zip(held, chances.values(), strict=True)]
        offices = (Party("node", last, zone) for zone, holds in zip(chances, held, strict=True) if holds)
        found.append((math.prod(factors), (*members, *offices)))
    return found


def _probability(devices: int, members: int, serving: int) -> float:
    return 1 - math.comb(devices - members, serving) / math.comb(devices, serving)

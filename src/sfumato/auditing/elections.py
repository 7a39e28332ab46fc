"""Elected supernodes in an audit: the offices that a coalition's members may hold, with probabilities.

The supernodes of a zone in a round are the first k devices of a random order. Their number k (one, unless
some fail) is public and independent of which devices they are. So if j of a zone's m devices are members of
the coalition, one of them holds the office with probability 1 - C(m - j, k) / C(m, k), independently of
other zones.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

from sfumato.arguments import Argument
from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party

_MOST_ZONES = 4


def coalition_outcomes(
    tree: Tree, unit: int, coalition: tuple[Party, ...], terms: Sequence[Sequence[int]]
) -> list[tuple[float, tuple[Party, ...]]]:
    """The coalition with every set of supernode offices that its devices may hold, and their probabilities.

    The first entry is the coalition without any office. A member ``edge:c`` stands for the device other than
    the unit that holds the office of zone c, and knows its own noise. In a round in which the unit itself
    holds that office, the coalition does not receive what arrives there.

    Args:
        tree: the network.
        unit: the target.
        coalition: the colluding observers.
        terms: for each zone, the devices that served in the round; empty without elections.

    Returns:
        (probability, coalition) for each set of offices; the probabilities add up to 1.

    Raises:
        SpecError: the coalition has devices in too many zones: every set of zones is simulated.
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
        zone: _probability_of_office(int(tree.devices[zone]), count, len(terms[zone]))
        for zone, count in sorted(devices.items())
        if zone not in named
    }
    if len(chances) > _MOST_ZONES:
        name = tree.tiers[last].name
        raise SpecError(
            Argument("observers"),
            ",".join(f"device:{p.index}" for p in coalition if p.kind == "device"),
            f"may have devices in at most {_MOST_ZONES} zones with elected supernodes: an audit simulates "
            f"every set of offices that they may hold; name {name}:C if the coalition holds zone C's office",
        )
    found = []
    for held in itertools.product((False, True), repeat=len(chances)):
        factors = [p if holds else 1 - p for holds, p in zip(held, chances.values(), strict=True)]
        offices = (Party("node", last, zone) for zone, holds in zip(chances, held, strict=True) if holds)
        found.append((math.prod(factors), (*members, *offices)))
    return found


def _probability_of_office(devices: int, members: int, serving: int) -> float:
    """The probability that at least one member of the coalition is among the supernodes of a zone.

    Args:
        devices: how many the zone has.
        members: how many of them are in the coalition.
        serving: how many devices are drawn as supernodes, without replacement.
    """
    return 1 - math.comb(devices - members, serving) / math.comb(devices, serving)

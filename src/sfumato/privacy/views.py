"""Which vectors a coalition receives: asked by the accountant, and by whoever records a view for an attack.

A view says *where* vectors are received, never lists devices: it is as small as the coalition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class View:
    """What a coalition receives in one aggregation, and what its members themselves send in it.

    Tiers are those of the topology, 0 at the top; devices are one tier below the lowest aggregators. In
    groups masters are tier 1 and workers tier 2.

    Attributes:
        single: aggregators ``(tier, index)`` in the coalition that receive every child's message by itself.
        summed: those that meet only the sum of their children's messages, without noise of their own.
        averages: aggregators ``(tier, index)`` whose average, own noise in it, is broadcast to a member.
        senders: members that send, ``(tier, index)``: they know their own message, and its noise.
    """

    single: frozenset[tuple[int, int]]
    summed: frozenset[tuple[int, int]]
    averages: frozenset[tuple[int, int]]
    senders: frozenset[tuple[int, int]]

    def how(self, tier: int, index: int) -> Literal["single", "sum"] | None:
        """How messages reach an aggregator's members of the coalition; ``None``: it is not in it."""
        if (tier, index) in self.single:
            return "single"
        return "sum" if (tier, index) in self.summed else None

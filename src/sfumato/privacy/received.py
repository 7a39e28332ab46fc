"""What a coalition receives: by itself or summed up, and whether it learns who was drawn.

These rules hold for trees and for groups alike; whoever records a view for an attack asks them too. What
each way of sending messages to an aggregator shows, beyond the sum, and to whom:

==================  ================================  =========================================
hop                 the aggregator receives           other senders to the same aggregator see
==================  ================================  =========================================
plain               every message by itself           nothing
secure-aggregation  the sum, unless enough senders    who takes part
                    collude with it
air                 the sum                           nothing
==================  ================================  =========================================

Under secure aggregation every party gives shares of the secrets behind its masks to the other parties of the
session, so that the sum survives dropouts. Whoever holds a threshold of a party's shares, and the masked
message, can take the masks off. The messages reach the aggregator, the shares its senders.

A hidden draw amplifies only where the noise counted has the same law whether the unit is drawn or not, and
whether or not a sum is sent says nothing of it (docs/accounting.md, "Sampling").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from sfumato.privacy.sampling import Sampling

Hop: TypeAlias = Literal["plain", "secure-aggregation", "air"]


def hides_messages(hop: Hop, *, colluders: int, threshold: int | None) -> bool:
    """Whether an aggregator receives only the sum of its senders' messages.

    Args:
        hop: how messages reach it.
        colluders: senders to it that share what they know with it.
        threshold: of shares that take a party's masks off; ``None``: none do.
    """
    if hop == "plain":
        return False
    return hop == "air" or threshold is None or colluders < threshold


def senders_see_the_draw(hop: Hop) -> bool:
    """Whether the senders to one aggregator over ``hop`` learn who else sends to it."""
    return hop == "secure-aggregation"


@dataclass(frozen=True)
class CoalitionView:
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
        """How the messages of its children reach the aggregator ``(tier, index)``, as the coalition learns.

        Returns:
            ``single``: each message by itself; ``sum``: only their sum; ``None``: the coalition learns
            neither.
        """
        if (tier, index) in self.single:
            return "single"
        return "sum" if (tier, index) in self.summed else None


def hides_draw(hop: Hop, *, drawn_by_a_member: bool, peers: int) -> bool:
    """Whether a coalition never learns which devices were drawn.

    Args:
        hop: how the drawn devices' messages reach their aggregator.
        drawn_by_a_member: whether a member draws the participants or receives the list.
        peers: members among the devices drawn from.
    """
    return not drawn_by_a_member and not (peers > 0 and senders_see_the_draw(hop))


def noise_is_draw_independent(
    kind: Literal["all", "poisson", "fixed"],
    *,
    sender_variances: Iterable[float],
    drawn: float,
    guaranteed: int,
    always_sent: bool = True,
    divides_by_drawn: bool = False,
    revealed_otherwise: bool = False,
) -> bool:
    """Whether the noise counted in a sum has the same distribution whether the unit is drawn or not.

    Where everybody takes part there is no draw to hide. A fixed number of devices that all add as much noise
    leaves the same noise whoever they are. Under Poisson sampling the unit's own noise is there when the unit
    is, and where a sum may be missing, that it is there may be the unit's doing.

    Args:
        kind: of the draw.
        sender_variances: of the noise that each class of those drawn from adds to its message.
        drawn: how many are drawn.
        guaranteed: how many are sure to be in a sum that is released.
        always_sent: whether the sum is sent whoever is drawn.
        divides_by_drawn: whether what it is divided by depends on who is drawn.
        revealed_otherwise: whether something else than messages shows who is drawn.
    """
    variances = tuple(sender_variances)
    if kind == "all":
        return True
    if revealed_otherwise:
        return False
    if kind == "poisson":
        return always_sent and guaranteed == 0 and not any(variances)
    if not any(variances):
        return True
    return not divides_by_drawn and min(variances) == max(variances) and guaranteed == drawn


@lru_cache(maxsize=1 << 12)
def fixed_draw(*, devices: int, sample: int, members: int, hidden: bool) -> Sampling:
    """A draw of ``sample`` of ``devices`` as it amplifies towards a coalition with ``members`` of them.

    Members know that they were not drawn (or were, which leaves even less room for the unit): among the
    others the unit is one of fewer. Where all devices are members (of a group that the unit is not in), one
    that is drawn for sure stands for whoever moves the sum: nothing is amplified.

    Args:
        devices: how many are drawn from.
        sample: how many are drawn.
        members: how many of ``devices`` are in the coalition.
        hidden: whether the coalition does not see who is drawn.
    """
    others = max(devices - members, 1)
    return Sampling("fixed", sample / devices, hidden, others, min(sample, others))

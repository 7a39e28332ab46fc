"""What each way of sending messages to an aggregator shows, beyond the sum, and to whom.

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
message, can take the masks off. The messages reach the aggregator, the shares its senders. These rules hold
for trees and for groups alike.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Hop: TypeAlias = Literal["plain", "secure-aggregation", "air"]


def hides_messages(hop: Hop, *, colluders: int, threshold: int | None) -> bool:
    """Whether an aggregator receives nothing but the sum.

    Args:
        hop: how messages reach it.
        colluders: senders to it that share what they know with it.
        threshold: of shares that take a party's masks off; ``None``: none do.
    """
    if hop == "plain":
        return False
    return hop == "air" or threshold is None or colluders < threshold


def senders_see_the_draw(hop: Hop) -> bool:
    """Whether who sends to an aggregator sees which others do."""
    return hop == "secure-aggregation"

"""What a draw of participants shows and what noise it leaves alone: the rules that decide whether it
amplifies.

A hidden draw amplifies only where the noise counted has the same law whether the unit is drawn or not, and
whether or not a sum is sent says nothing of it (docs/accounting.md, "Sampling").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from sfumato.privacy.draws.sampling import Sampling
from sfumato.privacy.hops import Hop, senders_see_the_draw


def hides_draw(hop: Hop, *, drawn_by_a_member: bool, peers: int) -> bool:
    """Whether a coalition never learns who was drawn.

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
    """Whether the noise counted in a sum has one law, whether the unit is drawn or not.

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
        revealed_otherwise: whether more than messages depends on who is drawn.
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


def fixed_draw(*, devices: int, sample: int, members: int, hidden: bool) -> Sampling:
    """A fixed number drawn, as a coalition with ``members`` of the devices meets it.

    Members know that they were not drawn (or were, which leaves even less room for the unit): among the
    others the unit is one of fewer. Where all devices are members (of a group that the unit is not in), one
    that is drawn for sure stands for whoever moves the sum: nothing is amplified.
    """
    others = max(devices - members, 1)
    return Sampling("fixed", sample / devices, hidden, others, min(sample, others))

"""What dropouts, thresholds and failing supernodes leave of the noise that an accountant may count on."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.network.tree import Tree
from sfumato.privacy.hops import Hop
from sfumato.spec.faults import Faults

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GuaranteedSurvivors:
    """Who is sure to be there.

    Attributes:
        least: devices sure to be in the sum of each leaf that sends, ``[leaves]``; ``None``: all drawn.
        always_sent: whether every node sends in every round.
        elections: expected number of supernodes a round in every zone, where they are elected.
    """

    least: IntArray | None = None
    all_nodes_always_send: bool = True
    elections: float = 1.0


def threshold_of(faults: Faults | None, parties: int) -> int:
    """Fewest survivors of a session of so many parties: more than 2/3, or the share that is asked for."""
    if faults is None or faults.least is None:
        return 2 * parties // 3 + 1
    return max(math.ceil(faults.least * parties - 1e-9), parties // 2 + 1)


def shares_that_unmask(faults: Faults | None, tree: Tree, drawn: FloatArray) -> tuple[IntArray, ...]:
    """How many of a node's children have to collude with it to take the masks off others' messages, by tier.

    A party shares the secrets of its masks with the whole session; a threshold of shares rebuilds them, which
    is how the sum survives dropouts. So secure aggregation protects from fewer colluders than that.

    Args:
        faults: as declared.
        tree: who is under whom.
        drawn: participants of each leaf, expected where their number is random (then nobody else's noise
            counts anyway), ``[leaves]``.
    """
    sessions = [*tree.children[:-1], np.ceil(drawn)]
    return tuple(
        np.array([threshold_of(faults, int(parties)) for parties in sizes], dtype=np.int64)
        for sizes in sessions
    )


def colluders_that_unmask(parties: int, *, drawn: bool) -> int:
    """How many workers of a group take masks off together with its master, where nobody drops out.

    Args:
        parties: workers in the group.
        drawn: whether the session is a random part of the group. Then the smallest session counts that holds
            the unit and enough colluders for its threshold: that many may happen to be drawn together.
    """
    if not drawn:
        return threshold_of(None, parties)
    return next(k for k in itertools.count(1) if threshold_of(None, k + 1) <= k)


def survival(faults: Faults | None, hop: Hop, drawn: FloatArray, *, by_chance: bool) -> GuaranteedSurvivors:
    """What ``faults`` leave of a round.

    A session of secure aggregation releases the sum of at least its threshold of messages, or none: in every
    sum that has the unit's message there are ``threshold - 1`` others. Where messages are sent one by one, or
    the number of participants is random, nobody is sure to be there. A zone below its threshold, or without a
    supernode, sends nothing. A supernode that fails has met the sum; the next takes over with probability
    ``supernodes``, and so on: at most 1/(1 - supernodes) of them on average, each uniform among the devices.

    Args:
        faults: as declared.
        hop: how devices' messages travel.
        drawn: participants of each leaf, ``[leaves]``.
        by_chance: whether that is what is expected only, as their number is random.
    """
    if faults is None:
        return GuaranteedSurvivors()
    dropping = any(faults.drop_rates)
    least = None
    if dropping:
        secure = hop == "secure-aggregation" and not by_chance
        least = np.array([threshold_of(faults, int(n)) if secure else 0 for n in drawn], dtype=np.int64)
    aborts = hop == "secure-aggregation" and dropping
    repeated = faults.when_supernode_fails == "repeat"
    return GuaranteedSurvivors(
        least, not aborts and faults.supernodes == 0, 1.0 / (1.0 - faults.supernodes) if repeated else 1.0
    )

"""Who was there in the rounds done, where faults or elections leave it open: drawn again, never forgotten.

Dropouts, failures and elections follow from the seed, never from data: nobody has to write them down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.schedule.dropouts import turnout_of
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan


@dataclass(frozen=True, eq=False)
class Attendance:
    """Realised facts of a run.

    Attributes:
        received: messages that somebody learnt, alone or in a sum, ``[rounds, aggregations, leaves]``.
        formed: which leaves had an average to send on, ``[rounds, aggregations, leaves]``.
        supernodes: devices that served every leaf as supernode, in order, by round and aggregation; no leaves
            without elections.
    """

    received: npt.NDArray[np.int64]
    formed: npt.NDArray[np.bool_]
    supernodes: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]

    @classmethod
    def of(cls, plan: TreePlan, rounds: int) -> Attendance | None:
        """Of the first ``rounds``; ``None`` where everybody drawn is there, and nobody is elected."""
        if plan.spec.faults is None and not plan.ledger.elections:
            return None
        shape = (rounds, len(plan.aggregations), plan.tree.leaf_count)
        heard, formed = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        supernodes = []
        for number in range(rounds):
            chosen = draw_participants(plan, number)
            leaves = plan.tree.leaves_of(chosen)
            found = [turnout_of(plan, number, index, chosen) for index in range(len(plan.aggregations))]
            for index, turnout in enumerate(found):
                heard[number, index] = np.bincount(leaves[turnout.received], minlength=plan.tree.leaf_count)
                formed[number, index] = turnout.formed
            supernodes.append(tuple(turnout.terms for turnout in found))
        return cls(heard, formed, tuple(supernodes))

    @property
    def survivors(self) -> npt.NDArray[np.int64]:
        """Messages in every leaf's average, 0 where none was formed, ``[rounds, aggregations, leaves]``."""
        return np.where(self.formed, self.received, 0)

    def terms(self, devices: int) -> npt.NDArray[np.int64]:
        """How many times each of ``devices`` served, failed ones included, ``[devices]``."""
        served = [device for number in self.supernodes for step in number for zone in step for device in zone]
        return np.bincount(np.array(served, dtype=np.int64), minlength=devices).astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        kept: dict[str, Any] = {"survivors": self.survivors.tolist()}
        if any(zones for number in self.supernodes for zones in number):
            kept["supernodes"] = self.supernodes
        return kept

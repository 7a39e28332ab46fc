"""The vectors that a coalition receives in overlapping groups.

The rules are stated here independently of the ledger's views, because the ledger is what an audit checks. A
master receives the message of each sampled worker; with secure aggregation only their sum, unless enough of
the session's workers collude with it to remove the masks. A worker receives the models of its groups after
every round, and knows what it sends. Only the unit's groups are recorded: nothing else depends on the unit's
message as long as all others send the same.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.auditing.harness import TARGET, ObservationKey, Observations
from sfumato.network.groups import Groups
from sfumato.privacy.observers import Party

IntArray = npt.NDArray[np.int64]


class GroupObserver:
    """Records what a coalition receives in one simulation.

    Args:
        groups: the groups and their workers.
        summed: groups whose masters receive only sums.
        unit: the target worker.
        coalition: the colluding observers.
        began: number of the first round.
    """

    def __init__(
        self, groups: Groups, summed: Set[int], unit: int, coalition: Sequence[Party], began: int
    ) -> None:
        self._unit = unit
        self._began = began
        self._groups = [int(group) for group in groups.groups_of(unit)]
        self._summed = summed
        self._masters = {party.index for party in coalition if party.kind == "node"}
        self._workers = {party.index for party in coalition if party.kind == "device"}
        self._models = self._masters | {int(g) for w in self._workers for g in groups.groups_of(w)}
        self._observations: dict[int, dict[ObservationKey, npt.NDArray[np.float64]]] = {
            g: {} for g in self._groups
        }

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Record what members send, and the unit's message if a member is the master that receives it."""
        known = self._workers | ({self._unit} if index in self._masters - self._summed else set())
        for row in np.flatnonzero(np.isin(senders, list(known))):
            self._keep(number, index, "sent", int(senders[row]), vectors[int(row)])

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Record the sums that masters in the coalition receive."""
        for group in self._masters:
            self._keep(number, group, "received", group, values[group])

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Record the models that members receive."""
        for group in self._models:
            self._keep(number, group, "broadcast", group, values[group])

    @property
    def observations(self) -> tuple[Observations, ...]:
        """The vectors received in each of the unit's groups, by round (from 0), tier, kind and sender."""
        return tuple(self._observations[group] for group in self._groups)

    def _keep(self, number: int, group: int, how: str, who: int, vector: Tensor) -> None:
        if group in self._observations:
            whose = TARGET if how == "sent" and who == self._unit else who
            self._observations[group][number - self._began, 1, how, whose] = (
                vector.detach().cpu().double().numpy()
            )

"""The vectors that a coalition receives in overlapping groups.

The rules are stated here independently of the declared views, because the declaration is what an audit
checks. A master receives the message of each sampled worker; with secure aggregation only their sum, unless
enough of the session's workers collude with it to remove the masks. A worker receives the models of its
groups after every round, and knows what it sends. Only groups whose messages depend on the unit are recorded:
the unit's own as long as all others send the same, and those that are seen where others pass on what they
learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

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
        senders: workers whose single messages are of interest: the target, or those who pass something on.
        coalition: the colluding observers.
        began: number of the first round.
        recorded: groups whose vectors are kept.
    """

    def __init__(
        self,
        groups: Groups,
        summed: Set[int],
        senders: Set[int],
        coalition: Sequence[Party],
        began: int,
        recorded: Iterable[int],
    ) -> None:
        """Work out whose messages, sums and models ``coalition`` receives; nothing is recorded yet."""
        self._senders = senders
        self._began = began
        self._summed = summed
        self._masters = {party.index for party in coalition if party.kind == "node"}
        self._workers = {party.index for party in coalition if party.kind == "device"}
        self._models = self._masters | {int(g) for w in self._workers for g in groups.groups_of(w)}
        self._observations: dict[int, dict[ObservationKey, npt.NDArray[np.float64]]] = {
            int(group): {} for group in recorded
        }

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Record the messages among ``vectors`` ``[senders, M]`` that members send, or receive as masters.

        A hook of the simulated run: called for every batch of messages. Of messages that masters receive only
        those of the unit and of workers that can link it are recorded. The other arguments are those of
        `Listener.sent`.
        """
        known = self._workers | (self._senders if index in self._masters - self._summed else set())
        for row in np.flatnonzero(np.isin(senders, list(known))):
            self._record(number, index, "sent", int(senders[row]), vectors[int(row)])

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Record the sums ``values`` ``[groups, M]`` that masters in the coalition receive in a round.

        A hook of the simulated run: called once sums are formed. The arguments are those of
        `Listener.received`.
        """
        for group in self._masters:
            self._record(number, group, "received", group, values[group])

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Record the models ``values`` ``[groups, M]`` that members receive in round ``number``.

        A hook of the simulated run: called when masters send their models. The arguments are those of
        `Listener.broadcast`.
        """
        for group in self._models:
            self._record(number, group, "broadcast", group, values[group])

    @property
    def observations(self) -> tuple[Observations, ...]:
        """For each recorded group, the vectors ``[M]`` that the coalition sent or received in it.

        Their keys are (round from 0, tier, kind, sender).
        """
        return tuple(self._observations.values())

    def _record(self, number: int, group: int, how: str, who: int, vector: Tensor) -> None:
        """Keep a vector ``[M]`` of round ``number``, if the group is recorded.

        ``how``: the kind (sent, received or broadcast); ``who``: the sender.
        """
        if group in self._observations:
            whose = TARGET if how == "sent" and {who} == self._senders else who
            self._observations[group][number - self._began, 1, how, whose] = (
                vector.detach().cpu().double().numpy()
            )

"""What can be heard while a round is played: every vector that leaves or reaches a party."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

IntArray = npt.NDArray[np.int64]


class Listener(Protocol):
    """Is told of every message, average and model of a round; it decides what of it an observer may know.

    Tiers are those of the topology, 0 at the top; devices are one tier below the lowest aggregators, and in
    groups the masters are tier 1. Tensors must not be changed, and are only good during the call.
    """

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Called when parties of a tier send messages upwards.

        Args:
            number: of the round, from 0.
            index: of the aggregation in it; in groups, the group that the messages go to.
            tier: of the senders.
            senders: their indices in the tier, ``[p]``.
            vectors: float32 ``[p, M]``, their own noise included, before any masking.
        """

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Called with the averages of a tier's aggregators before their noise (in groups: masters' sums).

        Args:
            number: of the round, from 0.
            index: of the aggregation in it.
            tier: of the aggregators.
            values: ``[nodes, M]``, of all of the tier.
        """

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Called with the models that a tier's aggregators send down.

        Args:
            number: of the round, from 0.
            index: of the aggregation in it.
            tier: of the aggregators.
            values: ``[nodes, M]``, of all of the tier.
        """


class ListenerGroup:
    """Several listeners as one: each is told everything.

    Args:
        listeners: who hears it.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Call `Listener.sent` of every listener, in order, with these arguments."""
        for listener in self._listeners:
            listener.sent(number, index, tier, senders, vectors)

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Call `Listener.received` of every listener, in order, with the same arguments."""
        for listener in self._listeners:
            listener.received(number, index, tier, values)

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Call `Listener.broadcast` of every listener, in order, with the same arguments."""
        for listener in self._listeners:
            listener.broadcast(number, index, tier, values)

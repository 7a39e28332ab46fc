"""What can be heard while a round is played: every vector that leaves or reaches a party."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

IntArray = npt.NDArray[np.int64]


class Listener(Protocol):
    """Hears what passes; who may know of it is for the listener to say.

    Tiers are those of the topology, 0 at the top; devices are one tier below the lowest aggregators, and
    in groups the masters are tier 1. Tensors must not be changed, and are only good during the call.
    """

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Called when parties send messages upwards.

        Args:
            number: of the round.
            index: of the aggregation in it.
            tier: of the senders.
            senders: ``[p]``.
            vectors: float32 ``[p, M]``, their own noise included, before any masking.
        """

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Called when aggregators of ``tier`` have their averages ``values`` ``[nodes, M]``, not noised by
        them yet.

        Round ``number`` and aggregation ``index`` as of `sent`.
        """

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Called when the nodes of ``tier`` send their models ``values`` ``[nodes, M]`` down.

        Round ``number`` and aggregation ``index`` as of `sent`.
        """


class ListenerGroup:
    """Passes on what it hears.

    Args:
        listeners: who hears it.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Tell every listener that parties send messages; arguments as of `Listener.sent`."""
        for listener in self._listeners:
            listener.sent(number, index, tier, senders, vectors)

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Tell every listener that aggregators have averages; arguments as of `Listener.received`."""
        for listener in self._listeners:
            listener.received(number, index, tier, values)

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Tell every listener that nodes send models down; arguments as of `Listener.broadcast`."""
        for listener in self._listeners:
            listener.broadcast(number, index, tier, values)

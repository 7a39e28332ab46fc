"""What every uplink offers: open a collector, hand it the devices' messages, get what the leaves receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.protocols.message_hooks import Listener
from sfumato.radio.costs import Analog
from sfumato.schedule.faults.dropouts import Dropouts
from sfumato.schedule.integer_grid import IntegerGrid

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class IntegerSums:
    """Sums on a grid.

    Attributes:
        ring: the grid.
        sums: of the leaves, as shares of the global average, in steps, int64 ``[leaves, k]``.
    """

    ring: IntegerGrid
    sums: IntArray


@dataclass(frozen=True, eq=False)
class Received:
    """What the leaves received in one aggregation, and what it took.

    Attributes:
        averages: sum of the messages over the public denominator, noise of devices and channel included, the
            leaf's own not: float64 ``[leaves, M]``; 0 where nothing is received.
        devices: whose messages are in an average, ascending.
        available: which leaves received anything, ``[leaves]``; the others send nothing either.
        air: what superposed messages took; ``None`` where messages are bits.
        totals: columns for the metrics, added up over a round's aggregations.
        means: columns for the metrics, averaged over a round's aggregations.
        channel_variance: of the noise that the channel left in a coordinate of each average, ``[leaves]``;
            ``None``: as declared.
        coordinates: where averages can differ from 0, int64, ascending; ``None``: anywhere.
        turnout: who was left, and who served as supernode; ``None``: everybody, nobody.
        integer_sums: the sums behind the averages, where they are integers.
    """

    averages: Tensor
    devices: IntArray
    available: npt.NDArray[np.bool_]
    air: Analog | None = None
    totals: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    channel_variance: FloatArray | None = None
    coordinates: Tensor | None = None
    turnout: Dropouts | None = None
    integer_sums: IntegerSums | None = None


def uplink_columns(heard: Sequence[Received]) -> dict[str, float]:
    """The metrics columns of a round about its uplink; ``heard``: what leaves received, by aggregation.

    Totals are added up over the aggregations, one or more, means averaged.
    """
    totals = {name: sum(r.totals[name] for r in heard) for name in heard[0].totals}
    return totals | {name: sum(r.means[name] for r in heard) / len(heard) for name in heard[0].means}


class Collector(Protocol):
    """Takes the messages of one aggregation."""

    def add(self, devices: IntArray, leaves: IntArray, messages: Tensor) -> None:
        """Take the messages of some devices; called chunk by chunk, devices ascending.

        Args:
            devices: ``[p]``.
            leaves: the leaf of each, ``[p]``.
            messages: float32 ``[p, M]``: weighted, within their bounds, not noised yet. They are the
                collector's from now on.
        """

    def received(self) -> Received:
        """What the leaves received; called once, when all devices have sent."""


class Uplink(Protocol):
    """Carries devices' messages to the leaves. Adds the devices' own noise, as the plan says."""

    def open(
        self, number: int, index: int, devices: IntArray, models: Tensor, listener: Listener | None
    ) -> Collector:
        """Begin an aggregation; returns the collector that takes its messages.

        Args:
            number: of the round, from 0.
            index: of the aggregation in it.
            devices: who will send, ascending ``[P]``.
            models: what each leaf's devices start from, public to them, ``[leaves, M]``.
            listener: hears every device's message, its own noise in it; ``None``: nobody.
        """

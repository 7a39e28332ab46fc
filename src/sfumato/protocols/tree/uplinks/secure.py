"""Messages as integers that add up exactly; under masks nobody learns more than their sum.

The masks themselves cancel: a simulation adds up what parties would mask, which gives the same bits as a
session of `sfumato.secure_aggregation` (tests play both).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.tree.uplinks.base import Collector, IntArray, IntegerSums, Received
from sfumato.random import Stream, key_at
from sfumato.schedule.faults.dropouts import PHASES, Dropouts, turnout_of
from sfumato.schedule.integer_grid import IntegerGrid, integer_grid_of
from sfumato.schedule.message_grid import message_lengths
from sfumato.schedule.participation import threshold_of
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.encoding import encode
from sfumato.secure_aggregation.fast_path import fast_sum
from sfumato.secure_aggregation.masks import RingVector, ring_type
from sfumato.secure_aggregation.server import Phase

Summation: TypeAlias = Callable[
    [Mapping[int, RingVector], Mapping[Phase, Collection[int]], int, int], RingVector
]
"""How a zone's sum is formed: from vectors by party, who falls silent when, the number of parties, and the
threshold."""


def sum_of_survivors(
    vectors: Mapping[int, RingVector], drop: Mapping[Phase, Collection[int]], parties: int, threshold: int
) -> RingVector:
    """The sum of a session of secure aggregation, without cryptography: modulo 2^32, ``[M]``.

    Args:
        vectors: of the survivors, by place in the session.
        drop: not used; a session with cryptography has the same signature.
        parties: not used; a session with cryptography has the same signature.
        threshold: not used; a session with cryptography has the same signature.
    """
    return fast_sum(vectors, vectors)


@dataclass(frozen=True)
class SecureUplink:
    """Every device rounds its message at random, adds integer noise and sends it, masked or not.

    Attributes:
        plan: says how much noise, what sums are divided by, and which hops are masked.
        device: where tensors are.
        summation: forms the sums of masked zones.
        ranks: each of which hands over the messages of some devices; several need `sum_of_survivors`, which
            also forms the part of a zone's sum that a rank has.
    """

    plan: TreePlan
    device: torch.device
    summation: Summation = sum_of_survivors
    ranks: Ranks = ALONE

    def open(
        self, number: int, index: int, devices: IntArray, models: Tensor, listener: Listener | None
    ) -> Collector:
        """Begin an aggregation in which leaves receive integer sums, masked or not; returns its collector.

        Args:
            number: of the round.
            index: of the aggregation in it.
            devices: who will send, ascending ``[P]``.
            models: what each leaf's devices start from, ``[leaves, M]``; only M is used.
            listener: hears every device's encoded message, its own noise in it; ``None``: nobody.

        Raises:
            SpecError: the ring has no room for these sums.
        """
        ring = integer_grid_of(self.plan, number, index, devices, models.shape[1])
        turnout = turnout_of(self.plan, number, index, devices)
        sums = np.zeros((self.plan.tree.leaf_count, models.shape[1]), dtype=np.int64)
        return _Collector(self, number, index, devices, listener, ring, turnout, sums)


@dataclass
class _Collector:
    uplink: SecureUplink
    number: int
    index: int
    devices: IntArray
    listener: Listener | None
    ring: IntegerGrid
    turnout: Dropouts
    sums: IntArray
    waiting: dict[int, RingVector] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.leaves = self.uplink.plan.tree.leaves_of(self.devices)

    def add(self, devices: IntArray, leaves: IntArray, messages: Tensor) -> None:
        """Encode messages as integers, noise them and add them up, leaf by leaf.

        Args:
            devices: who sends, ascending ``[p]``.
            leaves: the leaf of each, ``[p]``.
            messages: float32 ``[p, M]``, within their bounds, not noised.
        """
        plan, tier = self.uplink.plan, self.uplink.plan.tree.depth
        bounds = message_lengths(plan, self.index, devices, messages.shape[1])
        stds = plan.device_stds_of(self.index, devices)
        places = np.searchsorted(self.devices, devices)
        sends, vectors = self.turnout.sends[places], messages.cpu().numpy()
        for row in np.flatnonzero(sends):
            leaf, device = int(leaves[row]), int(devices[row])
            self._close_before(leaf)
            steps = np.zeros(messages.shape[1], dtype=np.uint64)
            if bounds[row] > 0:
                key = key_at(plan.spec.seed, Stream.NOISE, self.number, self.index, tier, device)
                how = self.ring.device_rounding(leaf, float(bounds[row]), float(stds[row]))
                share = vectors[row].astype(np.float64) * self.ring.shares[leaf]
                steps = encode(share, how, key)
            if self.listener is not None:
                vectors[row] = steps.view(np.int64) / (self.ring.scale * self.ring.shares[leaf])
            self._take_message(leaf, int(places[row]), steps)
        if self.listener is not None and sends.any():
            heard = torch.from_numpy(vectors[sends]).to(messages.device)
            self.listener.sent(self.number, self.index, tier, devices[sends], heard)

    def _take_message(self, leaf: int, place: int, steps: RingVector) -> None:
        """Add an encoded message to the sum of its leaf; under masks keep it until its session runs.

        Args:
            leaf: that it goes to.
            place: of the sender among the aggregation's devices.
            steps: the message, integers ``[M]``.
        """
        if not self.ring.secure[-1]:
            self.sums[leaf] += steps.view(np.int64)
            return
        self.waiting[place] = steps.astype(ring_type(self.ring.received(-1).bits))

    def _close_before(self, leaf: int) -> None:
        """Run the session of secure aggregation of an earlier leaf than ``leaf``, if messages wait for one.

        Devices come in ascending order, so by then all messages of that leaf have come.
        """
        if not self.waiting:
            return
        waiting_leaf = int(self.leaves[next(iter(self.waiting))])
        if waiting_leaf >= leaf:
            return
        start, stop = np.searchsorted(self.leaves, [waiting_leaf, waiting_leaf + 1]).tolist()
        vectors = {place - start: vector for place, vector in self.waiting.items()}
        self.waiting.clear()
        if not self.turnout.formed[waiting_leaf]:
            return
        silent = self.turnout.dropout_phase[start:stop]
        drop = {phase: np.flatnonzero(silent == phase).tolist() for phase in PHASES}
        threshold = threshold_of(self.uplink.plan.spec.faults, stop - start)
        total = self.uplink.summation(vectors, drop, stop - start, threshold)
        self.sums[waiting_leaf] = self.ring.received(-1).wrapped(total.astype(np.int64))

    def received(self) -> Received:
        """Give the leaves' integer sums, their averages, and whose messages are in them; called once."""
        turnout = self.turnout
        self._close_before(self.uplink.plan.tree.leaf_count)
        sums = self.ring.received(-1).wrapped(self.uplink.ranks.added(self.sums))
        sums[~turnout.formed] = 0
        averages = torch.from_numpy(self.ring.averages(-1, sums))
        return Received(
            averages=averages.to(self.uplink.device),
            devices=self.devices[turnout.received],
            available=turnout.formed,
            turnout=turnout,
            integer_sums=IntegerSums(self.ring, sums),
        )

"""Messages one by one: every leaf sees each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.mechanisms.base import NoiseMechanism
from sfumato.mechanisms.compression import bounded_, round_stochastically, rounding_key
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.sums import Sums
from sfumato.protocols.tree.uplinks.base import BoolArray, Collector, IntArray, Received
from sfumato.random import Stream, key_at
from sfumato.schedule.faults.dropouts import Dropouts, turnout_of
from sfumato.schedule.message_grid import tree_grid
from sfumato.schedule.tree import TreePlan


@dataclass(frozen=True)
class PlainUplink:
    """Every device adds its noise and sends.

    Attributes:
        plan: says how much noise, and what sums are divided by.
        device: where tensors are.
        mechanism: of the devices' noise.
        ranks: each of which hands over the messages of some devices.
    """

    plan: TreePlan
    device: torch.device
    mechanism: NoiseMechanism[Tensor]
    ranks: Ranks = ALONE

    def open(
        self, number: int, index: int, devices: IntArray, models: Tensor, listener: Listener | None
    ) -> Collector:
        """Begin an aggregation in which leaves receive each message; returns the collector of its messages.

        Args:
            number: of the round.
            index: of the aggregation in it.
            devices: who will send, ascending ``[P]``.
            models: what each leaf's devices start from, ``[leaves, M]``; only M is used.
            listener: hears every device's message, its own noise in it; ``None``: nobody.
        """
        turnout = turnout_of(self.plan, number, index, devices)
        grid = tree_grid(self.plan, number, index, models.shape[1])
        sums = Sums(self.plan.tree.leaf_count, models.shape[1], grid, self.ranks)
        return _Collector(self, number, index, devices, listener, turnout, sums)


@dataclass
class _Collector:
    uplink: PlainUplink
    number: int
    index: int
    devices: IntArray
    listener: Listener | None
    turnout: Dropouts
    sums: Sums

    def add(self, devices: IntArray, leaves: IntArray, messages: Tensor) -> None:
        """Noise, round and add up the messages of devices that do not drop out.

        Args:
            devices: who sends, ascending ``[p]``.
            leaves: the leaf of each, ``[p]``.
            messages: float32 ``[p, M]``, within their bounds, not noised; may be changed in place.

        Raises:
            EnvelopeError: a message is too large for the grid on which sums are formed.
        """
        plan, tier = self.uplink.plan, self.uplink.plan.tree.depth
        sends = self.turnout.sends[np.searchsorted(self.devices, devices)]
        if not sends.all():
            devices, leaves = devices[sends], leaves[sends]
            messages = messages[torch.from_numpy(sends).to(messages.device)]
        if not len(devices):
            return
        stds = plan.device_stds_of(self.index, devices) * plan.message_scale(self.number)
        address = (self.number, self.index, tier)
        self.uplink.mechanism.add_(
            messages, stds, lambda row: key_at(plan.spec.seed, Stream.NOISE, *address, devices[row])
        )
        self._round(devices, messages, noised=stds > 0)
        self.sums.add(leaves, messages)
        if self.listener is not None:
            self.listener.sent(self.number, self.index, tier, devices, self.sums.rounded(messages))

    def _round(self, devices: IntArray, messages: Tensor, *, noised: BoolArray) -> None:
        """Round messages ``[p, M]`` of ``devices`` ``[p]`` to the bits that compression allows, in place.

        ``noised`` ``[p]``: messages whose noise was added before, so that they may become longer; others are
        kept within their bound.
        """
        plan, compression = self.uplink.plan, self.uplink.plan.spec.compression
        if compression is None or compression.bits is None:
            return
        for row, device in enumerate(devices):
            key = rounding_key(plan.spec.seed, self.number, self.index, device)
            messages[row] = round_stochastically(messages[row], compression.bits, key)
        if plan.spec.privacy.clip is None:
            return
        bounds = np.where(
            noised, np.inf, plan.bounds_of(self.index, devices) * plan.message_scale(self.number)
        )
        bounded_(messages, torch.as_tensor(bounds, dtype=torch.float32, device=messages.device))

    def received(self) -> Received:
        """Give the leaves' averages (sums over public denominators), and who sent; called once."""
        plan, turnout = self.uplink.plan, self.turnout
        averages = self.sums.values().div_(torch.from_numpy(plan.denominators_of(self.devices))[:, None])
        averages[torch.from_numpy(~turnout.formed)] = 0.0
        return Received(
            averages.to(self.uplink.device),
            self.devices[turnout.received],
            turnout.formed,
            turnout=turnout,
        )

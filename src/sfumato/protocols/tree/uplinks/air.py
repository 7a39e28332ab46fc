"""Messages superposed in the air: a leaf hears their sum and its own receiver's noise, never one of them.

Device ``i`` sends ``x_i = (beta / |h_i|) m_i``, the leaf receives ``y = sum |h_i| x_i + z`` and takes ``y /
(r beta)`` for the average (pfels.txt, (10) to (13)). Here everything is reckoned in units of the message, in
which that average is ``sum m_i / r`` and noise of ``sigma0 / (r beta)`` a coordinate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato.distributed.ranks import ALONE, Ranks, filled_in
from sfumato.learning.norms import row_norms
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.protocols.message_hooks import Listener
from sfumato.protocols.sums import Sums
from sfumato.protocols.tree.uplinks.base import Collector, FloatArray, IntArray, Received
from sfumato.random import Stream, key_at
from sfumato.schedule.air.power_control import AirPlan, AirTransmission
from sfumato.schedule.air.realised_channels import sending_of
from sfumato.schedule.message_grid import tree_grid
from sfumato.schedule.tree import TreePlan

_ROUNDING = 1e-6


@dataclass(frozen=True)
class AirUplink:
    """Everybody sends at once, aligned so that amplitudes add up.

    Attributes:
        plan: says who adds how much noise, and what sums are divided by.
        air: how loud devices send.
        parameters: M of the model; messages may be shorter.
        device: where tensors are.
        ranks: each of which hands over the messages of some devices.
    """

    plan: TreePlan
    air: AirPlan
    parameters: int
    device: torch.device
    ranks: Ranks = ALONE

    def open(
        self, number: int, index: int, devices: IntArray, models: Tensor, listener: Listener | None
    ) -> Collector:
        """Begin an aggregation in which signals add up in the air; returns the collector of its messages.

        Args:
            number: of the round.
            index: of the aggregation in it.
            devices: who will send, ascending ``[P]``.
            models: what each leaf's devices start from, ``[leaves, M]``; only M is used.
            listener: hears every device's message, its own noise in it; ``None``: nobody.

        Raises:
            EnvelopeError: devices would send louder than the plan declared.
        """
        plan = self.plan
        sending = sending_of(plan, self.air, number, index, devices, self.parameters)
        bounds = plan.releases.steps[index].message_norm * plan.message_scale(number)
        length = models.shape[1]
        sums = Sums(plan.tree.leaf_count, length, tree_grid(plan, number, index, length), self.ranks)
        energy = np.zeros(len(devices))
        return _Collector(self, number, index, devices, sending, bounds, listener, sums, energy)


@dataclass
class _Collector:
    """The messages of one aggregation while they are added up.

    Attributes:
        uplink: that opened it.
        number: of the round.
        index: of the aggregation in it.
        devices: who will send, ascending ``[P]``.
        sending: amplitudes and limits of these devices.
        bounds: l2 bound of a message of weight 1, in each leaf, ``[leaves]``.
        listener: hears every device's message; ``None``: nobody.
        sums: of the messages that have arrived, by leaf.
        energy: transmit energy of each device so far, ``[P]``.
        violations: devices whose messages had to be shortened to keep within their power.
    """

    uplink: AirUplink
    number: int
    index: int
    devices: IntArray
    sending: AirTransmission
    bounds: FloatArray
    listener: Listener | None
    sums: Sums
    energy: FloatArray
    violations: int = 0

    def add(self, devices: IntArray, leaves: IntArray, messages: Tensor) -> None:
        """Scale, noise and add up the signals of some devices.

        Args:
            devices: who sends, ascending ``[p]``.
            leaves: the leaf of each, ``[p]``.
            messages: float32 ``[p, M]``, within their bounds, not noised; changed in place.
        """
        plan, rows = self.uplink.plan, np.searchsorted(self.devices, devices)
        loudness = self.sending.amplitude[rows] / self.bounds[leaves]
        stds = (
            plan.device_stds_of(self.index, devices)
            * plan.message_scale(self.number)
            * self.sending.sends[rows]
        )
        messages.mul_(self._column(self._within_power(messages, loudness, stds, self.sending.limit[rows])))
        address = (self.number, self.index, plan.tree.depth)
        add_gaussian_(
            messages, stds, lambda row: key_at(plan.spec.seed, Stream.NOISE, *address, devices[row])
        )
        self.energy[rows] = (loudness * _norms(messages)) ** 2
        if self.listener is not None:
            self.listener.sent(self.number, self.index, plan.tree.depth, devices, messages)
        messages.mul_(self._column(self.sending.arrives[rows]))
        self.sums.add(leaves, messages)

    def received(self) -> Received:
        """Give what the leaves received once all devices have sent; called once, on every rank.

        Returns:
            The averages with devices' and the channel's noise (0 where nothing is heard), every leaf
            available, who sent, and the traffic. ``totals``: channel uses and shortened messages; ``means``:
            ``beta``, the received signal's scale β of (10), 0 if no leaf hears anything. ``channel_variance``
            is in units of the plan.
        """
        uplink, plan, sending = self.uplink, self.uplink.plan, self.sending
        energy, violations = np.zeros(plan.tree.leaf_count), uplink.ranks.added(np.array([self.violations]))
        np.add.at(energy, plan.tree.leaves_of(self.devices), filled_in(uplink.ranks, self.energy))
        channels, unit = uplink.air.channels, plan.message_scale(self.number)
        count, alignment = plan.participants.count, sending.alignment
        heard = alignment > 0
        std = np.divide(self.bounds, alignment * count, out=np.zeros_like(alignment), where=heard)
        averages = self.sums.values().div_(torch.from_numpy(count)[:, None]).to(uplink.device)
        kept = averages.shape[1]
        address = (self.number, self.index, plan.tree.depth + 1)  # one tier below the devices' own
        add_gaussian_(averages, std, lambda leaf: key_at(plan.spec.seed, Stream.NOISE, *address, leaf))
        beta = alignment[heard] * channels.noise_std / self.bounds[heard]
        return Received(
            averages,
            self.devices[sending.sends],
            np.ones(len(count), dtype=np.bool_),
            uplink.air.traffic(sending, energy, kept),
            totals={"channel_uses": float(heard.sum() * kept), "power_violations": float(violations[0])},
            means={"beta": float(beta.mean()) if len(beta) else 0.0},
            channel_variance=(std / unit) ** 2,
        )

    def _within_power(
        self, messages: Tensor, loudness: FloatArray, stds: FloatArray, limit: FloatArray
    ) -> FloatArray:
        """Factors ``[p]`` for messages that keep each device within its power limit in this round.

        Only the message is scaled down: its noise must not depend on it, and counts with its expected energy.
        Devices that would have exceeded their limit are counted in ``violations``.

        Args:
            messages: ``[p, M]``, not noised.
            loudness: amplitude over the message's l2 bound, ``[p]``.
            stds: standard deviation of the device's noise, a coordinate, ``[p]``.
            limit: largest energy of a message, ``[p]``.
        """
        noise = messages.shape[1] * (loudness * stds) ** 2
        signal = (loudness * _norms(messages)) ** 2
        self.violations += int((signal + noise > limit * (1 + _ROUNDING)).sum())
        left_for_signal = np.maximum(limit - noise, 0.0)
        factors = np.sqrt(
            np.divide(left_for_signal, signal, out=np.ones_like(signal), where=signal > left_for_signal)
        )
        return np.where(loudness > 0, factors, 0.0)  # the silent send nothing

    def _column(self, values: FloatArray) -> Tensor:
        """``values`` ``[p]`` as a float32 tensor ``[p, 1]`` on the uplink's device."""
        return torch.as_tensor(values, dtype=torch.float32, device=self.uplink.device)[:, None]


def _norms(messages: Tensor) -> FloatArray:
    """L2 norm of every message, float64 ``[p]``."""
    return row_norms(messages).double().cpu().numpy()

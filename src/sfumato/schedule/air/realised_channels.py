"""What a run over the air amounts to once it is known who was drawn and what the channels were.

Who is drawn and how the channels fade follow from the seed, never from data, so a run's alignments are a
function of its plan; nobody has to write them down as it goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import EnvelopeError
from sfumato.privacy.release import Exposure
from sfumato.privacy.sampling import Neighbours
from sfumato.schedule.air.power_control import ROUNDING, AirPlan, AirTransmission
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def sending_of(
    plan: TreePlan, air: AirPlan, number: int, index: int, devices: IntArray, parameters: int
) -> AirTransmission:
    """How ``devices`` send over the air in one aggregation of a run, with the noise that ``plan`` gives them.

    Args:
        plan: of the run.
        air: its devices' uplink.
        number: of the round, from 0.
        index: of the aggregation in the round, from 0.
        devices: who takes part, ascending ``[P]``.
        parameters: M, number of the model's parameters.

    Returns:
        What `AirPlan.sending` computes from the channels that the seed draws.

    Raises:
        EnvelopeError: they would send louder than the plan declared.
    """
    bounds = plan.releases.steps[index].message_norm[plan.tree.leaves_of(devices)]
    sending = air.sending(number, index, devices, plan.device_stds_of(index, devices) / bounds, parameters)
    if (sending.alignment > air.envelope * (1 + ROUNDING)).any():
        leaf = int((sending.alignment / air.envelope).argmax())
        raise EnvelopeError(
            f"round {number + 1}: devices would send at alignment {sending.alignment[leaf]:.6g}, but the "
            f"schedule declared at most {air.envelope[leaf]:.6g}; nothing of this round was sent"
        )
    return sending


@dataclass(frozen=True, eq=False)
class RealisedChannels:
    """Alignments and participations of the first rounds of a plan over the air.

    Attributes:
        plan: of the run.
        air: its devices' uplink.
        alignment: of every aggregation, ``[rounds, steps, leaves]``.
        took_part: ``[rounds, devices]``.
    """

    plan: TreePlan
    air: AirPlan
    alignment: FloatArray
    took_part: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, plan: TreePlan, rounds: int, parameters: int) -> RealisedChannels | None:
        """Alignments and participants of the first ``rounds`` rounds; ``None`` if not over the air.

        ``parameters``: M, number of the model's parameters.
        """
        air = plan.air
        if air is None:
            return None
        steps = len(plan.aggregations)
        alignment = np.zeros((rounds, steps, plan.tree.leaf_count))
        took_part = np.zeros((rounds, plan.tree.device_count), dtype=np.bool_)
        for number in range(rounds):
            devices = draw_participants(plan, number)
            took_part[number, devices] = True
            for index in range(steps):
                alignment[number, index] = sending_of(plan, air, number, index, devices, parameters).alignment
        return cls(plan, air, alignment, took_part)

    def to_dict(self) -> dict[str, Any]:
        """Two entries for ``ledger.json``, each a list ``[rounds][aggregations][leaves]``.

        ``beta`` is that of the aggregation, ``channel_noise_std`` the standard deviation, a coordinate, of
        the receiver's noise in the leaf's average, in units of `TreePlan.message_scale`.
        """
        rounds = range(len(self.alignment))
        unit = np.array([self.plan.message_scale(number) for number in rounds])[:, None, None]
        bound = np.array([step.message_norm for step in self.plan.releases.steps])[None]
        beta = self.alignment * self.air.channels.noise_std / (bound * unit)
        return {"beta": beta.tolist(), "channel_noise_std": np.sqrt(self._channel).tolist()}

    def largest_square(self, exposure: Exposure, unit: int, neighbours: Neighbours) -> tuple[float, int]:
        """The largest μ² of the releases of ``exposure`` over the run, with the channels' noise as it was.

        Args:
            exposure: what an observer sees of ``unit`` in a round, under the flow bound.
            unit: number of a device; it stands for all devices of the leaves of its class.
            neighbours: the neighbouring relation.

        Returns:
            The largest μ² among the devices that ``unit`` stands for, and how many rounds that device took
            part in; 0 and 0 where none took part.
        """
        releases = self.plan.releases
        leaf, weight = releases.leaf_of(unit), releases.classes.weight[releases.class_of(unit)]
        alike = np.flatnonzero(releases.leaves_like(leaf))
        each = np.zeros((len(self.alignment), self.plan.tree.leaf_count))
        for index, release in enumerate(exposure.releases):
            if release.own_sensitivity == 0:
                continue
            facts = releases.steps[index]
            # the leaf's average is in what is met with this weight; its declared channel noise is the least
            message = facts.message_norm[leaf] * weight / self.plan.participants.count[leaf]
            share = (release.own_sensitivity / message) ** 2
            declared = float(facts.channel_std[-1][leaf]) ** 2
            variance = release.variance + share * (self._channel[:, index, :] - declared)
            each += np.where(variance > 0, release.sensitivity(neighbours) ** 2 / variance, np.inf)
        return self._largest_over_devices(each, alike)

    def _largest_over_devices(self, each: FloatArray, alike: IntArray) -> tuple[float, int]:
        """Over devices, the largest sum of ``each`` over the rounds that one took part in.

        Args:
            each: μ² of every round and leaf, ``[rounds, leaves]``.
            alike: numbers of the leaves that the devices are under.

        Returns:
            The sum and the number of these rounds; 0 and 0 where no device has any.
        """
        first = self.plan.tree.first_device
        best, times = 0.0, 0
        for leaf in alike:
            mine = self.took_part[:, first[leaf] : first[leaf + 1]]
            squares = np.where(mine, each[:, leaf, None], 0.0).sum(axis=0)
            worst = int(squares.argmax())
            if squares[worst] > best:
                best, times = float(squares[worst]), int(mine[:, worst].sum())
        return best, times

    @cached_property
    def _channel(self) -> FloatArray:
        """Variance of the receivers' noise in the leaves' averages ``[rounds, aggregations, leaves]``."""
        bound = np.array([step.message_norm for step in self.plan.releases.steps])[None]
        loudest = self.alignment * self.air.gain_ratio
        with np.errstate(divide="ignore"):
            std: FloatArray = bound / (self.plan.participants.count * loudest)
        return std**2

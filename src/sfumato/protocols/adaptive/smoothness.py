"""The estimate of the smoothness beta: from released vectors, or from what devices measure and noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.engine.base import Engine, LocalTask
from sfumato.learning.batches import plan_steps
from sfumato.learning.local_training import LocalSGD
from sfumato.mechanisms.gaussian import add_gaussian_
from sfumato.protocols.adaptive.state import AdaptiveState
from sfumato.protocols.tree.local_work import dropout_draws
from sfumato.random import Stream, generator, key_at
from sfumato.schedule.tree import TreePlan
from sfumato.spec.control import Control

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_MEASUREMENT = 1 << 20  # differs from every key that a tier or a device has in the same stream


@dataclass(frozen=True, eq=False)
class SmoothnessEstimator:
    """Estimates beta after every round.

    Attributes:
        plan: without control.
        control: the spec's section.
        engine: trains devices.
        partition: who holds which rows.
    """

    plan: TreePlan
    control: Control
    engine: Engine
    partition: Partition

    def estimate(self, state: AdaptiveState, after: Tensor, devices: IntArray) -> float:
        """Estimate the smoothness beta for the next step size.

        It is ``control.bounds.smoothness`` if the spec states it; else from released models, or the mean of
        clipped and noised measurements of the devices.

        Args:
            state: whose ``seen`` ends with ``after``.
            after: the model at the end of the round, ``[M]``.
            devices: who took part, ``[P]``; where nobody did, the old estimate stays.
        """
        estimates, bounds = self.control.estimates, self.control.bounds
        if bounds.smoothness is not None:
            return bounds.smoothness
        if estimates == "released":
            return state.seen.moves().interval().or_prior(self.control.smoothness)
        if not len(devices):
            return state.smoothness
        found = self._gradient_changes(state.seen.models[-2], after, devices, state.round)
        clipped = np.minimum(found, estimates.bound)
        std, noise = estimates.multiplier * estimates.bound, torch.zeros(len(devices), 1)
        seed, address = self.plan.spec.seed, (state.round, _MEASUREMENT)
        stds = np.full(len(devices), std)
        add_gaussian_(noise, stds, lambda row: key_at(seed, Stream.NOISE, *address, devices[row]))
        noised = clipped + noise[:, 0].double().numpy()
        # below its own noise the mean says no more than that beta is small
        return max(float(noised.mean()), std / math.sqrt(len(devices)))

    def _gradient_changes(self, before: Tensor, after: Tensor, devices: IntArray, number: int) -> FloatArray:
        """Measure ‖g(after) − g(before)‖ / ‖after − before‖ of each device's mini-batch gradient g, ``[P]``.

        The result is private to the device: nothing is clipped or noised yet. 0 where the model did not move,
        ∞ where the quotient is not a number.

        Args:
            before: the model at the beginning of the round, ``[M]``.
            after: the model at its end, ``[M]``.
            devices: who measures, ``[P]``.
            number: of the round, from 0.
        """
        rng = generator(self.plan.spec.seed, Stream.BATCHES, number, _MEASUREMENT)
        rows = [self.partition.indices(int(device)) for device in devices]
        batches = plan_steps(rows, steps=1, batch_size=self.plan.spec.training.batch_size, rng=rng)
        # the same batches and masks at both models, whose gradients are compared
        masks = dropout_draws(self.plan.spec, [(number, _MEASUREMENT, int(device)) for device in devices])
        updates = []
        for which in (0, 1):
            start, place = torch.stack([before, after]), torch.full((len(devices),), which)
            chunks = self.engine.train(LocalTask(LocalSGD(1.0), dropout=masks), start, place, batches)
            updates.append(torch.cat([chunk.updates.cpu() for chunk in chunks]))
        gradient_change = (updates[0] - updates[1]).double().norm(dim=1).numpy()
        model_change = float((after - before).double().norm())
        found: FloatArray = gradient_change / model_change if model_change > 0 else np.zeros(len(devices))
        return np.nan_to_num(found, nan=np.inf)

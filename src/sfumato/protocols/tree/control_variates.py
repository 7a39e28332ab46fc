"""The control variates of SCAFFOLD: the server's, and one of every device (docs/accounting.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.distributed.ranks import Ranks
from sfumato.engine.base import Corrections
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.schedule.integer_grid import average_weights
from sfumato.schedule.local_steps import learning_rate
from sfumato.schedule.tree import TreePlan


@dataclass(frozen=True, eq=False)
class ControlVariates:
    """What the server and the devices remember. A device's own is private to it.

    Attributes:
        server: c, float32 ``[M]``; it follows from released averages.
        devices: the c_i, of length M.
    """

    server: Tensor
    devices: DeviceVectors

    @classmethod
    def initial(cls, plan: TreePlan, model: Tensor, ranks: Ranks) -> ControlVariates | None:
        """Variates of 0 for a model ``[M]``, shared by ``ranks``; ``None`` if the plan has no SCAFFOLD."""
        if not plan.spec.training.keeps_variates:
            return None
        return cls(torch.zeros_like(model), DeviceVectors(torch.zeros_like(model), ranks))

    def copy(self) -> ControlVariates:
        """A copy whose devices' variates can be written to without changing these."""
        return replace(self, devices=self.devices.copy())

    def corrections(self, devices: npt.NDArray[np.int64]) -> Corrections:
        """The corrections ``c - c_i`` that SCAFFOLD adds to the gradients of ``devices`` at every local step.

        For `LocalTask.corrections`. Rows are computed when they are asked for (`Corrections.of`); those of a
        device only by the rank that holds its variate.

        ``devices``: their numbers, ``[P]``.
        """
        return _Corrections(self, devices)

    def updated_variates(self, steps: float, devices: npt.NDArray[np.int64], updates: Tensor) -> Tensor:
        """The devices' new variates c_i after a round, c_i - c - update / ``steps``, ``[p, M]``.

        Nothing is stored.

        Args:
            steps: step size times the number of local steps.
            devices: numbers of those who took part, ``[p]``.
            updates: of each by its local steps, without weight or noise, ``[p, M]``.
        """
        return self.devices.of(devices) - self.server - updates / steps

    def updated_server_variate(self, steps: float, share: float, average: Tensor) -> Tensor:
        """The server's new variate ``[M]`` after a round, c - share (c + average / steps); nothing is stored.

        Args:
            steps: step size times the number of local steps.
            share: of all devices, those that took part, from 0 to 1.
            average: of the round's messages ``[M]``, their noise included.
        """
        return self.server - share * (self.server + average / steps)


@dataclass(frozen=True, eq=False)
class _Corrections:
    variates: ControlVariates
    devices: npt.NDArray[np.int64]

    def of(self, rows: list[int]) -> Tensor:
        """Give ``c - c_i`` of the devices at the positions ``rows``, ``[len(rows), M]``."""
        return self.variates.server - self.variates.devices.of(self.devices[rows])


def length_of_steps(plan: TreePlan, number: int) -> float:
    """Step size of round ``number`` (from 0) times its number of local steps."""
    return learning_rate(plan.spec.training, number) * plan.aggregations[0].local_steps


def share_taking_part(plan: TreePlan) -> float:
    """The expected share of devices in a round, 0 to 1; edges weighted as in the global average."""
    of_leaf = plan.participants.count / plan.tree.devices
    return float((average_weights(plan.tree)[-1] * of_leaf).sum())

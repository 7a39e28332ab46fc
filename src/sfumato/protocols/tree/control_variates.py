"""The control variates of SCAFFOLD: the server's, and one of every device (docs/accounting.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.schedule.integer_grid import average_weights
from sfumato.schedule.local_steps import learning_rate
from sfumato.schedule.tree import TreePlan


@dataclass(frozen=True, eq=False)
class ControlVariates:
    """What the server and the devices remember. A device's own is private to it.

    Attributes:
        server: c, float32 ``[M]``; it follows from released averages.
        devices: the c_i, float32 ``[devices, M]``.
    """

    server: Tensor
    devices: Tensor

    @classmethod
    def initial(cls, plan: TreePlan, model: Tensor) -> ControlVariates | None:
        """All variates 0 for a model ``[M]``; ``None`` where the plan keeps none."""
        if not plan.spec.training.keeps_variates:
            return None
        return cls(torch.zeros_like(model), model.new_zeros(plan.tree.device_count, len(model)))

    def corrections(self, devices: npt.NDArray[np.int64]) -> Tensor:
        """What each of ``devices`` adds to its gradients, ``c - c_i``, ``[P, M]``."""
        return self.server - self.devices[torch.from_numpy(devices).to(self.devices.device)]

    def own_after(self, steps: float, devices: npt.NDArray[np.int64], updates: Tensor) -> Tensor:
        """The variates c_i ``[p, M]`` of ``devices`` after they sent ``updates`` ``[p, M]``.

        ``steps``: step size times the number of local steps.
        """
        own = self.devices[torch.from_numpy(devices).to(self.devices.device)]
        return own - self.server - updates / steps

    def server_after(self, steps: float, share: float, average: Tensor) -> Tensor:
        """The server's variate c ``[M]`` after a round.

        Args:
            steps: step size times the number of local steps.
            share: of all devices that took part.
            average: of the round's messages ``[M]``, their noise included.
        """
        return self.server - share * (self.server + average / steps)


def length_of_steps(plan: TreePlan, number: int) -> float:
    """The step size of round ``number`` times the number of local steps."""
    return learning_rate(plan.spec.training, number) * plan.aggregations[0].local_steps


def share_taking_part(plan: TreePlan) -> float:
    """The expected share of devices in a round, each edge weighted as in the global average."""
    of_leaf = plan.participants.count / plan.tree.devices
    return float((average_weights(plan.tree)[-1] * of_leaf).sum())


def own_copy(variates: ControlVariates | None) -> ControlVariates | None:
    """The same variates with a copy of the devices' to write to, so that the old state stays; ``None`` of
    ``None``.
    """
    return None if variates is None else replace(variates, devices=variates.devices.clone())

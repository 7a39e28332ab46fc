"""Gaussian noise that devices add to their sums of gradients, at every local step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sfumato.mechanisms.gaussian import add_gaussian_


@dataclass(frozen=True)
class StepNoise:
    """Independent noise ``N(0, std^2 I)`` for every device and step.

    Attributes:
        std: standard deviation a coordinate, in the sum of gradients before it is divided.
        key_of: gives the key of the noise of a device, by its number among those that train, at a step, from
            0 for the first step of this piece of local work. Each key is used for nothing else.
    """

    std: float
    key_of: Callable[[int, int], bytes]

    def of(self, devices: list[int]) -> Callable[[Tensor, int, int], None]:
        """A function that adds the noise of ``devices`` to gradients, in place.

        ``devices``: indices among those that train. The function takes the gradients ``[n, M]``, the step
        (from 0), and what the sums of gradients were divided by.
        """

        def add_(gradients: Tensor, step: int, divisor: int) -> None:
            """Add the noise of ``step`` (from 0) to ``gradients`` ``[n, M]``: sums divided by ``divisor``."""
            stds = np.full(len(gradients), self.std / divisor)
            add_gaussian_(gradients, stds, lambda row: self.key_of(devices[row], step))

        return add_

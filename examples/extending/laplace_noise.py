"""A noise mechanism of one's own: Laplace noise, and what the report says about it.

In a spec::

    privacy:
      clip: {kind: update, norm: 1.0}
      noise: {multiplier: 1.0}
      mechanism: "laplace_noise:Laplace"

``law`` is what the mechanism tells the accountant, which composes Gaussian noise only. So the law of Laplace
noise says that it is not composed, and every row that rests on it says epsilon = inf, with the reason.
`NumpyGaussian` below draws Gaussian noise with another sampler: its law is Gaussian, so its epsilon is that
of the built-in mechanism. Both draw floating-point numbers, which accounts take for real numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from sfumato.privacy.noise_law import GAUSSIAN, NoiseLaw


class Laplace:
    """Independent Laplace noise of the standard deviation that the plan asks for."""

    law = NoiseLaw("Laplace", "the accountant composes Gaussian noise only")

    def add_(self, rows: Tensor, stds: np.ndarray, key_of: Callable[[int], bytes]) -> None:
        """Add noise to rows, in place."""
        for row in np.flatnonzero(stds):
            noise = _generator(key_of(int(row))).laplace(scale=stds[row] / sqrt(2), size=rows.shape[1])
            rows[row] += torch.from_numpy(noise).float().to(rows.device)


class NumpyGaussian:
    """Gaussian noise by NumPy's own sampler."""

    law = GAUSSIAN

    def add_(self, rows: Tensor, stds: np.ndarray, key_of: Callable[[int], bytes]) -> None:
        """Add noise to rows, in place."""
        for row in np.flatnonzero(stds):
            noise = _generator(key_of(int(row))).normal(scale=stds[row], size=rows.shape[1])
            rows[row] += torch.from_numpy(noise).float().to(rows.device)


def _generator(key: bytes) -> np.random.Generator:
    """The same key, the same noise: a resumed run repeats it, and no two messages share any."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(int.from_bytes(key, "little"))))

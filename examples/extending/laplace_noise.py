"""A noise mechanism of one's own: Laplace noise, and what the report says about it.

In a spec::

    privacy:
      clip: {kind: update, norm: 1.0}
      noise: {multiplier: 1.0}
      mechanism: "laplace_noise:Laplace"

Accounting runs no code that a spec names, so the spec itself states the law of the noise. The accountant
composes Gaussian noise only: without ``law: gaussian`` every row that rests on the noise says epsilon = inf,
with the reason. `NumpyGaussian` below draws Gaussian noise with another sampler::

      mechanism: {kind: "laplace_noise:NumpyGaussian", law: gaussian}

Its epsilon is that of the built-in mechanism. A run refuses a mechanism whose own ``law`` is not Gaussian
where the spec says so. Both draw floating-point numbers, which accounts take for real numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from sfumato.privacy.release import GAUSSIAN, NoiseLaw


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

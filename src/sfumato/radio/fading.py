"""How a channel's gain varies from round to round, and from place to place."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ive

from sfumato.radio.units import FloatArray, from_db


def rayleigh(rng: np.random.Generator, count: int) -> FloatArray:
    """Magnitudes |u| of u ~ CN(0, 1), of mean power 1: no line of sight."""
    return np.sqrt(rng.standard_exponential(count))


def rician(rng: np.random.Generator, count: int, k_factor: float) -> FloatArray:
    """Magnitudes of mean power 1 with a line of sight.

    Args:
        rng: randomness.
        count: how many.
        k_factor: power of the direct path over that of all others (linear); 0 is Rayleigh.
    """
    direct, scattered = math.sqrt(k_factor / (k_factor + 1)), math.sqrt(0.5 / (k_factor + 1))
    in_phase, quadrature = rng.standard_normal((2, count)) * scattered
    magnitudes: FloatArray = np.hypot(direct + in_phase, quadrature)
    return magnitudes


def rician_mean(k_factor: float) -> float:
    """Mean magnitude of `rician`: ``√(π/(4(K+1))) · L½(−K)``; of `rayleigh` with ``k_factor = 0``."""
    half = k_factor / 2
    # the Laguerre function in scaled Bessel functions, which do not overflow
    laguerre = (1 + k_factor) * ive(0, half) + k_factor * ive(1, half)
    return math.sqrt(math.pi / (4 * (k_factor + 1))) * float(laguerre)


def shadowing(rng: np.random.Generator, count: int, std_db: float) -> FloatArray:
    """Power gains (linear) of obstacles: log-normal, median 1, of this standard deviation in decibels."""
    return from_db(std_db * rng.standard_normal(count))

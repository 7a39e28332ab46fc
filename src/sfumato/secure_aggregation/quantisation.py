"""From real vectors to ring elements and back: scale, ring size, sensitivity and noise. Figures only.

A device clips its vector to l2 norm ``clip``, multiplies by ``scale``, rounds every coordinate at random to
one of its two neighbours so that the mean is kept, and adds discrete Gaussian noise of ``noise_std`` steps;
then it masks. So the guarantee is of the very integers that are added up; reducing them modulo 2^bits, and
turning them back into reals, is post-processing (Kairouz, Liu and Steinke 2021, "The Distributed Discrete
Gaussian Mechanism for Federated Learning with Secure Aggregation", ICML; no rotation here: rings of 32 bits
have room enough).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from sfumato.wire.errors import QuantisationError

MOST_WRAPPING = 1e-12
ALLOWED_RING_BITS = (16, 32, 64)
"""Sizes of a ring: one element is one machine word."""
_FLOAT_SLACK = 1e-9
_MOST_STEPS, _MOST_NOISE = 2.0**40, 2.0**46


@dataclass(frozen=True)
class QuantisationPlan:
    """How vectors become ring elements; public.

    Attributes:
        clip: l2 norm bound of a device's vector.
        scale: steps of the ring per unit of the vector.
        bits: of the ring.
        parties: most vectors in a sum.
        dimension: coordinates.
        noise_std: σ of the discrete Gaussian every device adds, in steps; 0 for none.
        rounding_failure: β: rounding is repeated where the norm bound it has with probability 1 − β fails.
            The mean of the result is within 2β·√dimension steps of the vector's.

    Raises:
        QuantisationError: a number is out of range, or a sum could leave the ring with probability above
            1e-12.
    """

    clip: float
    scale: float
    bits: int
    parties: int
    dimension: int
    noise_std: float = 0.0
    rounding_failure: float = 1e-9

    def __post_init__(self) -> None:
        """Check all numbers.

        Raises:
            QuantisationError: one is out of range, or sums leave the ring with probability above 1e-12.
        """
        if self.bits not in ALLOWED_RING_BITS:
            raise QuantisationError(f"bits: got {self.bits}; must be one of {ALLOWED_RING_BITS}")
        for name in ("clip", "scale"):
            if not 0 < getattr(self, name) < math.inf:
                raise QuantisationError(f"{name}: got {getattr(self, name)!r}; must be positive and finite")
        for name in ("parties", "dimension"):
            if getattr(self, name) < 1:
                raise QuantisationError(f"{name}: got {getattr(self, name)!r}; must be at least 1")
        if not 0 < self.rounding_failure < 1:
            raise QuantisationError(f"rounding_failure: got {self.rounding_failure!r}; must be in (0, 1)")
        if not (self.noise_std == 0 or math.sqrt(0.5) <= self.noise_std <= _MOST_NOISE):
            raise QuantisationError(f"noise_std: got {self.noise_std!r}; must be 0 or √½..2^46 steps")
        if self.clip * self.scale > _MOST_STEPS:
            raise QuantisationError(
                "scale: a vector of norm clip has more than 2^40 steps: beyond float64's precision"
            )
        if self.wrapping > MOST_WRAPPING:
            raise QuantisationError(
                f"bits: {self.parties} vectors of norm {self.clip:g} at scale {self.scale:g} with noise of"
                f" {self.noise_std:g} steps leave a ring of {self.bits} bits with probability above 1e-12"
            )

    @cached_property
    def sensitivity(self) -> float:
        """Zero-out sensitivity: largest l2 norm of a device's integer vector before noise, in steps.

        min(r + √d, √(r² + d/4 + √(2 ln(1/β))·(r + √d/2))), r = clip·scale (conditional randomised rounding of
        Kairouz et al. 2021, the step as unit), and one part in 10^9 for floating point. Replacing a device:
        twice that.
        """
        r, d = self.clip * self.scale, self.dimension
        surely = r + math.sqrt(d)
        likely = math.sqrt(
            r * r + d / 4 + math.sqrt(2 * math.log(1 / self.rounding_failure)) * (r + math.sqrt(d) / 2)
        )
        return min(surely, likely) * (1 + _FLOAT_SLACK)

    @property
    def inflation(self) -> float:
        """The sensitivity with rounding over that of real numbers, clip · scale; at least 1."""
        return self.sensitivity / (self.clip * self.scale)

    @property
    def wrapping(self) -> float:
        """Bound on the probability that a coordinate of the sum of all parties leaves the ring's range.

        See the function `wrapping`; a coordinate of one vector is at most ⌈clip·scale⌉.
        """
        most = self.parties * math.ceil(self.clip * self.scale * (1 + _FLOAT_SLACK))
        variance = self.parties * self.noise_std**2
        return wrapping(most, variance, dimension=self.dimension, bits=self.bits)


def wrapping(most: float, variance: float, *, dimension: int, bits: int) -> float:
    """Bound on the probability that any coordinate of a sum leaves the range of the ring and so wraps around.

    Sums of discrete Gaussians are subgaussian with the sum of their variances (Canonne et al. 2020). A matter
    of accuracy: privacy never depends on it.

    Args:
        most: largest coordinate that the sum without noise can have, in rounding steps.
        variance: of all noise in it, in steps squared.
        dimension: number of coordinates.
        bits: of the ring.
    """
    room = 2.0 ** (bits - 1) - 1 - most
    if room < 0:
        return 1.0
    if variance == 0:
        return 0.0
    return min(1.0, 2 * dimension * math.exp(-(room * room) / (2 * variance)))

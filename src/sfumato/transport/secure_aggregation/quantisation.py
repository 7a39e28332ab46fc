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
from dataclasses import dataclass, replace
from functools import cached_property

from sfumato.transport.errors import QuantisationError

MOST_WRAPPING = 1e-12
_FLOAT_SLACK = 1e-9
_BITS = (16, 32, 64)
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
        if self.bits not in _BITS:
            raise QuantisationError(f"bits: got {self.bits}; must be one of {_BITS}")
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
        """Largest l2 norm of a device's integer vector before noise, in steps: its zero-out sensitivity.

        min(r + √d, √(r² + d/4 + √(2 ln(1/β))·(r + √d/2))), r = clip·scale (conditional randomised
        rounding of Kairouz et al. 2021, the step as unit), and one part in 10^9 for floating point. Replacing
        a device: twice that.
        """
        r, d = self.clip * self.scale, self.dimension
        surely = r + math.sqrt(d)
        likely = math.sqrt(
            r * r + d / 4 + math.sqrt(2 * math.log(1 / self.rounding_failure)) * (r + math.sqrt(d) / 2)
        )
        return min(surely, likely) * (1 + _FLOAT_SLACK)

    @property
    def inflation(self) -> float:
        """What rounding costs: sensitivity over that of real numbers, at least 1."""
        return self.sensitivity / (self.clip * self.scale)

    def multiplier(self, noisers: int) -> float:
        """Noise over zero-out sensitivity, for a sum with ``noisers`` honest devices' noise in it.

        One discrete Gaussian's Rényi divergences under an integer shift are at most the Gaussian's,
        α/(2·multiplier²) (Canonne et al. 2020): charge it as a Gaussian of that multiplier by RDP, and add
        `extra_epsilon`. To charge the Gaussian's exact curve (GDP, PLD) takes noise of thousands of steps,
        and a millionth more of it (docs/hdp.md).
        """
        return math.sqrt(noisers) * self.noise_std / self.sensitivity

    def tau(self, noisers: int) -> float:
        """How far the sum of noises is from one discrete Gaussian, per coordinate: `excess`."""
        return excess(noisers, self.noise_std)

    def extra_epsilon(self, noisers: int) -> float:
        """dτ: adds to every ε, because a sum of discrete Gaussians is not one.

        With δ_G that of one discrete Gaussian, δ(ε) ≤ exp(dτ/2)·δ_G(ε − dτ). Negligible (below 1e-9) for
        noise of 3 steps and more, at any dimension that fits a computer.
        """
        return self.dimension * self.tau(noisers)

    def extra_delta(self, noisers: int) -> float:
        """exp(dτ/2) − 1: the share by which every δ grows, besides `extra_epsilon`."""
        return math.expm1(min(self.extra_epsilon(noisers) / 2, 700.0))

    def concentrated_epsilon(self, noisers: int) -> float:
        """ε such that one sum is ½ε²-concentrated DP, zero-out (Kairouz et al. 2021, on sums of noises).

        min(√(Δ²/(nσ²) + τd/2), Δ/(√n·σ) + τ√d).
        """
        one, tau = 1 / self.multiplier(noisers), self.tau(noisers)
        return min(math.sqrt(one * one + tau * self.dimension / 2), one + tau * math.sqrt(self.dimension))

    @property
    def wrapping(self) -> float:
        """Bound on the probability that any coordinate of a sum leaves the ring's range: `wrapping`.

        Vectors' coordinates are at most ⌈clip·scale⌉.
        """
        most = self.parties * math.ceil(self.clip * self.scale * (1 + _FLOAT_SLACK))
        variance = self.parties * self.noise_std**2
        return wrapping(most, variance, dimension=self.dimension, bits=self.bits)

    @property
    def sum_std(self) -> float:
        """Noise of a coordinate of the sum of all parties in the vector's unit."""
        return math.sqrt(self.parties) * self.noise_std / self.scale


def wrapping(most: float, variance: float, *, dimension: int, bits: int) -> float:
    """Bound on the probability that any coordinate of a sum leaves the ring's range; 0: it cannot.

    Sums of discrete Gaussians are subgaussian with the sum of their variances (Canonne et al. 2020). A matter
    of accuracy: privacy never depends on it.

    Args:
        most: largest coordinate that the sum without noise can have, in steps.
        variance: of all noise in it, in steps squared.
        dimension: coordinates.
        bits: of the ring.
    """
    room = 2.0 ** (bits - 1) - 1 - most
    if room < 0:
        return 1.0
    if variance == 0:
        return 0.0
    return min(1.0, 2 * dimension * math.exp(-(room * room) / (2 * variance)))


def fit(
    *,
    clip: float,
    dimension: int,
    parties: int,
    multiplier: float = 0.0,
    least: int | None = None,
    bits: int = 32,
) -> QuantisationPlan:
    """The finest plan for a ring: the largest power of two as scale at which sums stay in it.

    Args:
        clip: l2 norm bound of a device's vector.
        dimension: coordinates.
        parties: most vectors in a sum.
        multiplier: noise over zero-out sensitivity in the sum of the fewest survivors; 0 for none.
        least: fewest survivors (noisers); all parties if ``None``.
        bits: of the ring.

    Raises:
        QuantisationError: no scale will do, or the ring is so coarse that noise falls below √½ steps.
    """
    fewest = parties if least is None else least
    if not 1 <= fewest <= parties:
        raise QuantisationError(f"least: got {fewest}; must be in 1..{parties} (parties)")
    if not (0 < clip < math.inf and 0 <= multiplier < math.inf):
        raise QuantisationError(
            f"clip, multiplier: got {clip!r}, {multiplier!r}; must be finite, clip positive"
        )
    exponent = math.floor(math.log2(min(2.0 ** (bits - 1), _MOST_STEPS) / clip))
    for step in range(exponent, exponent - bits, -1):
        try:
            bare = QuantisationPlan(clip, 2.0**step, bits, parties, dimension)
            return replace(bare, noise_std=noise_for_least_survivors(multiplier * bare.sensitivity, fewest))
        except QuantisationError:
            continue
    raise QuantisationError(
        f"bits: no scale lets {parties} vectors of {dimension} coordinates with multiplier {multiplier:g}"
        f" fit a ring of {bits} bits"
    )


def noise_for_least_survivors(std_total: float, least: int) -> float:
    """What every device adds so that the sum of ``least`` devices has ``std_total``: more survive, more
    noise.

    Raises:
        QuantisationError: ``least`` is below 1.
    """
    if least < 1:
        raise QuantisationError(f"least: got {least}; must be at least 1")
    return std_total / math.sqrt(least)


def excess(noisers: int, std: float) -> float:
    """τ of Kairouz, Liu and Steinke 2021: how far ``noisers`` discrete Gaussians' sum is from one discrete
    Gaussian.

    τ = 10 Σ_{k=1}^{n−1} exp(−2π²σ²k/(k+1)): a log-likelihood ratio of two shifted sums differs in each
    coordinate by at most τ from that of two shifted discrete Gaussians of variance nσ² (each probability by a
    factor within exp(±τ/2): their theorem on convolving discrete Gaussians, summand by summand). Below 1e-30
    for σ ≥ 3.

    Raises:
        QuantisationError: σ² < 1/2, where the theorem says nothing, or nobody adds noise.
    """
    if noisers < 1 or std * std < 0.5:
        raise QuantisationError(
            f"a sum of {noisers} discrete Gaussians of std {std:g}: the bound needs std² ≥ 1/2"
        )
    rate = -2 * math.pi**2 * std * std
    return 10 * math.fsum(math.exp(rate * k / (k + 1)) for k in range(1, noisers))

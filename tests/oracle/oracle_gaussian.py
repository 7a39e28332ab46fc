"""Closed forms for the Gaussian mechanism, written from Balle and Wang (2018), Theorem 8.

For two Gaussians whose means are mu standard deviations apart,

    delta(eps; mu) = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu),

and epsilon at delta is where this curve meets delta. If the observer also sees which of several experiments was
made, independently of the secret, the curves of the experiments add up, weighted by their probabilities. An
experiment that tells the secret (mu infinite) contributes all of its probability at every epsilon.

*Rare failures.* An attack that plays as described except on an event of probability ``failure`` in either world
still has delta(eps) >= delta'(eps) - failure (1 + exp(eps)), where delta' belongs to the attack that never fails:
take the best test of the latter; its acceptance changes by at most ``failure`` in either world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from scipy.optimize import brentq
from scipy.special import log_ndtr

MuDistribution = Mapping[float, float]
"""Squared mu (infinity included) to probability; the probabilities may sum to less than 1 (the rest is unused)."""

LARGEST_EPSILON = 1e12
SLACK = 2e-6


def gaussian_delta(epsilon: float, mu: float) -> float:
    """delta of a Gaussian with means ``mu`` standard deviations apart."""
    if mu <= 0:
        return max(0.0, -math.expm1(epsilon)) if epsilon < 0 else 0.0
    if math.isinf(mu):
        return 1.0
    upper = log_ndtr(mu / 2 - epsilon / mu)
    lower = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    if lower >= upper:
        return 0.0
    return math.exp(upper) * -math.expm1(lower - upper)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at ``delta`` of a Gaussian with means ``mu`` standard deviations apart."""
    return mixture_epsilon({mu**2: 1.0}, delta)


def mixture_epsilon(squared: MuDistribution, delta: float, failure: float = 0.0) -> float:
    """Epsilon at ``delta`` of an experiment drawn in the open, not below 0.

    Args:
        squared: squared mu of the experiments, and their probabilities.
        delta: of the guarantee.
        failure: probability, in either world, that the attack does not play as described.
    """
    if sum(p for value, p in squared.items() if math.isinf(value)) > delta + failure:
        return math.inf if failure == 0 else _epsilon(squared, delta, failure)
    return _epsilon(squared, delta, failure)


def _epsilon(squared: MuDistribution, delta: float, failure: float) -> float:
    known = [(math.sqrt(value), p) for value, p in squared.items()]

    def above(epsilon: float) -> float:
        cost = delta + failure + (math.exp(min(700.0, epsilon + math.log(failure))) if failure else 0.0)
        return sum(p * gaussian_delta(epsilon, mu) for mu, p in known) - cost

    if above(0.0) <= 0:
        return 0.0
    high = 1.0
    while above(high) > 0:
        high *= 2
        if high > LARGEST_EPSILON:
            return math.inf
    return float(brentq(above, high / 2 if high > 1 else 0.0, high, xtol=1e-12, rtol=1e-13))


def composed(squared: MuDistribution, times: int, *, most: int = 3000) -> dict[float, float]:
    """Distribution of the sum of ``times`` independent draws of squared mu.

    Where there would be more than ``most`` values, they are rounded down to a grid, which only takes away
    from what the attacker learns.
    """
    total = {0.0: 1.0}
    for _ in range(times):
        step: dict[float, float] = {}
        for a, p in total.items():
            for b, q in squared.items():
                step[a + b] = step.get(a + b, 0.0) + p * q
        total = _fewer(step, most)
    return total


def _fewer(values: dict[float, float], most: int) -> dict[float, float]:
    if len(values) <= most:
        return values
    finite = [value for value in values if not math.isinf(value)]
    low, width = min(finite), (max(finite) - min(finite)) / (most // 2)
    kept: dict[float, float] = {}
    for value, p in values.items():
        down = value if math.isinf(value) else low + width * math.floor((value - low) / width)
        kept[down] = kept.get(down, 0.0) + p
    return kept


def room_for(epsilon: float) -> float:
    """Standard deviations that make failures rare beside an attack of this epsilon: exp(-r^2/2) << exp(-eps)."""
    return math.sqrt(2 * (epsilon + 32))


def is_rare(failure: float, epsilon: float, delta: float) -> bool:
    """Whether failures cost an attack found at ``(1 + SLACK) delta`` no more than ``SLACK delta``."""
    return failure == 0 or failure * (1 + math.exp(min(700.0, epsilon))) <= SLACK * delta

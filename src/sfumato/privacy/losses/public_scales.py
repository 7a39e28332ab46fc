"""Privacy loss distributions of releases whose noise has a public scale, drawn anew each time.

These are visible mixtures.

A public draw that has nothing to do with the unit says how much noise a release has: who else was drawn and
added noise. Given its outcome j (probability ``p_j``) the two worlds are a pair of μ_j. As the observer sees
the outcome, the hockey-stick divergence of the release is Σ p_j D_j, at every level and in both directions:
this is exact, and as a dominating pair it composes adaptively. The pair of an outcome is

    N(0, 1) against N(μ, 1), of which the observer sees whether it uses the unit (probability q): q D_μ;
    N(0, 1) against (1-q) N(0, 1) + q N(μ, 1), where it does not see it;
    (1-q) B + q A against (1-q) B + q A', where it does not see it and the unit is replaced: A is μ from A'
    and a share of μ from B (`sfumato.privacy.losses.shared_part`).

Some outcomes may be of the one kind and some of the other (``seen_scales``): then the sum is over both.

For the second and α >= 1: D_α(mixture || N(0, 1)) = q D_{α'} of the Gaussian, α' = 1 + (α-1)/q; and
D_α(N(0, 1) || mixture) = (1 - α(1-q)) D_{α''} of the Gaussian, α'' = αq/(1 - α(1-q)), nothing from α =
1/(1-q) on (`gaussian.delta` gives D, for α' and α'' are at least 1).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sfumato.privacy.draws.sampling import Sampling
from sfumato.privacy.losses import gaussian
from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.grid import PairLosses, from_profiles
from sfumato.privacy.losses.shared_part import Moves, largest_loss, of_one_move


@lru_cache(maxsize=64)
def of_public_scales(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """The distribution of one release.

    Args:
        square: squared ratio of sensitivity to noise where there is least noise.
        sampling: with ``scales``.
        interval: of the grid, in nats.
    """
    longest = math.sqrt(square) * max(share for _, share in (*sampling.scales, *sampling.seen_scales))
    rate = sampling.rate if sampling.hidden and not sampling.seen_scales else 1.0
    away = max(sampling.apart)
    points = max(2, math.ceil(largest_loss(rate, longest, longest * away) / interval)) + 1
    levels: Array = np.arange(points, dtype=np.float64) * interval
    forward: Array = np.zeros(points)
    backward: Array = np.zeros(points)
    for chance, share in sampling.scales:
        if share == 0:
            continue  # tells nothing
        mu = math.sqrt(square) * share
        reached = levels[: np.searchsorted(levels, largest_loss(rate, mu, mu * away)) + 1]
        forward[: len(reached)] += chance * _forward(reached, mu, sampling)
        if sampling.hidden and not sampling.shares_a_part:
            backward[: len(reached)] += chance * _backward(reached, mu, sampling.rate)
    for chance, share in sampling.seen_scales:
        mu = math.sqrt(square) * share
        reached = levels[: np.searchsorted(levels, largest_loss(1.0, mu, mu)) + 1]
        told = chance * gaussian.delta(epsilon=reached, mu=np.array(mu))
        forward[: len(reached)] += told
        backward[: len(reached)] += told
    if not sampling.hidden or sampling.shares_a_part:
        alike = from_profiles(forward, forward, interval)
        return alike, alike
    return from_profiles(forward, backward, interval), from_profiles(backward, forward, interval)


def _forward(levels: Array, mu: float, sampling: Sampling) -> Array:
    """Of the world with the unit against the other, at ε = ``levels``."""
    if not sampling.hidden:
        return sampling.rate * gaussian.delta(epsilon=levels, mu=np.array(mu))
    if sampling.shares_a_part:
        return of_one_move(levels, sampling.rate, Moves(sampling.rate, mu, mu * sampling.apart[0]))
    present = (-np.expm1(-levels) + sampling.rate * np.exp(-levels)) / sampling.rate
    inner = np.maximum(levels + np.log(present), 0.0)
    return sampling.rate * gaussian.delta(epsilon=inner, mu=np.array(mu))


def _backward(levels: Array, mu: float, rate: float) -> Array:
    """Of the world without the unit against the other, where nobody sees the draw."""
    log_absent = math.log1p(-rate) if rate < 1 else -math.inf
    left = np.abs(np.expm1(np.minimum(levels + log_absent, 0.0)))
    with np.errstate(divide="ignore"):
        inner = np.maximum(levels + np.log(rate / left), 0.0)
    return left * gaussian.delta(epsilon=inner, mu=np.array(mu))

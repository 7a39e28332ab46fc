"""Privacy loss distributions of two worlds that share a part: one step of advanced joint convexity.

With probability 1 - p both worlds release B (the unit is not drawn). With probability p the one world
releases A and the other A'. A is at most ``s`` from A' and at most ``t`` from B, in units of the noise; "at
most s from" means that no test tells the two apart better than N(0, 1) from N(s, 1). For α >= 1,

    D_α(pA + (1-p)B || pA' + (1-p)B) = ∫ (pA - αpA' - (α-1)(1-p)B)₊.

Split the first A as cA + (1-c)A. The positive part of a sum is at most the sum of the positive parts, so this
is at most ∫ (cpA - αpA')₊ + ∫ ((1-c)pA - (α-1)(1-p)B)₊ for every c in [0, 1]: two hockey-stick divergences,
of A from A' and of A from B, each at most that of its Gaussians. With A = N(0, 1), A' = N(s, 1) and
B = N(t, 1) on one line, and z where pA = αpA' + (α-1)(1-p)B, the choice c = αA'(z)/A(z) makes both positive
parts the half-line below z, and the bound is

    pΦ(z) - αpΦ(z-s) - (α-1)(1-p)Φ(z-t),

the divergence of the three Gaussians on one line themselves. So it is attained wherever messages may lie so.
Only pairs were compared, so A, A' and B may be adaptive compositions. Where α < 1, D_α(P || Q) is
1 - α + α D_{1/α}(Q || P), and the bound for the other direction is used. Both are convex in α, and as
suprema over pairs their maximum is.

*A fixed number drawn.* Draw ``n`` of the devices other than the unit, and one of the n whose place the unit
takes with probability p = n/N: a uniform draw of all N. Given these, B is the release with that device and
A, A' with the unit in its place. The worlds are mixtures of such pairs with the same weights, and
divergences are jointly convex. With a unit zeroed out A is 1 from A' in units of its sensitivity, A is 2
from B and A' is 1 from B (devices that count alike); with a unit replaced all three are one replace-one
sensitivity apart. With all at most ``s`` apart this is the pair of Zhu, Dong and Wang (2022) for subsampling
without replacement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sfumato.privacy.draws.sampling import Sampling
from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.grid import GridLosses, PairLosses, from_profiles

TAIL = 9.5  # standard deviations beyond which losses count as infinite or least: probability 1e-21
_NEWTON_STEPS = 12


@dataclass(frozen=True)
class Moves:
    """One way of being drawn: its probability, how far A is from A' (``between``), and how far from B."""

    chance: float
    between: float
    from_shared: float


@lru_cache(maxsize=64)
def of_fixed_draw(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """The distribution of one release whose contributors are a fixed number, drawn unseen.

    Args:
        square: squared ratio of the unit's sensitivity to the noise.
        sampling: of kind ``fixed``.
        interval: of the grid, in nats.
    """
    move = math.sqrt(square)
    one, other = ([Moves(sampling.rate, move, move * away)] for away in sampling.apart)
    forward = distribution(one, other, interval)
    return forward, forward if one == other else distribution(other, one, interval)


def distribution(one: Sequence[Moves], other: Sequence[Moves], interval: float) -> GridLosses:
    """The distribution of the first world against the second.

    Args:
        one: how A moves, seen from the first world; the shared part is split in proportion to the chances.
        other: how A' moves, seen from the second world.
        interval: of the grid, in nats.
    """
    right = _profile(one, interval)
    return from_profiles(right, right if one == other else _profile(other, interval), interval)


def _profile(moves: Sequence[Moves], interval: float) -> Array:
    """The profile at every point of the grid from 0 on."""
    rate = min(1.0, math.fsum(move.chance for move in moves))
    most = max(largest_loss(rate, move.between, move.from_shared) for move in moves)
    points = max(1, math.ceil(most / interval)) + 1
    levels: Array = np.arange(points, dtype=np.float64) * interval
    parts = [move.chance / rate * of_one_move(levels, rate, move) for move in moves]
    return np.asarray(np.sum(parts, axis=0))


def largest_loss(rate: float, between: float, from_shared: float) -> float:
    """The largest loss of two worlds that share a part, beyond `TAIL` aside.

    The ratio of their densities is at most that of the first world to all of the shared part in the second.
    """
    whole = _largest_of_draw(rate, max(between, from_shared))
    if rate == 1 or from_shared >= between:
        return whole
    return min(whole, _largest_of_draw(rate, from_shared) - math.log1p(-rate))


def _largest_of_draw(rate: float, move: float) -> float:
    """ln(1 - p + p e^x) for the largest loss x of a Gaussian that moves by ``move``."""
    largest = move * move / 2 + TAIL * move
    if largest < 1:
        return math.log1p(rate * math.expm1(largest))
    return float(np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + largest))


def of_one_move(levels: Array, rate: float, move: Moves) -> Array:
    """pΦ(z) - αpΦ(z-s) - (α-1)(1-p)Φ(z-t) at α = e^levels, which are at least 0, and p = ``rate`` > 0."""
    from scipy import special

    s, t = move.between, move.from_shared
    with np.errstate(divide="ignore"):
        log_other = math.log(rate) + levels
        log_shared = levels + np.log(-np.expm1(-levels)) + (math.log1p(-rate) if rate < 1 else -math.inf)
    # Newton's iteration for the z at which both weigh as much as A: convex in z, and started above its root
    z = np.minimum(
        (math.log(rate) - log_other) / s + s / 2,
        (math.log(rate) - log_shared) / t + t / 2,
    )
    for _ in range(_NEWTON_STEPS):
        one, two = log_other + s * z - s * s / 2, log_shared + t * z - t * t / 2
        both = np.logaddexp(one, two)
        z = z - (both - math.log(rate)) / (s * np.exp(one - both) + t * np.exp(two - both))
    taken = np.exp(log_other + special.log_ndtr(z - s)) + np.exp(log_shared + special.log_ndtr(z - t))
    return np.asarray(np.maximum(rate * special.ndtr(z) - taken, 0.0), dtype=np.float64)

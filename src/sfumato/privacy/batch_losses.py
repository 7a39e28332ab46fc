"""Privacy loss distributions of one release whose sender draws its own batches, from hockey-stick profiles.

With probability 1 - p the record is not drawn and the message is the shared part, N(0, 1); with probability
``c_j`` it is moved by at most ``s_j`` (c_1 + c_2 + ... = p), all in units of the noise. Two cases
(docs/accounting.md derives both):

*one world is the shared part* (a record zeroed out): the pair is N(0, 1) against the mixture of N(s_j, 1),
in one dimension. Both its profiles are computed at every point of the grid.

*both worlds leave the shared part* (a record replaced, or a device that may not take part at all): by
``s_j`` from each other and ``t_j`` from the shared part. With D_s the profile of a Gaussian and e^η =
1 + p (e^ε − 1), that of the pair at e^η is at most sum_j c_j (β D_{s_j}(e^ε) + (1 − β) D_{t_j}(e^ε)) in both
directions, β = e^(η − ε).

dp_accounting turns profiles into distributions, and has a mixture of Gaussians of its own, which searches for
every point of the grid alone and takes half a minute where this takes half a second.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sfumato.privacy import gaussian
from sfumato.privacy.gaussian import Array
from sfumato.privacy.sampling import Sampling

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_TAIL = 9.5  # standard deviations beyond which losses count as infinite or least: probability 1e-21
_BISECTIONS = 64


@lru_cache(maxsize=64)
def of_batches(square: float, sampling: Sampling, interval: float) -> PrivacyLossDistribution:
    """The distribution of one release.

    Args:
        square: squared ratio of the whole sensitivity to the noise.
        sampling: of kind ``batches``.
        interval: of the grid, in nats.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    listed = np.array([move for move in sampling.moves if move[0] > 0])
    chances, between, from_shared = listed[:, 0], *(math.sqrt(square) * listed[:, 1:].T)
    if sampling.shares_a_part:
        return PrivacyLossDistribution(_both_leave(chances, between, from_shared, interval))
    mixture = _Mixture(chances, between)
    return PrivacyLossDistribution(
        _distribution(*mixture.forward(interval), interval),
        _distribution(*mixture.backward(interval), interval),
    )


def _both_leave(chances: Array, between: Array, from_shared: Array, interval: float) -> PLDPmf:
    """The symmetric pair: its profile from those of Gaussians, by advanced joint convexity."""
    rate = min(1.0, float(chances.sum()))
    most = float(max(between.max(), from_shared.max()))
    top = most * most / 2 + _TAIL * most
    upper = math.ceil(
        np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + top) / interval
    )
    above = np.arange(0, max(1, upper) + 1) * interval
    inner = np.maximum(above + np.log1p((rate - 1) * np.exp(-above)) - math.log(rate), 0.0)
    other = np.exp(above - inner)  # what the other world weighs beside the shared part
    right = np.zeros_like(above)
    for chance, to_other, to_shared in zip(chances, between, from_shared, strict=True):
        right += chance * other * gaussian.delta(epsilon=inner, mu=to_other)
        right += chance * (1 - other) * gaussian.delta(epsilon=inner, mu=to_shared)
    # D at e^-ε from D at e^ε, as the pair is symmetric
    left = (-np.expm1(-above) + np.exp(-above) * right)[:0:-1]
    return _distribution(-len(left), np.concatenate([left, right]), interval)


class _Mixture:
    """N(0, 1), and the mixture of N(s_j, 1) with probabilities c_j and of N(0, 1) with the rest."""

    def __init__(self, chances: Array, moves: Array) -> None:
        self._rest = max(0.0, 1.0 - float(chances.sum()))
        self._chances, self._moves = chances, moves

    def forward(self, interval: float) -> tuple[int, Array]:
        """First grid point, and the profile of the mixture against N(0, 1) from there on."""
        least, most = self._loss(np.array([-_TAIL, _TAIL + float(self._moves.max())]))
        first, epsilons = _grid(least, most, interval)
        places = self._places(epsilons)
        return first, self._weight_beyond(-places, -1.0) - _times_exp(_normal(-places), epsilons)

    def backward(self, interval: float) -> tuple[int, Array]:
        """First grid point, and the profile of N(0, 1) against the mixture from there on."""
        least, most = self._loss(np.array([-_TAIL, _TAIL]))
        first, epsilons = _grid(-most, -least, interval)
        places = self._places(-epsilons)
        return first, _normal(places) - _times_exp(self._weight_beyond(places, 1.0), epsilons)

    def _loss(self, places: Array) -> Array:
        """ln of the mixture's density over that of N(0, 1); it increases."""
        total = np.full_like(places, math.log(self._rest) if self._rest > 0 else -math.inf)
        for chance, move in zip(self._chances, self._moves, strict=True):
            total = np.logaddexp(total, math.log(chance) + move * places - move * move / 2)
        return total

    def _places(self, losses: Array) -> Array:
        """Where the loss reaches ``losses``; -∞ for what it never falls to."""
        low = np.full_like(losses, -2 * _TAIL)
        high = np.full_like(losses, 2 * _TAIL + float(self._moves.max()))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            below = self._loss(middle) < losses
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        if self._rest > 0:
            low = np.where(losses <= math.log(self._rest), -math.inf, low)
        return low

    def _weight_beyond(self, places: Array, sign: float) -> Array:
        """Probability under the mixture of what lies below ``places``; mirrored, where ``sign`` is -1."""
        total = self._rest * _normal(places)
        for chance, move in zip(self._chances, self._moves, strict=True):
            total = total + chance * _normal(places - sign * move)
        return total


def _normal(places: Array) -> Array:
    from scipy import special

    return np.asarray(special.ndtr(places), dtype=np.float64)


def _times_exp(weights: Array, epsilons: Array) -> Array:
    """``weights * exp(epsilons)`` where the product is at most about 1, however large the second is."""
    logs = np.log(weights, out=np.full_like(weights, -np.inf), where=weights > 0)
    return np.asarray(np.exp(epsilons + logs), dtype=np.float64)


def _grid(least: float, most: float, interval: float) -> tuple[int, Array]:
    first = math.floor(least / interval)
    last = max(math.ceil(most / interval), first + 1)
    return first, np.arange(first, last + 1, dtype=np.float64) * interval


def _distribution(first: int, profile: Array, interval: float) -> PLDPmf:
    """The distribution whose profile is at least ``profile`` everywhere, and is that on the grid."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap

    falling = np.minimum.accumulate(np.clip(profile, 0.0, 1.0))
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, first + len(falling) - 1, falling)

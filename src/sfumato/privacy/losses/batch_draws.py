"""Privacy loss distributions of one release whose sender draws its own batches, from hockey-stick profiles.

With probability 1 - p the record is not drawn and the message is the shared part, N(0, 1); with probability
``c_j`` it is moved by at most ``s_j`` (c_1 + c_2 + ... = p), all in units of the noise. Two cases
(docs/accounting.md derives both):

*one world is the shared part* (a record zeroed out): the pair is N(0, 1) against the mixture of N(s_j, 1),
in one dimension. Both its profiles are computed at every point of the grid.

*both worlds leave the shared part* (a record replaced, or a device that may not take part at all): by
``s_j`` from each other and ``t_j`` from the shared part. Each share ``c_j / p`` of the shared part goes with
one move, and the profile is at most the sum of the profiles of the moves
(`sfumato.privacy.losses.shared_part`).

dp_accounting has a mixture of Gaussians too, which searches for every point of the grid alone and takes half
a minute where this takes half a second.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sfumato.privacy.draws.sampling import Sampling
from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.grid import PairLosses, from_profiles
from sfumato.privacy.losses.shared_part import TAIL, Moves, distribution

_BISECTIONS = 64


@lru_cache(maxsize=64)
def of_batches(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """The distribution of one release.

    Args:
        square: squared ratio of the whole sensitivity to the noise.
        sampling: of kind ``batches``.
        interval: of the grid, in nats.
    """
    listed = np.array([move for move in sampling.moves if move[0] > 0])
    chances, between, from_shared = listed[:, 0], *(math.sqrt(square) * listed[:, 1:].T)
    if sampling.shares_a_part:
        both = [Moves(*move) for move in zip(chances, between, from_shared, strict=True)]
        alike = distribution(both, both, interval)
        return alike, alike
    mixture = _Mixture(chances, between)
    forward, backward = mixture.forward(interval), mixture.backward(interval)
    return from_profiles(forward, backward, interval), from_profiles(backward, forward, interval)


class _Mixture:
    """N(0, 1), and the mixture of N(s_j, 1) with probabilities c_j and of N(0, 1) with the rest."""

    def __init__(self, chances: Array, moves: Array) -> None:
        self._rest = max(0.0, 1.0 - float(chances.sum()))
        self._chances, self._moves = chances, moves

    def forward(self, interval: float) -> Array:
        """The profile of the mixture against N(0, 1) at the points of the grid from 0 on."""
        (most,) = self._loss(np.array([TAIL + float(self._moves.max())]))
        epsilons = _grid(most, interval)
        places = self._places(epsilons)
        return self._weight_beyond(-places, -1.0) - _times_exp(_normal(-places), epsilons)

    def backward(self, interval: float) -> Array:
        """The profile of N(0, 1) against the mixture at the points of the grid from 0 on."""
        (least,) = self._loss(np.array([-TAIL]))
        epsilons = _grid(-least, interval)
        places = self._places(-epsilons)
        return _normal(places) - _times_exp(self._weight_beyond(places, 1.0), epsilons)

    def _loss(self, places: Array) -> Array:
        """ln of the mixture's density over that of N(0, 1); it increases."""
        total = np.full_like(places, math.log(self._rest) if self._rest > 0 else -math.inf)
        for chance, move in zip(self._chances, self._moves, strict=True):
            total = np.logaddexp(total, math.log(chance) + move * places - move * move / 2)
        return total

    def _places(self, losses: Array) -> Array:
        """Where the loss reaches ``losses``; -∞ for what it never falls to."""
        low = np.full_like(losses, -2 * TAIL)
        high = np.full_like(losses, 2 * TAIL + float(self._moves.max()))
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


def _grid(most: float, interval: float) -> Array:
    return np.arange(max(1, math.ceil(most / interval)) + 1, dtype=np.float64) * interval

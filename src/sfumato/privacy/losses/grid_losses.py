"""Privacy losses of one release on a grid: their distribution, from hockey-stick profiles.

The profile of a pair of worlds, D(ε) for every ε, is convex in e^ε and falls. Chords
between the points of a grid therefore lie above it. The distribution of losses whose profile these chords
are dominates the pair, and is the least on this grid that does ("connect the dots", Doroshenko et al. 2022):
with ε_i the points, h the interval and f_i = D(ε_i) - D(ε_(i+1)), a loss of ε_i has the probability f_(i-1)
/ (1 - e^(-h)) - f_i / (e^h - 1), an infinite one D at the last point.

A loss of -l of the first world against the second is one of l the other way round, and e^(-l) times as
likely. So losses below 0 follow from the profile of the other direction, where differences of small numbers
are taken instead of differences of numbers near 1. A loss of 0 has what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sfumato.privacy.losses.gaussian import Array


@dataclass(frozen=True, eq=False)
class GridLosses:
    """Distribution of the losses of one release.

    Attributes:
        first: the first point of the grid, in intervals.
        masses: probabilities from there on.
        infinite: probability of an infinite loss.
    """

    first: int
    masses: Array
    infinite: float


_NEGLIGIBLE = 1e-25
PairLosses: TypeAlias = tuple[GridLosses, GridLosses]
"""Of the world with the unit against the other, and the other way round; one object where they are alike."""


def losses_from_profiles(right: Array, mirrored: Array, interval: float) -> GridLosses:
    """Compute the least distribution on the grid whose profile is at least that of one world against another.

    A profile is the hockey-stick divergence as a function of ε; ε takes the values 0, h, 2h, … of a grid with
    interval h.

    Args:
        right: the profile of the first world against the second, ``[points]``, two points or more.
        mirrored: the profile of the second world against the first, the same; lengths may differ.
        interval: h, in nats.
    """
    right, mirrored = _without_tail(right), _without_tail(mirrored)
    above, infinite = _masses_above_zero(right, interval), max(0.0, float(right[-1]))
    below = _masses_above_zero(mirrored, interval)
    below = (below * np.exp(-interval * np.arange(1, len(below) + 1)))[::-1]
    rest = max(0.0, 1.0 - infinite - float(above.sum()) - float(below.sum()))
    return GridLosses(-len(below), np.concatenate([below, [rest], above]), infinite)


def _masses_above_zero(profile: Array, interval: float) -> Array:
    """Probabilities ``[points - 1]`` of the losses of 1, 2, … intervals, from the profile.

    Args:
        profile: hockey-stick divergence at 0, 1, … intervals, ``[points]``, two or more.
        interval: of the grid, in nats.
    """
    falls = -np.diff(np.minimum.accumulate(np.clip(profile, 0.0, 1.0)))
    masses: Array = falls / -math.expm1(-interval)
    masses[:-1] -= falls[1:] / math.expm1(interval)
    return np.maximum(masses, 0.0)  # convex up to rounding


def _without_tail(profile: Array) -> Array:
    """``profile`` up to its first point of at most 1e-25; what lies beyond is charged as no protection."""
    return profile[: max(2, np.count_nonzero(profile > _NEGLIGIBLE) + 1)]

"""Distributions of privacy losses on a grid, from hockey-stick profiles.

The profile of a pair of worlds, D(ε) for every ε, is convex in e^ε and falls. Chords between the points of a
grid therefore lie above it. The distribution of losses whose profile these chords are dominates the pair,
and is the least on this grid that does ("connect the dots", Doroshenko et al. 2022): with ε_i the points,
h the interval and f_i = D(ε_i) - D(ε_(i+1)), a loss of ε_i has the probability
f_(i-1) / (1 - e^(-h)) - f_i / (e^h - 1), an infinite one D at the last point, and the first point has the
rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sfumato.privacy.gaussian import Array


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


PairLosses: TypeAlias = tuple[GridLosses, GridLosses]
"""Of the world with the unit against the other, and the other way round; one object where they are alike."""


def from_profile(first: int, profile: Array, interval: float) -> GridLosses:
    """The distribution whose profile is at least ``profile`` everywhere, and is that on the grid.

    Args:
        first: the first point of the grid, in intervals.
        profile: hockey-stick divergences at the points of the grid, of which there are two or more.
        interval: of the grid, in nats.
    """
    falling = np.minimum.accumulate(np.clip(profile, 0.0, 1.0))
    falls, infinite = -np.diff(falling), float(falling[-1])
    masses = np.zeros(len(profile))
    masses[1:] = falls / -math.expm1(-interval)
    masses[1:-1] -= falls[1:] / math.expm1(interval)
    masses = np.maximum(masses, 0.0)  # convex up to rounding
    masses[0] = max(0.0, 1.0 - infinite - float(masses[1:].sum()))
    return GridLosses(first, masses, infinite)

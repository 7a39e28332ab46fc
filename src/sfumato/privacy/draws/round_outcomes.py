"""Rounds that a public draw decides about, such as who is elected: what an outcome reveals, and how often it
happens.

The outcome of a round is independent of all data, and the coalition sees it. Given the outcome, the round is
a pair of Gaussians, or one that Poisson sampling amplifies where the draw of the participants is hidden from
the coalition even then. So the hockey-stick divergence of the round is the sum of those of its outcomes, each
times its probability, at every level and in both directions (`public_scales`). This is exact, and rounds
compose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.privacy.draws.noise_outcomes import noise_outcomes, thinned_values
from sfumato.privacy.draws.sampling import Sampling
from sfumato.privacy.losses.gaussian_terms import GaussianTerm
from sfumato.privacy.neighbours import Neighbours
from sfumato.privacy.release import DrawnReleases, total_mu_squared

_MOST_HIDDEN, _MOST_SEEN = 48, 256
Outcome = tuple[float, float]


def round_of_outcomes(
    draws: Sequence[DrawnReleases], chances: Sequence[float], neighbours: Neighbours
) -> tuple[GaussianTerm, float]:
    """The rounds as one term, and the probability that a round protects nothing.

    Args:
        draws: of a round, for each outcome; they are drawn at one rate, as often.
        chances: the probability of each outcome.
        neighbours: zero-out or replace.
    """
    hidden: list[Outcome] = []
    seen: list[Outcome] = []
    bare = 0.0
    for chance, draw in zip(chances, draws, strict=True):
        blind = draw.poisson_amplifies(neighbours)
        rate = draw.sampling.rate if blind else draw.moved_rate
        for share, square in _squares(draw, neighbours):
            if math.isinf(square):
                bare += chance * share * rate
            elif blind:
                hidden.append((chance * share, square))
            else:
                seen.append((chance * share * rate, square))
    largest = max((square for _, square in hidden + seen), default=0.0)
    if largest == 0:
        return GaussianTerm(math.inf, draws[0].count), bare
    scales = _scales(seen, largest, _MOST_HIDDEN if hidden else _MOST_SEEN)
    sampling = Sampling.poisson(1.0, hidden=False, scales=scales)
    if hidden:
        unseen = _scales(hidden, largest, _MOST_HIDDEN)
        apart = max(draw.apart(neighbours) for draw in draws)
        sampling = Sampling.poisson(draws[0].sampling.rate, apart=apart, scales=unseen, seen_scales=scales)
    return GaussianTerm(1 / math.sqrt(largest), draws[0].count, sampling), bare


def _squares(draw: DrawnReleases, neighbours: Neighbours) -> Iterator[Outcome]:
    """The possible values of μ² of a round with ``draw``, by the noise of others, and their probabilities."""
    if draw.drawn_noise:
        yield from noise_outcomes(draw, neighbours)
    else:
        yield 1.0, total_mu_squared(draw.releases, neighbours)


def _scales(outcomes: Sequence[Outcome], largest: float, most: int) -> tuple[Outcome, ...]:
    """``outcomes`` by their share of the largest μ; what tells nothing is left out."""
    if not outcomes:
        return ()
    chances, squares = np.array(outcomes).T
    squares, chances = thinned_values(squares, chances, most, np.maximum)
    shares = np.sqrt(squares / largest)
    return tuple((float(p), float(s)) for p, s in zip(chances, shares, strict=True) if s > 0)

"""How much noise other drawn devices add to a round, as a public draw.

Who else is drawn is told to the observer, which can only help it. Given that, every release has the variance
that is sure plus that of the others who are drawn, and the round is Gaussian with μ² = Σ s²/v. Under Poisson
participation others are drawn independently of the unit, so who they are is a public draw that has nothing to
do with the unit: the round is a visible mixture (`public_scales`). All rounding here is towards less noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.revealed_draws import binomial_weights
from sfumato.privacy.neighbours import Neighbours
from sfumato.privacy.release import DrawnReleases

_MOST_OUTCOMES = 48
_MOST_SUMS = (2048, 48)  # of one direction alone, and of each of two
_LONGEST_SUM, _LEAST_SHARES = 1 << 14, 32  # where variances of one direction differ: see `_sum_of`
_NEGLIGIBLE = 1e-20


def noise_outcomes(drawn: DrawnReleases, neighbours: Neighbours) -> list[tuple[float, float]]:
    """Probabilities, which add up to 1, and μ² of the round in each case, at most; it may be infinite."""
    sensitivities = np.array([release.sensitivity(neighbours) for release in drawn.releases])
    chances, variances = np.ones(1), np.array([[release.variance for release in drawn.releases]])
    directions = _directions(drawn)
    for direction, parts in directions:
        added, weights = _sum_of(parts, drawn.sampling.rate)
        added, weights = thinned_values(added, weights, _MOST_SUMS[len(directions) - 1], np.minimum)
        variances = (variances[:, None, :] + added[None, :, None] * direction).reshape(-1, len(sensitivities))
        chances = np.outer(chances, weights).ravel()
    moving = sensitivities > 0
    with np.errstate(divide="ignore"):
        squares = (sensitivities[moving] ** 2 / variances[:, moving]).sum(axis=1)
    squares, chances = thinned_values(squares, chances, _MOST_OUTCOMES, np.maximum)
    return [(float(chance), float(square)) for chance, square in zip(chances, squares, strict=True)]


def _directions(drawn: DrawnReleases) -> list[tuple[Array, list[tuple[float, int]]]]:
    """In which proportion devices add noise to the releases: how much to the most, and how many do.

    Noise in other proportions than the two that have the most of it is not counted.
    """
    found: defaultdict[tuple[float, ...], list[tuple[float, int]]] = defaultdict(list)
    for noise in drawn.drawn_noise:
        most = max(noise.variances)
        if most > 0 and noise.count > 0:
            found[tuple(v / most for v in noise.variances)].append((most, noise.count))
    order = sorted(found.items(), key=lambda item: -sum(most * count for most, count in item[1]))
    return [(np.array(direction), parts) for direction, parts in order[: len(_MOST_SUMS)]]


def _sum_of(parts: Sequence[tuple[float, int]], rate: float) -> tuple[Array, Array]:
    """Sums of the variances of those who are drawn, and their probabilities.

    Variances that differ count in whole shares of the largest, as many as keep the sum of all short.
    """
    largest = max(variance for variance, _ in parts)
    shares = max(_LEAST_SHARES, _LONGEST_SUM // sum(count for _, count in parts))
    unit = largest if all(variance == largest for variance, _ in parts) else largest / shares
    counts: defaultdict[int, int] = defaultdict(int)
    for variance, count in parts:
        counts[math.floor(variance / unit * (1 + 1e-12))] += count
    start, weights = 0, np.ones(1)
    for units, count in sorted(counts.items()):
        if units > 0:
            apart = np.zeros(units * count + 1)
            apart[::units] = binomial_weights(count, rate)
            first, kept = _trimmed(apart)
            more, weights = _trimmed(np.convolve(weights, kept))
            start += first + more
    missing = max(0.0, 1.0 - math.fsum(weights))  # counted as if nobody were drawn
    sums = unit / (1 + 1e-12) * (start + np.arange(len(weights)))
    return np.append(0.0, sums), np.append(missing, weights)


def _trimmed(weights: Array) -> tuple[int, Array]:
    """Without ends that are next to never reached: the upper one counts as the last that is kept."""
    below, above = np.cumsum(weights), np.cumsum(weights[::-1])[::-1]
    kept = np.flatnonzero((below > _NEGLIGIBLE) & (above > _NEGLIGIBLE))
    first, last = int(kept[0]), int(kept[-1])
    inner = weights[first : last + 1].copy()
    inner[-1] += weights[last + 1 :].sum()
    return first, inner


def thinned_values(values: Array, weights: Array, most: int, representative: np.ufunc) -> tuple[Array, Array]:
    """About ``most`` values beside 0 and ∞: the least or largest of neighbours, finer where likelier."""
    distinct, inverse = np.unique(values[weights > 0], return_inverse=True)
    added: Array = np.bincount(inverse.ravel(), weights[weights > 0]).astype(np.float64)
    inner = (distinct > 0) & np.isfinite(distinct)
    if inner.sum() <= most:
        return distinct, added
    logs, spread = np.log(distinct[inner]), np.cumsum(np.sqrt(added[inner]))
    places = (logs - logs[0]) / (logs[-1] - logs[0]), spread / spread[-1]
    cells = np.floor(places[0] * most / 2) + np.floor(places[1] * most / 2)
    starts = np.flatnonzero(np.append(1.0, np.diff(cells)) > 0)
    fewer = representative.reduceat(distinct[inner], starts)
    together = np.add.reduceat(added[inner], starts)
    return np.append(distinct[~inner], fewer), np.append(added[~inner], together)

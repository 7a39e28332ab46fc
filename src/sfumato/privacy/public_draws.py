"""Rounds that a public draw decides about: what an outcome reveals, and how often it happens.

The outcome of a round is independent of all data, and the coalition sees it, which can only help it. So the
divergence of the round is the sum of those of its outcomes, each times its probability
(`sfumato.privacy.losses.one_release`): this is exact, and rounds compose. There are two such draws. *Who is
elected* (`round_of_outcomes`, docs/hdp.md): given that, the draw of the participants may still be hidden.
*Which others are drawn*, and add noise (`noise_outcomes`, docs/accounting.md): every release has the variance
that is sure plus theirs, and the round is Gaussian with μ² = Σ s²/v. All rounding is towards less noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from sfumato.privacy.losses.gaussian import Array
from sfumato.privacy.losses.revealed_draws import binomial_weights
from sfumato.privacy.release import DrawnReleases, total_mu_squared
from sfumato.privacy.sampling import GaussianTerm, Neighbours, Sampling

_MOST_OUTCOMES = 48
_MOST_SUMS = (2048, 48)  # of one direction alone, and of each of two
_LONGEST_SUM, _LEAST_SHARES = 1 << 14, 32  # where variances of one direction differ: see `_sums_of_variances`
_NEGLIGIBLE = 1e-20


def noise_outcomes(drawn: DrawnReleases, neighbours: Neighbours) -> list[tuple[float, float]]:
    """The distribution of μ² of a round over which other devices are drawn and add noise.

    Args:
        drawn: the releases of the round, and the noise that is there by chance.
        neighbours: the relation.

    Returns:
        Pairs of a probability (they add up to 1) and μ², rounded up; μ² may be infinite.
    """
    sensitivities = np.array([release.sensitivity(neighbours) for release in drawn.releases])
    chances, variances = np.ones(1), np.array([[release.variance for release in drawn.releases]])
    directions = _directions(drawn)
    for direction, parts in directions:
        added, weights = _sums_of_variances(parts, drawn.sampling.rate)
        added, weights = thinned_values(added, weights, _MOST_SUMS[len(directions) - 1], np.minimum)
        variances = (variances[:, None, :] + added[None, :, None] * direction).reshape(-1, len(sensitivities))
        chances = np.outer(chances, weights).ravel()
    moving = sensitivities > 0
    with np.errstate(divide="ignore"):
        squares = (sensitivities[moving] ** 2 / variances[:, moving]).sum(axis=1)
    squares, chances = thinned_values(squares, chances, _MOST_OUTCOMES, np.maximum)
    return [(float(chance), float(square)) for chance, square in zip(chances, squares, strict=True)]


def _directions(drawn: DrawnReleases) -> list[tuple[Array, list[tuple[float, int]]]]:
    """The two commonest proportions in which devices spread their noise over the releases, or fewer.

    Noise in other proportions is not counted.

    Returns:
        For each, an array ``[releases]`` with largest entry 1, and pairs of the largest variance that a
        device adds to a release and how many such devices there are.
    """
    found: defaultdict[tuple[float, ...], list[tuple[float, int]]] = defaultdict(list)
    for noise in drawn.drawn_noise:
        most = max(noise.variances)
        if most > 0 and noise.count > 0:
            found[tuple(v / most for v in noise.variances)].append((most, noise.count))
    order = sorted(found.items(), key=lambda item: -sum(most * count for most, count in item[1]))
    return [(np.array(direction), parts) for direction, parts in order[: len(_MOST_SUMS)]]


def _sums_of_variances(parts: Sequence[tuple[float, int]], rate: float) -> tuple[Array, Array]:
    """List possible sums of the variances of the devices that are drawn, and their probabilities.

    Variances that differ count in whole shares of the largest, rounded down, as many as keep the list short.

    Args:
        parts: pairs of a variance and the number of devices that add it.
        rate: Poisson rate at which each is drawn.

    Returns:
        Sums, and their probabilities, which add up to 1; both ``[sums]``.
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
            first, kept = _without_rare_ends(apart)
            more, weights = _without_rare_ends(np.convolve(weights, kept))
            start += first + more
    missing = max(0.0, 1.0 - math.fsum(weights))  # counted as if nobody were drawn
    sums = unit / (1 + 1e-12) * (start + np.arange(len(weights)))
    return np.append(0.0, sums), np.append(missing, weights)


def _without_rare_ends(weights: Array) -> tuple[int, Array]:
    """Cut both ends off a distribution, where no more than 1e-20 of it lies.

    Args:
        weights: probabilities ``[values]`` of the values 0, 1, 2 ...

    Returns:
        The first value kept, and the probabilities from it on. What lies above the last value kept counts as
        that value; what lies below the first is lost.
    """
    below, above = np.cumsum(weights), np.cumsum(weights[::-1])[::-1]
    kept = np.flatnonzero((below > _NEGLIGIBLE) & (above > _NEGLIGIBLE))
    first, last = int(kept[0]), int(kept[-1])
    inner = weights[first : last + 1].copy()
    inner[-1] += weights[last + 1 :].sum()
    return first, inner


def thinned_values(values: Array, weights: Array, most: int, representative: np.ufunc) -> tuple[Array, Array]:
    """A distribution reduced to about ``most`` values beside 0 and ∞, denser where it is likelier.

    Args:
        values: of any order.
        weights: their probabilities.
        most: about how many values to keep.
        representative: ``np.minimum`` or ``np.maximum``: which of neighbouring values stands for all of them.

    Returns:
        Values and their probabilities; unchanged, but for equal values, where they are few enough.
    """
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


_MOST_HIDDEN, _MOST_SEEN = 48, 256
Outcome = tuple[float, float]


def round_of_outcomes(
    draws: Sequence[DrawnReleases], chances: Sequence[float], neighbours: Neighbours
) -> tuple[GaussianTerm, float]:
    """One Gaussian term for all rounds, each of which has one of several public outcomes.

    Outcomes whose draw is hidden, and amplifies, become the noise scales of a sampled term; the others
    become scales that the observer sees.

    Args:
        draws: the draw of a round, for each outcome; all have the same rate and count.
        chances: the probability of each outcome.
        neighbours: zero-out or replace.

    Returns:
        The term, with multiplier ∞ where no outcome tells anything; and the probability that one round has
        no noise at all where the unit moves it.
    """
    hidden: list[Outcome] = []
    seen: list[Outcome] = []
    without_noise = 0.0
    for chance, draw in zip(chances, draws, strict=True):
        is_hidden = draw.poisson_amplifies(neighbours)
        rate = draw.sampling.rate if is_hidden else draw.moved_rate
        for share, square in _possible_mu_squared(draw, neighbours):
            if math.isinf(square):
                without_noise += chance * share * rate
            elif is_hidden:
                hidden.append((chance * share, square))
            else:
                seen.append((chance * share * rate, square))
    largest = max((square for _, square in hidden + seen), default=0.0)
    if largest == 0:
        return GaussianTerm(math.inf, draws[0].count), without_noise
    scales = _shares_of_largest(seen, largest, _MOST_HIDDEN if hidden else _MOST_SEEN)
    sampling = Sampling.poisson(1.0, hidden=False, scales=scales)
    if hidden:
        unseen = _shares_of_largest(hidden, largest, _MOST_HIDDEN)
        apart = max(draw.distance_from_undrawn(neighbours) for draw in draws)
        sampling = Sampling.poisson(draws[0].sampling.rate, apart=apart, scales=unseen, seen_scales=scales)
    return GaussianTerm(1 / math.sqrt(largest), draws[0].count, sampling), without_noise


def _possible_mu_squared(draw: DrawnReleases, neighbours: Neighbours) -> Iterator[Outcome]:
    """Probabilities and values of μ² of a round with ``draw``, by the noise of the others drawn."""
    if draw.drawn_noise:
        yield from noise_outcomes(draw, neighbours)
    else:
        yield 1.0, total_mu_squared(draw.releases, neighbours)


def _shares_of_largest(outcomes: Sequence[Outcome], largest: float, most: int) -> tuple[Outcome, ...]:
    """Turn outcomes (probability, μ²) into about ``most`` outcomes (probability, share of the largest μ).

    Shares are in (0, 1] and rounded up; outcomes that tell nothing are left out.

    Args:
        outcomes: with finite μ²; none: the result is empty.
        largest: the largest μ², > 0.
        most: about how many to keep.
    """
    if not outcomes:
        return ()
    chances, squares = np.array(outcomes).T
    squares, chances = thinned_values(squares, chances, most, np.maximum)
    shares = np.sqrt(squares / largest)
    return tuple((float(p), float(s)) for p, s in zip(chances, shares, strict=True) if s > 0)

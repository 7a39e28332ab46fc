"""Rényi divergences of order 2: by which exposed sets are compared, and whether a sum is charged as messages.

They add up, sampling included; where nothing is sampled a divergence is μ², so that a set of releases of
least cost has the least ε.

*A sum over a Poisson draw, charged message by message* (docs/leakage.md). Every device adds noise to its own
message, and some senders of a sum start from hidden models that the unit's data have reached. As a whole it
is charged for all n who may move it at once, with probability 1 - (1 - q)^n. Their messages one by one, each
with its own noise and with probability q, determine the sum, so they bound what it tells as well.

Under ``replace`` n messages have the μ² of the sum if everybody is drawn, and less if somebody is not: then
the messages never cost more. Under ``zero-out`` the unit's own part is half as long as each other one, and
(c + 2c (n - 1))² / nv < c²/v + (n - 1) (2c)²/v: there the sum costs less where q is near 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from sfumato.privacy.release import DrawnReleases, Release, total_mu_squared
from sfumato.privacy.sampling import Neighbours

_LARGE = 20.0


def messages_of(release: Release) -> tuple[tuple[Release, int], ...]:
    """Split a sum into the messages that move with the unit's data.

    Args:
        release: a sum of messages that are drawn independently. All of its noise comes from those who move
            it, in equal parts.

    Returns:
        Pairs of a message, as a release, and the number of messages equal to it: the message of the unit, if
        it contributes, and those of the linking workers. Where at most one party moves the sum, or no worker
        links, the only pair is the sum itself and 1.
    """
    own = release.own_sensitivity > 0
    movers = release.linking + own
    if not release.linking or movers == 1:
        return ((release, 1),)
    vector = f"messages of {release.vector}"
    each = replace(release, vector=vector, variance=release.variance / movers)
    moved = release.propagated_sensitivity / release.linking
    linked = replace(each, own_sensitivity=0.0, propagated_sensitivity=moved, linking=1)
    alone = replace(each, propagated_sensitivity=0.0, linking=0)
    return ((alone, 1),) * own + ((linked, release.linking),)


def cheaper_split(
    release: Release, rate: float, neighbours: Neighbours = "zero-out"
) -> tuple[tuple[Release, int], ...]:
    """``release`` as one sum or as its messages (`messages_of`), whichever has the smaller divergence.

    Args:
        release: a sum of messages, each drawn with probability ``rate``.
        rate: Poisson rate of the draw, seen by the observer.
        neighbours: the neighbouring relation.

    Returns:
        Pairs of a release and the number of releases equal to it. What is compared is the Rényi divergence
        of order 2; where it is the same, the sum is returned.
    """
    parts = messages_of(release)
    movers = release.linking + (release.own_sensitivity > 0)
    apart = math.fsum(times * renyi_2(part.mu_squared(neighbours), rate) for part, times in parts)
    together = renyi_2(release.mu_squared(neighbours), 1.0 - (1.0 - rate) ** movers)
    return parts if apart < together else ((release, 1),)


def renyi_2(square: float, weight: float) -> float:
    """Rényi divergence of order 2 of one drawn Gaussian release, ``log(1 + w (e^(μ²) - 1))``.

    Args:
        square: μ², the squared sensitivity over the noise variance; ∞ gives ∞.
        weight: w in (0, 1]: q² for a hidden draw at rate q that amplifies; for a draw that is seen the
            probability that it moves.

    Returns:
        The divergence in nats.
    """
    if square == 0 or weight == 1.0 or math.isinf(square):
        return square
    return float(np.logaddexp(math.log1p(-weight), math.log(weight) + square))


def renyi_2_of_fixed_draw(square: float, rate: float) -> float:
    """Upper bound on the Rényi divergence of order 2 of a hidden draw without replacement.

    With the messages A of the unit, zeros A' and B of the device in its place, χ² is
    ∫ p²(A - A')²/(pA' + (1-p)B), at most p (e^(μ²) - 1), as divergences are jointly convex. As (A - A')²/y
    is convex in y, it is at most p² times the mean of ∫ (A - A')²/A' and ∫ (A - A')²/B as well, with A two
    and A' one sensitivity from B. So it is under zero-out. Under replace both are one sensitivity from B and
    from each other: the last integral is then 2e^(μ²) - 2e^(μ²/2), which is less.

    Args:
        square: μ².
        rate: p, with which the unit is drawn.
    """
    if square == 0 or rate == 1.0 or math.isinf(square):
        return square
    if square > _LARGE:  # e^(4μ²) and more: the first bound is the smaller one
        return renyi_2(square, rate)
    near = math.expm1(square)
    far = math.exp(4 * square) + math.exp(square) - 2 * math.exp(2 * square)
    return math.log1p(min(rate * near, rate**2 * (rate * near + (1 - rate) * far)))


_ROUNDING = 1e-6


def divergence(drawn: DrawnReleases, neighbours: Neighbours = "zero-out") -> float:
    """The Rényi divergence of order 2, in nats, of all ``drawn`` releases over all rounds.

    Args:
        drawn: the releases, and how they are drawn.
        neighbours: the relation. Draws that are hidden are priced as under zero-out (`is_priced_exactly`).

    Returns:
        The divergence, in nats; ∞ where a release that the unit moves has no noise, and under *remove* where
        it would be seen that the unit is missing.
    """
    if drawn.shows_a_missing_unit(neighbours):
        return math.inf
    square = total_mu_squared(drawn.releases, neighbours)
    if drawn.sampling.kind == "all":
        return drawn.count * square
    if drawn.amplifies and drawn.sampling.kind == "fixed":
        return drawn.count * renyi_2_of_fixed_draw(square, drawn.sampling.sample / drawn.sampling.population)
    return drawn.count * renyi_2(square, drawn.sampling.rate**2 if drawn.amplifies else drawn.moved_rate)


def is_priced_exactly(drawn: DrawnReleases, neighbours: Neighbours) -> bool:
    """Whether `divergence` is that of ``drawn``, and not only a figure above it.

    It is above it where a hidden draw of a fixed number amplifies (`renyi_2_of_fixed_draw`), and where a
    hidden Poisson draw does under *replace*. There the messages A and A' of the unit are each m from the
    release B without it and 2m from each other, and χ² is q² ∫ (A - A')²/(qA' + (1-q)B), at most q² times the
    weighted mean of e^(4m²) - 1 and of 2e^(m²) - 2e^(-m²). The second is no more than the first, which is
    what is priced.

    Args:
        drawn: the releases, and how they are drawn; none whose propagated part a draw amplifies.
        neighbours: the relation.
    """
    if not drawn.amplifies:
        return True
    return drawn.sampling.kind != "fixed" and neighbours != "replace"


def times_the_least(cost: float, least: float) -> float:
    """Upper bound on the ratio of ``cost`` to the cost of the cheapest exposed set.

    Args:
        cost: of one exposed set, a Rényi divergence of order 2 in nats, at least 0.
        least: a lower bound on the cost of every exposed set, in nats.

    Returns:
        The ratio, at least 1, and 1 where the two differ by at most one part in a million; ∞ where ``least``
        is 0 and the cost is not.
    """
    if cost <= least * (1 + _ROUNDING):
        return 1.0
    return cost / least if least > 0 else math.inf

"""Composition when draws are hidden: privacy loss distributions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sfumato.privacy.losses.composition import LossComposition
from sfumato.privacy.losses.grid_losses import PairLosses
from sfumato.privacy.losses.one_release import (
    DrawnShift,
    largest_loss,
    losses_of_batches,
    losses_of_fixed_draw,
    losses_of_public_scales,
    profile_of_shift,
)
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import (
    GaussianTerm,
    Method,
    Sampling,
    squared_mu_of_term,
)

COARSEST_INTERVAL = 1.0
_NOMINAL_DELTA = 1e-6
_OF_EPSILON = 1e-5
_FINEST_INTERVAL = 1e-4
_OF_SPREAD = 0.04  # of the standard deviation of a loss, where that asks for a finer grid
_COARSER = 0.001  # of the same: no finer grid is needed
_MANY_RELEASES = 30  # whose sum of losses is near enough to normal for that
_COARSEST_NEEDED = 1e-2  # nats: still coarser grids are hardly quicker
_LEAST_INTERVAL = 1e-12
_ALWAYS = Sampling.poisson(1.0, hidden=False, scales=((1.0, 1.0),))
_MOST_MULTIPLIERS, _MULTIPLIER_RATIO = 32, 1.01


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """Privacy loss distribution on a grid, rounded pessimistically ("connect the dots").

    Draws say themselves how far apart the two worlds are, and how far from what they share.

    Attributes:
        terms: what is composed, merged; none is without noise.
        interval: of the grid, in nats.
        method: the name of this method.
    """

    terms: Sequence[GaussianTerm]
    interval: float
    method: Method = "pld"

    def delta(self, epsilon: float) -> float:
        """The least δ in [0, 1] at ``epsilon``: the larger of both directions."""
        return max(direction.delta(epsilon) for direction in self._directions)

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether δ at ``epsilon`` is at most ``delta``; a direction is composed only where it must be."""
        return all(direction.is_within(epsilon, delta) for direction in self._directions)

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 at ``delta``: the larger of both directions; ∞ where there is none."""
        found, *others = self._directions
        most = found.epsilon(delta)
        # no search where an ε that holds is known
        return max([most, *(other.epsilon(delta) for other in others if not other.is_within(most, delta))])

    @cached_property
    def _directions(self) -> tuple[LossComposition, ...]:
        """Composed losses of the world with the unit against the other, and the other way round.

        One entry where both directions are the same.
        """
        certain = math.fsum(
            term.count * squared_mu_of_term(term) for term in self.terms if term.sampling is None
        )
        releases = [(_losses_of_term(certain, _ALWAYS, self.interval), 1)] if certain > 0 else []
        releases += [
            (_losses_of_term(squared_mu_of_term(term), term.sampling, self.interval), term.count)
            for term in self.terms
            if term.sampling is not None
        ]
        sides = 1 if all(forward is backward for (forward, backward), _ in releases) else 2
        return tuple(
            LossComposition([(pair[side], count) for pair, count in releases], self.interval)
            for side in range(sides)
        )


def _losses_of_term(square: float, sampling: Sampling, interval: float) -> PairLosses:
    """Compute the losses, in both directions, of one release.

    Args:
        square: μ², squared sensitivity over noise variance; > 0 and finite.
        sampling: how the unit is drawn.
        interval: of the grid, in nats.

    Returns:
        Those of the world with the unit against the other, and the other way round.
    """
    if sampling.kind == "batches":
        return losses_of_batches(square, sampling, interval)
    if sampling.kind == "fixed" and sampling.hidden:
        return losses_of_fixed_draw(square, sampling, interval)
    if not (sampling.scales or sampling.seen_scales):  # always the same noise
        sampling = replace(sampling, scales=((1.0, 1.0),))
    return losses_of_public_scales(square, sampling, interval)


def delta_of_one_release(term: GaussianTerm, epsilon: float) -> float:
    """δ at ``epsilon`` of one release of ``term`` under a hidden draw of devices, which needs no grid.

    Whoever leaves the other releases out learns no more: δ of every composition that has such a release is at
    least this, and a grid only adds to it. 0, which says nothing, under other draws.

    Args:
        term: with or without sampling; without noise it is 1.
        epsilon: ε ≥ 0, finite.
    """
    sampling = term.sampling
    if term.multiplier in (0.0, math.inf):
        return float(term.multiplier == 0)
    if sampling is None or not sampling.hidden or sampling.kind not in ("fixed", "poisson"):
        return 0.0
    if sampling.scales or sampling.seen_scales or not sampling.rate:
        return 0.0
    move, level = math.sqrt(squared_mu_of_term(term)), np.array([epsilon])
    away = DrawnShift(sampling.rate, move, move * max(sampling.apart))  # of the direction with more δ
    return float(profile_of_shift(level, sampling.rate, away)[0])


def with_fewer_multipliers(terms: Sequence[GaussianTerm]) -> list[GaussianTerm]:
    """``terms`` with equal ones merged, and with at most 32 or so noise multipliers for each sampling.

    Where a sampling has more, multipliers within 1 % of each other become the smallest: less noise, so the
    result is an upper bound.
    """
    distinct = Counter(term.sampling for term in terms)
    bins: defaultdict[tuple[Sampling | None, float], list[GaussianTerm]] = defaultdict(list)
    for term in terms:
        many = term.sampling is not None and distinct[term.sampling] > _MOST_MULTIPLIERS
        place = math.floor(math.log(term.multiplier, _MULTIPLIER_RATIO)) if many else term.multiplier
        bins[term.sampling, place].append(term)
    return [
        GaussianTerm(min(term.multiplier for term in alike), sum(term.count for term in alike), sampling)
        for (sampling, _), alike in bins.items()
    ]


def grid_interval(terms: Sequence[GaussianTerm], revealed: RevealedDraws) -> float:
    """The interval, in nats, of the grid of privacy losses for ``terms``; ∞ where ε is infinite.

    It is 1e-5 of the ε expected, finer where the losses of a release are small, and coarser where that makes
    ε larger by a share of about 1e-6 at most.

    A loss between two points of a grid of interval h is shared out between them so that the profile at the
    points stays. Where losses are spread over several points this adds about h²/6 to the variance of each of
    n releases. With V the variance of the composition, ε grows by a share of about n h²/(12 V), below 1e-3
    for h² up to (2 `_OF_SPREAD`)² V/n. More than some 500,000 points are not taken: where they do not do, ε
    is larger. Rounded up to 1e-4 times a power of two, so that compositions share their releases.

    *Coarser.* A loss l in a cell becomes one of its ends, l', such that the mean of e^(-l') is e^(-l). By
    convexity the mean of e^(θl') is then at most 1 + θ(θ + 1) h²/8 times e^(θl), to the second order of h. So
    ln M(θ) of n releases grows by at most n θ(θ + 1) h²/8, and ε by n (θ + 1) h²/8 where δ goes with M(θ)
    e^(-θε). Near a normal distribution ε is (θ + 1/2) V: the share is at most n h²/(4 V), which is 1e-6 for h
    of twice `_COARSER` √(V/n), as rounding up may make it. It is done from `_MANY_RELEASES` on. V counts each
    release with no more than its rate times μ². Whatever h is, the result is an upper bound; only how close
    it is rests on this.

    Args:
        terms: what is composed.
        revealed: the bound of the same terms with every draw seen, which gives the ε expected.
    """
    certain = math.fsum(term.count * squared_mu_of_term(term) for term in terms if term.sampling is None)
    drawn = [term for term in terms if term.sampling is not None]
    farthest = [(term, max(1.0, *term.sampling.apart) if term.sampling else 1.0) for term in terms]
    largest = max([certain, *(squared_mu_of_term(term) * move**2 for term, move in farthest)])
    many = max(1.0, len(terms) / 4)
    releases = (certain > 0) + sum(term.count for term in drawn)
    surely = certain + math.fsum(term.count * _least_variance_of_loss(term) for term in drawn)
    enough = (
        min(_COARSER * math.sqrt(surely / releases), _COARSEST_NEEDED) if releases >= _MANY_RELEASES else 0
    )
    wanted = max(_FINEST_INTERVAL, 5e-6 * many * (largest + 20 * math.sqrt(largest)), enough)
    if revealed.delta(wanted / _OF_EPSILON) > _NOMINAL_DELTA:  # else the ε expected asks for no more
        wanted = max(wanted, _OF_EPSILON * revealed.epsilon(_NOMINAL_DELTA))
    if math.isinf(wanted):
        return math.inf
    variance = certain + math.fsum(term.count * _variance_of_loss(term) for term in drawn)
    small = _OF_SPREAD * math.sqrt(variance / releases)
    if small < wanted:
        range_of_losses = max(
            [certain + 20 * math.sqrt(certain), *(_largest_loss_of(term) for term in drawn)]
        )
        wanted = min(wanted, max(small, 2e-6 * many * range_of_losses, _LEAST_INTERVAL))
    return float(1e-4 * 2.0 ** math.ceil(math.log2(wanted / 1e-4)))


def _largest_loss_of(term: GaussianTerm) -> float:
    """Bound the privacy loss, in nats, of one release of a drawn ``term``.

    Larger ones have a probability below 1e-20.
    """
    sampling, mu = term.sampling, math.sqrt(squared_mu_of_term(term))
    assert sampling is not None
    rate = term.rate if sampling.hidden and not sampling.seen_scales else 1.0
    return largest_loss(rate, mu, mu * max(sampling.apart))


def _least_variance_of_loss(term: GaussianTerm) -> float:
    """The smaller of `_variance_of_loss` and the rate times μ²: rare losses add little, however large."""
    return min(_variance_of_loss(term), term.rate * squared_mu_of_term(term))


def _variance_of_loss(term: GaussianTerm) -> float:
    """Rough variance, in nats², of the loss of one release of a drawn term.

    It is w (e^(μ²) - 1), at most μ², with w = q², or q where the draw is seen; means over public outcomes of
    the noise are taken.
    """
    sampling, square = term.sampling, squared_mu_of_term(term)
    assert sampling is not None
    weight = term.rate**2 if sampling.hidden else term.rate
    if sampling.moves:
        square *= (math.fsum(chance * share for chance, share, _ in sampling.moves) / term.rate) ** 2
    unseen = [(chance, square * share**2) for chance, share in sampling.scales or ((1.0, 1.0),)]
    of_unseen = math.fsum(p * min(mu, weight * math.expm1(min(mu, 100.0))) for p, mu in unseen)
    return of_unseen + math.fsum(chance * square * share**2 for chance, share in sampling.seen_scales)

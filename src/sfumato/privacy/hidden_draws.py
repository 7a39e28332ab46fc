"""Composition when draws are hidden: privacy loss distributions.

dp_accounting is imported where it is used: unsampled releases never load it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sfumato.privacy.batch_losses import of_batches
from sfumato.privacy.gaussian_terms import (
    GaussianTerm,
    Method,
    has_scales,
    is_fixed_size,
    is_of_batches,
    is_poisson,
    squared_mu,
)
from sfumato.privacy.public_scales import of_public_scales
from sfumato.privacy.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import Sampling
from sfumato.privacy.shared_part import of_fixed_draw

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

COARSEST_INTERVAL = 1.0
_NOMINAL_DELTA = 1e-6
_FINEST_INTERVAL = 1e-4
_MOST_MULTIPLIERS, _MULTIPLIER_RATIO = 32, 1.01


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """Privacy loss distribution on a grid, rounded pessimistically ("connect the dots").

    Poisson draws of devices are under zero-out; draws of batches and of a fixed number say themselves how far
    apart the two worlds are.
    """

    terms: Sequence[GaussianTerm]
    interval: float
    method: Method = "pld"

    def delta(self, epsilon: float) -> float:
        """See `CurveBound.delta`."""
        distribution, rounding = self._composed
        return min(1.0, float(distribution.get_delta_for_epsilon(epsilon)) + rounding)

    def epsilon(self, delta: float) -> float:
        """See `CurveBound.epsilon`; ∞ where rounding in the transforms is not small beside ``delta``."""
        distribution, rounding = self._composed
        if not rounding <= delta / 2:
            return math.inf
        with np.errstate(over="ignore"):  # a quotient beyond the largest float, whose logarithm is taken as ∞
            return float(distribution.get_epsilon_for_delta(delta - rounding))

    @cached_property
    def _composed(self) -> tuple[PrivacyLossDistribution, float]:
        """The distribution, and the most that rounding may take from a δ.

        A convolution with probabilities makes no error larger, so the errors of all convolutions add up.
        """
        from dp_accounting.pld import privacy_loss_distribution

        identity = privacy_loss_distribution.identity(self.interval)
        total, rounding = identity, 0.0
        certain = math.fsum(term.count * squared_mu(term) for term in self.terms if term.sampling is None)
        parts = [_one_release(certain, 1.0, self.interval)] if certain > 0 else []
        for term in self.terms:
            if term.sampling is not None:
                one = self._drawn_release(term, term.sampling, identity)
                parts.append(one.self_compose(term.count))
                rounding += _rounding(parts[-1], term.count)
        for number, part in enumerate(parts):
            total = total.compose(part)
            rounding += _rounding(total, 1) if number else 0.0
        return total, rounding

    def _drawn_release(
        self, term: GaussianTerm, sampling: Sampling, identity: PrivacyLossDistribution
    ) -> PrivacyLossDistribution:
        """The distribution of one of the releases of ``term``."""
        square = squared_mu(term)
        if has_scales(term):
            return of_public_scales(square, sampling, self.interval)
        if is_of_batches(term):
            return of_batches(square, sampling, self.interval)
        if is_fixed_size(term):
            return of_fixed_draw(square, sampling, self.interval)
        if is_poisson(term):
            return _one_release(square, term.rate, self.interval)
        # a draw that is seen
        return _one_release(square, 1.0, self.interval).compute_mixture(identity, self_weight=term.rate)


def _rounding(composed: PrivacyLossDistribution, count: int) -> float:
    """The most that a sum of entries may lack after a fast Fourier transform.

    ``count`` releases were composed, N entries p are left. The transform of one release has errors of
    a few units in the last place for each of its log2 N passes, and its power ``count`` times as many. By
    Parseval's identity the errors of all entries have a norm of at most 4 u (count + log2 N) |p|, u the
    machine epsilon, so they add up to at most √N times that.
    """
    found = 0.0
    for loss in (composed._pmf_remove, composed._pmf_add):  # there is no public way to the probabilities
        probabilities = loss.to_dense_pmf()._probs
        size = max(2, len(probabilities))
        norm = math.sqrt(size) * float(np.linalg.norm(probabilities))
        found = max(found, 4 * float(np.finfo(np.float64).eps) * (count + math.log2(size)) * norm)
    return found


def _one_release(square: float, hidden_rate: float, interval: float) -> PrivacyLossDistribution:
    """The distribution of one release of μ² = ``square``: the slow part, shared by all compositions of it.

    As `dp_accounting` has it (`from_gaussian_mechanism`), whose points are computed one by one.
    """
    sampling = Sampling.poisson(hidden_rate, hidden=hidden_rate < 1, scales=((1.0, 1.0),))
    return of_public_scales(square, sampling, interval)


def thinned(terms: Sequence[GaussianTerm]) -> list[GaussianTerm]:
    """The terms, with up to 1 % less noise where a sampling has too many multipliers to take one by one."""
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
    """Grid of privacy losses: 1e-5 of the ε expected, and not so many points a term that all are slow.

    Rounded up to the finest grid times a power of two, so that compositions share their releases.
    """
    certain = math.fsum(term.count * squared_mu(term) for term in terms if term.sampling is None)
    largest = max([certain, *(squared_mu(term) * _farthest(term) ** 2 for term in terms)])
    wanted = max(
        1e-5 * revealed.epsilon(_NOMINAL_DELTA),
        5e-6 * max(1.0, len(terms) / 4) * (largest + 20 * math.sqrt(largest)),
    )
    if not wanted > _FINEST_INTERVAL:
        return _FINEST_INTERVAL
    if math.isinf(wanted):
        return math.inf
    return float(_FINEST_INTERVAL * 2.0 ** math.ceil(math.log2(wanted / _FINEST_INTERVAL)))


def _farthest(term: GaussianTerm) -> float:
    """The longest move that its losses come from, in units of the sensitivity."""
    return max(1.0, *term.sampling.apart) if term.sampling is not None else 1.0

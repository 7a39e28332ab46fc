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
from sfumato.privacy.loss_composition import GridLosses, LossComposition
from sfumato.privacy.public_scales import of_public_scales
from sfumato.privacy.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import Sampling
from sfumato.privacy.shared_part import of_fixed_draw

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
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
        return max(direction.delta(epsilon) for direction in self._directions)

    def epsilon(self, delta: float) -> float:
        """See `CurveBound.epsilon`."""
        return max(direction.epsilon(delta) for direction in self._directions)

    @cached_property
    def _directions(self) -> tuple[LossComposition, ...]:
        """The world with the unit against the other and the other way round; one where they are the same."""
        from dp_accounting.pld import privacy_loss_distribution

        identity = privacy_loss_distribution.identity(self.interval)
        certain = math.fsum(term.count * squared_mu(term) for term in self.terms if term.sampling is None)
        releases = [(_one_release(certain, 1.0, self.interval), 1)] if certain > 0 else []
        for term in self.terms:
            if term.sampling is not None:
                releases.append((self._drawn_release(term, term.sampling, identity), term.count))
        found = [LossComposition([_on_grid(one._pmf_remove, n) for one, n in releases], self.interval)]
        if not all(one._symmetric for one, _ in releases):  # there is no public way to either
            found.append(LossComposition([_on_grid(one._pmf_add, n) for one, n in releases], self.interval))
        return tuple(found)

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


def _on_grid(distribution: PLDPmf, count: int) -> GridLosses:
    dense = distribution.to_dense_pmf()
    return GridLosses(dense._lower_loss, dense._probs, dense._infinity_mass, count)


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

"""Composition when draws are hidden: privacy loss distributions for Poisson draws, Rényi for a fixed number.

dp_accounting is imported where it is used: unsampled releases never load it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sfumato.privacy.batch_losses import of_batches
from sfumato.privacy.gaussian import Array
from sfumato.privacy.gaussian_terms import (
    GaussianTerm,
    Method,
    is_fixed_size,
    is_of_batches,
    is_poisson,
    squared_mu,
)
from sfumato.privacy.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import Sampling

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

COARSEST_INTERVAL = 1.0
_NOMINAL_DELTA = 1e-6
_FINEST_INTERVAL = 1e-4
_MORE_ORDERS = (1.02, 1.04, 1.06, 2048, 4096, 8192)
_MOST_MULTIPLIERS, _MULTIPLIER_RATIO = 32, 1.01


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """Privacy loss distribution on a grid, rounded pessimistically ("connect the dots").

    Poisson draws of devices are under zero-out; draws of batches say themselves what they are under.
    """

    terms: Sequence[GaussianTerm]
    interval: float
    method: Method = "pld"

    def delta(self, epsilon: float) -> float:
        """See `CurveBound.delta`."""
        return min(1.0, float(self._distribution.get_delta_for_epsilon(epsilon)))

    def epsilon(self, delta: float) -> float:
        """See `CurveBound.epsilon`."""
        return float(self._distribution.get_epsilon_for_delta(delta))

    @cached_property
    def _distribution(self) -> PrivacyLossDistribution:
        from dp_accounting.pld import privacy_loss_distribution

        identity = privacy_loss_distribution.identity(self.interval)
        total = identity
        certain = math.fsum(term.count * squared_mu(term) for term in self.terms if term.sampling is None)
        if certain > 0:
            total = total.compose(_one_release(certain, 1.0, self.interval))
        for term in self.terms:
            if term.sampling is not None and is_of_batches(term):
                one = of_batches(squared_mu(term), term.sampling, self.interval)
                total = total.compose(one.self_compose(term.count))
            elif is_poisson(term):
                one = _one_release(squared_mu(term), term.rate, self.interval)
                total = total.compose(one.self_compose(term.count))
            elif term.sampling is not None:
                one = _one_release(squared_mu(term), 1.0, self.interval)
                one = one.compute_mixture(identity, self_weight=term.rate)
                total = total.compose(one.self_compose(term.count))
        return total


@lru_cache(maxsize=64)
def _one_release(square: float, hidden_rate: float, interval: float) -> PrivacyLossDistribution:
    """The distribution of one release of μ² = ``square``: the slow part, shared by all compositions of it."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / math.sqrt(square),
        value_discretization_interval=interval,
        sampling_prob=hidden_rate,
        neighboring_relation=NeighboringRelation.REPLACE_SPECIAL,
    )


@dataclass(frozen=True, eq=False)
class RenyiDivergences:
    """Rényi curves under replace-one, summed.

    Fixed-size draws: Theorem 27 of Wang, Balle and Kasiviswanathan (2019), through dp_accounting, whose
    multiplier there is std over the *replace-one* sensitivity, as a `GaussianTerm`'s is: at sample =
    population it gives α / (2 multiplier²). (Its privacy loss distributions double the sensitivity
    themselves.)
    Unsampled: α μ²/2. Draws that are seen: log(1 − q + q e^((α−1) α μ²/2)) / (α − 1).
    """

    terms: Sequence[GaussianTerm]
    method: Method = "rdp"

    def delta(self, epsilon: float) -> float:
        """See `CurveBound.delta`."""
        from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

        return float(compute_delta(*self._divergences, epsilon)[0])

    def epsilon(self, delta: float) -> float:
        """See `CurveBound.epsilon`."""
        from dp_accounting.rdp import compute_epsilon

        return float(compute_epsilon(*self._divergences, delta)[0])

    @cached_property
    def _divergences(self) -> tuple[Array, Array]:
        """Orders α, and the Rényi divergences of those orders (in nats)."""
        from dp_accounting import (
            GaussianDpEvent,
            NeighboringRelation,
            SampledWithoutReplacementDpEvent,
        )
        from dp_accounting.rdp import RdpAccountant
        from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

        orders = np.array(sorted([*DEFAULT_RDP_ORDERS, *_MORE_ORDERS]), dtype=np.float64)
        accountant = RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
        others = np.zeros_like(orders)
        for term in self.terms:
            unsampled = orders * squared_mu(term) / 2
            if term.sampling is not None and is_fixed_size(term):
                release = GaussianDpEvent(term.multiplier)
                draw = SampledWithoutReplacementDpEvent(
                    term.sampling.population, term.sampling.sample, release
                )
                accountant.compose(draw, term.count)
            elif term.rate < 1:
                moments = np.logaddexp(math.log1p(-term.rate), math.log(term.rate) + (orders - 1) * unsampled)
                others += term.count * moments / (orders - 1)
            else:
                others += term.count * unsampled
        return orders, accountant.rdp + others


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
    largest = max([certain, *(squared_mu(term) for term in terms)])
    wanted = max(
        1e-5 * revealed.epsilon(_NOMINAL_DELTA),
        5e-6 * max(1.0, len(terms) / 4) * (largest + 20 * math.sqrt(largest)),
    )
    if not wanted > _FINEST_INTERVAL:
        return _FINEST_INTERVAL
    if math.isinf(wanted):
        return math.inf
    return float(_FINEST_INTERVAL * 2.0 ** math.ceil(math.log2(wanted / _FINEST_INTERVAL)))

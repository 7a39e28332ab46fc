"""Composition: from the releases one observer meets to the (ε, δ) curve of one unit.

A `GaussianTerm` is a number of equal Gaussian releases, possibly under sampling, as one observer meets them towards
one unit. `compose` turns terms, in any adaptive order, into a `PrivacyCurve`. Nothing here knows what a
federation is: who meets which release, at which sensitivity, under which draw, is decided by whoever writes
the terms.

Neighbours. Multipliers are relative to the sensitivity *under the relation asked for*: under "replace" the
caller has doubled the sensitivity (halved the multiplier) already; "remove" is composed as "zero-out" is.
What each sampling allows:

    sampling                              zero-out     replace      by
    none                                  exact        exact        closed form (gdp)
    `RevealedSampling`: the draw is met           exact        exact        mixture of closed forms (gdp)
    `PoissonSampling`: the draw is hidden     amplified    refused      privacy loss distribution (pld)
    `SamplingWithoutReplacement`: the draw is hidden   refused      amplified    Rényi (rdp)

"Refused" is a ValueError: the caller charges such a release unamplified, or as a draw that is seen.

The revealed bound. Telling the observer every draw can only help it, and given the draws all releases are
unsampled Gaussians; so a finite mixture of the curves of `sfumato.privacy.gaussian` bounds every composition,
and is its exact curve where no draw is hidden. Wherever a second bound exists the smaller is reported, and
named. Where the revealed ε is above 1e5 it is not refined.

scipy and dp_accounting are imported where they are used: unsampled releases never load the latter.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, get_args

import numpy as np

from sfumato.privacy import gaussian
from sfumato.privacy.gaussian import Array
from sfumato.privacy.relation import Neighbours

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Method: TypeAlias = Literal["gdp", "pld", "rdp"]

_NOMINAL_DELTA = 1e-6
_FINEST_INTERVAL, _COARSEST_INTERVAL = 1e-4, 1.0
_MORE_ORDERS = (1.02, 1.04, 1.06, 2048, 4096, 8192)
_MOST_ATOMS = 1 << 14
_NEGLIGIBLE = 1e-30
_MOST_MULTIPLIERS, _MULTIPLIER_RATIO = 32, 1.01


@dataclass(frozen=True)
class PoissonSampling:
    """Each release uses the unit with probability ``rate``, independently; the observer never learns when.

    The noise must be there whatever the draw, and one draw must serve one release: several releases of one
    draw are one release of multiplier 1/√(Σ 1/multiplier²).
    """

    rate: float

    def __post_init__(self) -> None:
        _require_rate(self.rate)


@dataclass(frozen=True)
class RevealedSampling:
    """Each release uses the unit with probability ``rate``, independently; the observer learns when.

    A term of count T is the Binomial(T, rate) mixture of its participations: the figure of before training.
    After training, charge the realised number of participations as unsampled releases, labelled ex post.
    A fixed-size draw that is seen is one of these too, whichever the relation, at rate sample / population.
    """

    rate: float

    def __post_init__(self) -> None:
        _require_rate(self.rate)


@dataclass(frozen=True)
class SamplingWithoutReplacement:
    """Each release uses ``sample`` of ``population`` units, without replacement, unseen by the observer.

    Towards a coalition that knows its own ``k`` members were not drawn, ``population`` is N − k.
    """

    population: int
    sample: int

    def __post_init__(self) -> None:
        if self.population < 1:
            raise ValueError(f"population: got {self.population}; must be at least 1")
        if not 0 <= self.sample <= self.population:
            raise ValueError(f"sample: got {self.sample}; must be in 0..{self.population} (the population)")

    @property
    def rate(self) -> float:
        """Probability that one release uses the unit."""
        return self.sample / self.population


Sampling: TypeAlias = PoissonSampling | RevealedSampling | SamplingWithoutReplacement


@dataclass(frozen=True)
class GaussianTerm:
    """``count`` adaptive Gaussian releases as one observer meets them, towards one unit.

    Attributes:
        multiplier: effective noise multiplier, std of the noise this observer cannot subtract over the unit's
            l2 sensitivity, both of one release; 0 is no protection (ε = ∞), ∞ a release that tells nothing.
        count: number of such releases.
        sampling: how the unit comes to be used, or ``None`` if it always is.

    Raises:
        ValueError: ``multiplier`` is negative or not a number, or ``count`` is negative.
    """

    multiplier: float
    count: int = 1
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        if not self.multiplier >= 0:
            raise ValueError(f"multiplier: got {self.multiplier}; must be >= 0")
        if not self.count >= 0:
            raise ValueError(f"count: got {self.count}; must be >= 0")

    @property
    def rate(self) -> float:
        """Probability that one release uses the unit: 1 without sampling."""
        return 1.0 if self.sampling is None else self.sampling.rate


@dataclass(frozen=True)
class PrivacyCurve:
    """The trade-off of ε and δ after a composition: exact without hidden draws, else an upper bound.

    Attributes:
        neighbours: the neighbouring relation the multipliers referred to.
        method: the method made for these terms; `method_at` says which one gave the figure at one δ.
        releases: number of releases that tell this observer anything, sampled ones included.
        gdp_mu: μ of the composition when it is exactly that of one Gaussian (nothing sampled), else ``None``.
            Squares of μ add under adaptive composition: the currency of a GDP privacy filter.
        discretization: grid of the privacy losses (in nats) behind the method "pld", else ``None``: 1e-4,
            coarser for large ε (a hundred-thousandth of it); rounded so that ε is never underestimated.
    """

    neighbours: Neighbours
    method: Method
    releases: int
    gdp_mu: float | None
    discretization: float | None
    _bounds: tuple[_CurveBound, ...]

    def epsilon(self, delta: float) -> float:
        """Smallest known ε ≥ 0 at ``delta`` in (0, 1); ∞ where nothing protects.

        Raises:
            ValueError: ``delta`` is outside (0, 1).
        """
        return self._smallest(delta)[0]

    def method_at(self, delta: float) -> Method:
        """The method that gave `epsilon` at ``delta``."""
        return self._smallest(delta)[1]

    def delta(self, epsilon: float) -> float:
        """Smallest known δ in [0, 1] at ``epsilon`` ≥ 0.

        Raises:
            ValueError: ``epsilon`` is negative or not a number.
        """
        if not epsilon >= 0:
            raise ValueError(f"epsilon: got {epsilon}; must be >= 0")
        return min(bound.delta(epsilon) for bound in self._bounds)

    def _smallest(self, delta: float) -> tuple[float, Method]:
        if not 0 < delta < 1:
            raise ValueError(f"delta: got {delta}; must be in (0, 1)")
        found = [(bound.epsilon(delta), bound.method) for bound in self._bounds]
        return min(found, key=lambda pair: pair[0])  # the first of equals


def compose(terms: Iterable[GaussianTerm], *, neighbours: Neighbours) -> PrivacyCurve:
    """Account for all ``terms`` together, in whatever adaptive order they happened.

    Args:
        terms: what the observer meets; equal terms are merged. No terms: ε = 0.
        neighbours: the relation the multipliers refer to (the module says what each sampling allows).

    Returns:
        The curve. Its figures are computed when asked for; a privacy loss distribution takes about a second.

    Raises:
        ValueError: a sampling that the relation does not allow to amplify, or an unknown relation.
    """
    if neighbours not in get_args(Neighbours):
        raise ValueError(f"neighbours: got {neighbours!r}; must be one of {', '.join(get_args(Neighbours))}")
    charged = _merged(terms)
    poisson = any(isinstance(term.sampling, PoissonSampling) for term in charged)
    fixed_size = any(isinstance(term.sampling, SamplingWithoutReplacement) for term in charged)
    if poisson and neighbours == "replace":
        raise ValueError(
            "sampling: got PoissonDraw with neighbours 'replace'; must be charged unamplified or as "
            "SeenDraw: there is no amplification bound here for replacing a Poisson-sampled unit"
        )
    if fixed_size and neighbours != "replace":
        raise ValueError(
            f"sampling: got FixedSizeDraw with neighbours {neighbours!r}; must be charged unamplified, as "
            "SeenDraw or with neighbours 'replace', the only relation its bound is proved for"
        )
    revealed = _Revealed.of(charged)
    bounds: tuple[_CurveBound, ...] = (revealed,)
    discretization = None
    if poisson or fixed_size:
        thinned = _thinned(charged)
        interval = _interval(thinned, revealed)
        if interval <= _COARSEST_INTERVAL and poisson:
            bounds, discretization = (_PrivacyLoss(thinned, interval), revealed), interval
        elif interval <= _COARSEST_INTERVAL:
            bounds = (_Renyi(thinned), revealed)
    return PrivacyCurve(
        neighbours=neighbours,
        method=bounds[0].method,
        releases=sum(term.count for term in charged),
        gdp_mu=math.sqrt(revealed.squares[0]) if all(term.sampling is None for term in charged) else None,
        discretization=discretization,
        _bounds=bounds,
    )


def calibrate_scale(
    terms: Iterable[GaussianTerm], *, target_epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """Factor by which all noise of ``terms`` is to be multiplied so that their ε at ``delta`` is the target.

    Unsampled terms: μ of the terms over μ of the target. Otherwise a root of the composed curve, bracketed
    from the revealed bound.

    Args:
        terms: as for `compose`.
        target_epsilon: ε wanted, > 0 and finite.
        delta: δ in (0, 1).
        neighbours: as for `compose`.

    Returns:
        The factor, at most 1e-4 (relative) above the exact one and with an ε that does not exceed the target.
        0 if no noise is needed: nothing is released, or so rarely that δ covers it. ∞ if a term has no noise
        to multiply, or if δ is below the probability of draws that `compose` leaves out.

    Raises:
        ValueError: a target or δ out of range, or terms that `compose` refuses.
    """
    if not 0 < target_epsilon < math.inf:
        raise ValueError(f"target_epsilon: got {target_epsilon}; must be > 0 and finite")
    charged = _merged(terms)
    curve = compose(charged, neighbours=neighbours)
    if curve.gdp_mu is not None:
        return curve.gdp_mu / gaussian.mu(epsilon=target_epsilon, delta=delta) * (1 + 1e-9)
    if any(term.multiplier == 0 for term in charged) or _Revealed.of(charged).lost >= delta:
        return math.inf
    if math.prod((1 - term.rate) ** term.count for term in charged) >= 1 - delta:
        return 0.0
    first = charged[0].multiplier
    relative = tuple(replace(term, multiplier=term.multiplier / first) for term in charged)
    return _sampled_scale(relative, target_epsilon, delta, neighbours) / first * (1 + 1e-12)


@lru_cache(maxsize=256)
def _sampled_scale(
    charged: tuple[GaussianTerm, ...], target_epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """`calibrate_scale` of sampled terms whose first multiplier is 1: devices of other weights share it."""

    def scaled(factor: float) -> list[GaussianTerm]:
        return [replace(term, multiplier=term.multiplier * factor) for term in charged]

    def revealed(factor: float) -> float:
        return _Revealed.of(scaled(factor)).epsilon(delta)

    def composed(factor: float) -> float:
        return compose(scaled(factor), neighbours=neighbours).epsilon(delta)

    start = _smallest_factor(revealed, target_epsilon, 1.0)
    if compose(scaled(start), neighbours=neighbours).method == "gdp":
        return start
    return _smallest_factor(composed, target_epsilon, start)


class _CurveBound(Protocol):
    """One way to bound the curve of a composition."""

    @property
    def method(self) -> Method: ...

    def epsilon(self, delta: float) -> float: ...

    def delta(self, epsilon: float) -> float: ...


@dataclass(frozen=True, eq=False)
class _Revealed:
    """Mixture of Gaussian curves over what the draws turn out to be: δ(ε) = Σ_j p_j δ(ε; √squares_j) + lost.

    Attributes:
        squares: possible values of μ², ascending, of shape (atoms,).
        probabilities: of those values, of shape (atoms,); they and ``lost`` add up to 1.
        lost: probability of draws beyond the values kept (below 1e-20), charged as no protection.
    """

    squares: Array
    probabilities: Array
    lost: float
    method: Method = "gdp"

    @classmethod
    def of(cls, terms: Sequence[GaussianTerm]) -> _Revealed:
        certain = math.fsum(term.count * _square(term) for term in terms if term.rate == 1)
        if any(_square(term) == math.inf for term in terms):
            certain = math.inf
        squares, probabilities, lost = np.array([certain]), np.ones(1), 0.0
        counts: defaultdict[tuple[float, float], int] = defaultdict(int)
        for term in terms:
            if term.rate < 1 and certain < math.inf:
                counts[_square(term), term.rate] += term.count
        for (square, rate), count in sorted(counts.items()):
            times, weights, beyond = _binomial(count, rate)
            squares, probabilities, above = _sum(squares, probabilities, square * times, weights)
            lost += beyond + above
        return cls(squares, probabilities, lost)

    def delta(self, epsilon: float) -> float:
        curves = gaussian.delta(epsilon=epsilon, mu=np.sqrt(self.squares))
        return min(1.0, float(self.probabilities @ curves) + self.lost)

    def epsilon(self, delta: float) -> float:
        if self.lost >= delta:
            return math.inf
        above = gaussian.epsilon(delta=delta - self.lost, mu=math.sqrt(self.squares[-1]))
        if len(self.squares) == 1 or above == 0:
            return above
        below = 0.0
        if self.delta(below) <= delta:
            return below
        while above - below > 1e-12 * above:
            middle = (below + above) / 2
            if self.delta(middle) <= delta:
                above = middle
            else:
                below = middle
        return above


@dataclass(frozen=True, eq=False)
class _PrivacyLoss:
    """Privacy loss distribution under zero-out, on a grid, rounded pessimistically ("connect the dots")."""

    terms: Sequence[GaussianTerm]
    interval: float
    method: Method = "pld"

    def delta(self, epsilon: float) -> float:
        return min(1.0, float(self._distribution.get_delta_for_epsilon(epsilon)))

    def epsilon(self, delta: float) -> float:
        return float(self._distribution.get_epsilon_for_delta(delta))

    @cached_property
    def _distribution(self) -> PrivacyLossDistribution:
        from dp_accounting.pld import privacy_loss_distribution

        identity = privacy_loss_distribution.identity(self.interval)
        total = identity
        certain = math.fsum(term.count * _square(term) for term in self.terms if term.sampling is None)
        if certain > 0:
            total = total.compose(_one_release(certain, 1.0, self.interval))
        for term in self.terms:
            if isinstance(term.sampling, PoissonSampling):
                one = _one_release(_square(term), term.rate, self.interval)
                total = total.compose(one.self_compose(term.count))
            elif isinstance(term.sampling, RevealedSampling):
                one = _one_release(_square(term), 1.0, self.interval)
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
class _Renyi:
    """Rényi curves under replace-one, summed.

    Fixed-size draws: Theorem 27 of Wang, Balle and Kasiviswanathan (2019), through dp_accounting, whose
    multiplier there is std over the *replace-one* sensitivity, as a `GaussianTerm`'s is: at sample = population it
    gives α / (2 multiplier²). (Its privacy loss distributions double the sensitivity themselves.)
    Unsampled: α μ²/2. Draws that are seen: log(1 − q + q e^((α−1) α μ²/2)) / (α − 1).
    """

    terms: Sequence[GaussianTerm]
    method: Method = "rdp"

    def delta(self, epsilon: float) -> float:
        from dp_accounting.rdp.rdp_privacy_accountant import compute_delta

        return float(compute_delta(*self._divergences, epsilon)[0])

    def epsilon(self, delta: float) -> float:
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
            unsampled = orders * _square(term) / 2
            if isinstance(term.sampling, SamplingWithoutReplacement):
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


def _square(term: GaussianTerm) -> float:
    """μ² of one release that uses the unit; ∞ without noise."""
    mu = 1 / term.multiplier if term.multiplier > 0 else math.inf
    return mu * mu


def _merged(terms: Iterable[GaussianTerm]) -> list[GaussianTerm]:
    """The terms that tell something, equal ones added up, certain draws as no sampling, in a fixed order."""
    counts: defaultdict[tuple[float, Sampling | None], int] = defaultdict(int)
    for term in terms:
        if term.count > 0 and term.multiplier < math.inf and term.rate > 0:
            counts[term.multiplier, term.sampling if term.rate < 1 else None] += term.count
    merged = [GaussianTerm(multiplier, count, sampling) for (multiplier, sampling), count in counts.items()]
    return sorted(merged, key=lambda term: (term.multiplier, term.rate, repr(term.sampling)))


def _thinned(terms: Sequence[GaussianTerm]) -> list[GaussianTerm]:
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


def _interval(terms: Sequence[GaussianTerm], revealed: _Revealed) -> float:
    """Grid of privacy losses: 1e-5 of the ε expected, and not so many points a term that all are slow.

    Rounded up to the finest grid times a power of two, so that compositions share their releases.
    """
    certain = math.fsum(term.count * _square(term) for term in terms if term.sampling is None)
    largest = max([certain, *(_square(term) for term in terms)])
    wanted = max(
        1e-5 * revealed.epsilon(_NOMINAL_DELTA),
        5e-6 * max(1.0, len(terms) / 4) * (largest + 20 * math.sqrt(largest)),
    )
    if not wanted > _FINEST_INTERVAL:
        return _FINEST_INTERVAL
    if math.isinf(wanted):
        return math.inf
    return float(_FINEST_INTERVAL * 2.0 ** math.ceil(math.log2(wanted / _FINEST_INTERVAL)))


def _binomial(count: int, rate: float) -> tuple[Array, Array, float]:
    """Binomial(count, rate) as values and probabilities, and the negligible probability of larger values."""
    from scipy import special

    times = np.arange(count + 1, dtype=np.float64)
    log_ways = special.gammaln(count + 1.0) - special.gammaln(times + 1) - special.gammaln(count - times + 1)
    logs = log_ways + times * math.log(rate) + (count - times) * math.log1p(-rate)
    return _pruned(times, np.exp(logs))


def _sum(values: Array, weights: Array, shifts: Array, chances: Array) -> tuple[Array, Array, float]:
    """Distribution of a sum of independent variables; values go up to a grid where they would be too many."""
    if len(values) * len(shifts) <= _MOST_ATOMS:
        sums = np.add.outer(values, shifts).ravel()
        order = np.argsort(sums, kind="stable")
        return _pruned(sums[order], np.outer(weights, chances).ravel()[order])
    lowest = values[0] + shifts[0]
    step = (values[-1] + shifts[-1] - lowest) / _MOST_ATOMS
    probabilities = np.zeros(_MOST_ATOMS + 1)
    for shift, chance in zip(shifts, chances, strict=True):
        cells = np.minimum(np.ceil((values + shift - lowest) / step), _MOST_ATOMS).astype(np.int64)
        probabilities += chance * np.bincount(cells, weights, _MOST_ATOMS + 1)
    return _pruned(lowest + step * np.arange(_MOST_ATOMS + 1), probabilities)


def _pruned(values: Array, probabilities: Array) -> tuple[Array, Array, float]:
    """Without negligible ends: the lower one is moved up to the first value kept, the upper one returned."""
    kept = np.flatnonzero(probabilities > _NEGLIGIBLE)
    first, last = int(kept[0]), int(kept[-1])
    inner = probabilities[first : last + 1].copy()
    inner[0] += probabilities[:first].sum()
    return values[first : last + 1], inner, float(probabilities[last + 1 :].sum())


def _smallest_factor(spent: Callable[[float], float], target: float, start: float) -> float:
    """Smallest factor, to 1e-4 and rather too large, with spent(factor) <= target; ``spent`` decreases."""
    from scipy.optimize import brentq

    def excess(log_factor: float) -> float:
        return math.log(min(max(spent(math.exp(log_factor)) / target, 1e-9), 1e9))

    high = math.log(start)
    while excess(high) > 0:
        high += 1
    low = high - 0.5
    while excess(low) <= 0:
        low -= 1
    factor = math.exp(brentq(excess, low, high, xtol=1e-5) + 2e-5)
    while spent(factor) > target:
        factor *= 1 + 2e-5
    return factor


def _require_rate(rate: float) -> None:
    if not 0 <= rate <= 1:
        raise ValueError(f"rate: got {rate}; must be in [0, 1]")

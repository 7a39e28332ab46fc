"""Composition: from the releases one observer meets to the (ε, δ) curve of one unit.

A `GaussianTerm` is a number of equal Gaussian releases, possibly under sampling, as one observer meets them
towards one unit. `compose` turns terms, in any adaptive order, into a `PrivacyCurve`. This module does not
know federations: the caller decides who meets which release, at which sensitivity and under which draw.

Neighbours. Multipliers are relative to the sensitivity *under the relation asked for*: under "replace" the
caller has doubled the sensitivity (halved the multiplier) already; "remove" is composed as "zero-out" is.
What each sampling allows:

    sampling                     zero-out     replace      by
    none                         exact        exact        closed form (gdp)
    the draw is seen             exact        exact        mixture of closed forms (gdp)
    Poisson, hidden              amplified    amplified    privacy loss distribution (pld)
    fixed size, hidden           amplified    amplified    privacy loss distribution (pld)
    batches                      amplified    amplified    privacy loss distribution (pld)
    a public draw of the noise   as above     as above     privacy loss distribution (pld)
    a seen outcome, nothing else exact        exact        mixture of closed forms (gdp)

Under "replace" a hidden Poisson draw has to say how far a drawn unit is from the release without it, from
which both worlds differ; else it is a ValueError. So is a fixed size under "remove": the number drawn would
not be the same in both worlds.

The revealed bound. Telling the observer every draw can only help it, and given the draws all releases are
unsampled Gaussians; so a finite mixture of the curves of `sfumato.privacy.losses.gaussian` bounds every
composition, and is its exact curve where no draw is hidden. Wherever a second bound exists the smaller is
reported, and named. Where the revealed ε is above 1e5 it is not refined.

scipy is imported where it is used: unsampled releases need little of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import get_args

from sfumato.privacy.losses.hidden_draws import (
    COARSEST_INTERVAL,
    PrivacyLoss,
    delta_of_one_release,
    grid_interval,
    with_fewer_multipliers,
)
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.sampling import (
    CurveBound,
    GaussianTerm,
    Method,
    Neighbours,
    Sampling,
    has_scales,
    is_fixed_size,
    is_of_batches,
    is_poisson,
    is_visible_mixture,
    merged_terms,
    squared_mu_of_term,
)

_AS_GOOD_AS_CERTAIN = 1e-3
_SURELY = 1 + 1e-9  # times δ: more than that is no rounding
_TIMES_WIDER = 8.0  # that a grid of `compose_roughly` is at first
MOST_ABOVE = 0.02
"""The share by which ε of `compose_roughly` may be above that of `compose`."""


@dataclass(frozen=True)
class PrivacyCurve:
    """The trade-off of ε and δ after a composition: exact without hidden draws, else an upper bound.

    Attributes:
        neighbours: the neighbouring relation the multipliers referred to.
        method: the method made for these terms; `smallest` says which one gave the figure at one δ.
        releases: number of releases that tell this observer anything, sampled ones included.
        gdp_mu: μ of the composition when it is exactly that of one Gaussian (nothing sampled), else ``None``.
            Squares of μ add under adaptive composition: the currency of a GDP privacy filter.
        discretization: grid of the privacy losses (in nats) behind the method "pld", else ``None``; rounded
            so that ε is never underestimated (`losses.hidden_draws.grid_interval` says how wide it is).
    """

    neighbours: Neighbours
    method: Method
    releases: int
    gdp_mu: float | None
    discretization: float | None
    _bounds: tuple[CurveBound, ...]
    _smallest: dict[float, tuple[float, Method]] = field(default_factory=dict, compare=False, repr=False)

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 at ``delta``, in (0, 1), among all known bounds; ∞ where nothing protects.

        Raises:
            ValueError: ``delta`` is outside (0, 1).
        """
        return self.smallest(delta)[0]

    def delta(self, epsilon: float) -> float:
        """The smallest δ in [0, 1] at ``epsilon`` ≥ 0 among all known bounds.

        Raises:
            ValueError: ``epsilon`` is negative or not a number.
        """
        if not epsilon >= 0:
            raise ValueError(f"epsilon: got {epsilon}; must be >= 0")
        return min(bound.delta(epsilon) for bound in self._bounds)

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether δ at ``epsilon`` ≥ 0 is at most ``delta``.

        Quicker than `delta`, as it stops at the first of the known bounds that shows it. Nothing is checked.
        """
        return any(bound.is_within(epsilon, delta) for bound in reversed(self._bounds))  # the quick one first

    def smallest(self, delta: float) -> tuple[float, Method]:
        """The smallest ε of all bounds at ``delta``, as `epsilon` returns it, and the method that gave it.

        Raises:
            ValueError: ``delta`` is outside (0, 1).
        """
        if not 0 < delta < 1:
            raise ValueError(f"delta: got {delta}; must be in (0, 1)")
        if delta not in self._smallest:
            self._smallest[delta] = self._searched(delta)
        return self._smallest[delta]

    def _searched(self, delta: float) -> tuple[float, Method]:
        """Compute what `smallest` keeps for ``delta`` in (0, 1): the smallest ε and its method."""
        found: tuple[float, Method] = math.inf, self._bounds[0].method
        for number, bound in enumerate(self._bounds):
            # no search where a smaller ε is known: a bound with more δ there has a larger one
            if number == 0 or bound.is_within(found[0], delta):
                found = min(found, (bound.epsilon(delta), bound.method), key=lambda pair: pair[0])
        return found  # the first of equals


def compose(terms: Iterable[GaussianTerm], *, neighbours: Neighbours, coarser: float = 1.0) -> PrivacyCurve:
    """The (ε, δ) curve of all ``terms`` together, in whatever adaptive order they happened.

    Args:
        terms: the Gaussian releases that one observer meets; equal terms are merged. No terms: ε = 0.
        neighbours: the relation the multipliers refer to (the module says what each sampling allows).
        coarser: factor ≥ 1 on the width of the grid of privacy losses: quicker, and still an upper bound.

    Returns:
        The curve. Its figures are computed when asked for; a privacy loss distribution takes about a second.

    Raises:
        ValueError: a sampling that the relation does not allow to amplify, or an unknown relation.
    """
    if neighbours not in get_args(Neighbours):
        raise ValueError(f"neighbours: got {neighbours!r}; must be one of {', '.join(get_args(Neighbours))}")
    charged = merged_terms(terms)
    poisson = [term.sampling for term in charged if is_poisson(term)]
    batches = any(is_of_batches(term) for term in charged)
    fixed_size = any(is_fixed_size(term) for term in charged)
    scales = any(has_scales(term) and not is_visible_mixture(term) for term in charged)
    if neighbours == "replace" and any(sampling and not sampling.shares_a_part for sampling in poisson):
        raise ValueError(
            "sampling: got hidden Poisson sampling with neighbours 'replace'; must say with `apart` how far "
            "a replaced unit is from the release without it"
        )
    if fixed_size and neighbours == "remove":
        raise ValueError(
            "sampling: got hidden sampling without replacement with neighbours 'remove'; must be charged "
            "unamplified, as seen, or with neighbours 'zero-out' or 'replace'"
        )
    revealed = RevealedDraws.of(charged)
    bounds: tuple[CurveBound, ...] = (revealed,)
    discretization = None
    if poisson or batches or fixed_size or scales:
        fewer = with_fewer_multipliers(charged)
        interval = coarser * grid_interval(fewer, revealed)
        if interval <= COARSEST_INTERVAL:
            bounds, discretization = (PrivacyLoss(fewer, interval), revealed), interval
    return PrivacyCurve(
        neighbours=neighbours,
        method=bounds[0].method,
        releases=sum(term.count for term in charged),
        gdp_mu=math.sqrt(revealed.squares[0]) if all(term.sampling is None for term in charged) else None,
        discretization=discretization,
        _bounds=bounds,
    )


def compose_roughly(terms: Iterable[GaussianTerm], *, neighbours: Neighbours, delta: float) -> PrivacyCurve:
    """`compose` on a wider grid of privacy losses: quicker, and at ``delta`` ε is at most 2 % larger.

    On a grid with interval h the losses of a release are no larger than if each were rounded up to the next
    point, by less than h. So ε of n releases grows by at most nh (docs/accounting.md, "Composition"). The
    grid is 8 times as wide as that of `compose`, or less where nh would be more than 2 % of the exact ε, of
    which ε on the grid less nh is a lower bound.

    Args:
        terms: as of `compose`.
        neighbours: the relation that the multipliers refer to.
        delta: δ in (0, 1), at which the curve is asked for.

    Raises:
        ValueError: as `compose`, or ``delta`` is outside (0, 1).
    """
    charged = merged_terms(terms)
    curve = compose(charged, neighbours=neighbours, coarser=_TIMES_WIDER)
    if curve.discretization is None:  # nothing is on a grid, or this one would be too wide
        seen = all(term.sampling is None or is_seen(term.sampling) for term in charged)
        return curve if seen else compose(charged, neighbours=neighbours)
    drawn = sum(term.count for term in charged if term.sampling is not None)
    # all terms without sampling are one Gaussian, which is rounded up once
    releases = drawn + any(term.sampling is None for term in charged)
    least = max(0.0, curve.epsilon(delta) - releases * curve.discretization)
    allowed = MOST_ABOVE * least / releases
    if curve.discretization <= allowed:
        return curve
    share = _TIMES_WIDER * allowed / curve.discretization
    wider = 2.0 ** math.floor(math.log2(share)) if share >= 1 else 1.0
    return compose(charged, neighbours=neighbours, coarser=wider)


@lru_cache(maxsize=4096)
def is_within_when_told(terms: tuple[GaussianTerm, ...], epsilon: float, delta: float) -> bool:
    """Whether ``terms`` have at most ``delta`` at ``epsilon`` for an observer who is told every draw.

    Results are cached: many pairs of a network are charged the same terms.

    Args:
        terms: the Gaussian releases of one pair; their order does not matter.
        epsilon: ε ≥ 0, in nats.
        delta: δ in [0, 1].
    """
    return _revealed_draws(_merged_in_order(terms)).is_within(epsilon, delta)


@lru_cache(maxsize=1024)
def _revealed_draws(terms: tuple[GaussianTerm, ...]) -> RevealedDraws:
    """The bound of ``terms`` for an observer who is told every draw."""
    return RevealedDraws.of(terms)


def composed_epsilon(
    terms: Iterable[GaussianTerm],
    neighbours: Neighbours,
    delta: float,
    known: float = math.inf,
    roughly: bool = False,
) -> tuple[float, str]:
    """The ε of the composition of ``terms`` at ``delta``, an upper bound; their order does not matter.

    Results are cached. Where ``known`` is sure to be smaller, a larger ε that is quick to compute may be
    returned: every draw is charged as if the observer saw it, without amplification. It is a bound too.

    Args:
        terms: what is composed.
        neighbours: the relation they refer to.
        delta: of the ε, in (0, 1).
        known: the ε of another bound of the same pair, or ∞ to compute in full. Draws are charged as seen if
            the terms without sampling alone have a larger ε than ``known``, and the draws add little to it.
        roughly: whether ε may be up to 2 % larger (`compose_roughly`). Then draws are charged as seen,
            whatever that adds, if the terms without sampling or with draws that are seen, or one release of a
            hidden draw, alone have a larger ε than ``known``.

    Returns:
        ε, ∞ where nothing protects, and the name of the method: ``gdp`` or ``pld``.
    """
    ordered = _merged_in_order(tuple(terms))
    is_drawn = any(term.sampling is not None for term in ordered)  # else `_composed` is quick, and the same
    if is_drawn and known < math.inf and _is_surely_above(ordered, known, delta, roughly):
        epsilon_when_seen = _with_draws_seen(ordered, delta, roughly)
        if roughly or epsilon_when_seen <= _with_draws_seen(_not_drawn(ordered), delta) * (
            1 + _AS_GOOD_AS_CERTAIN
        ):
            return epsilon_when_seen, "gdp"
    return _composed(ordered, neighbours, delta, roughly)


@lru_cache(maxsize=4096)
def _merged_in_order(terms: tuple[GaussianTerm, ...]) -> tuple[GaussianTerm, ...]:
    """``terms`` with equal ones merged, in an order that does not depend on how they came."""
    return tuple(merged_terms(terms))


def _is_surely_above(terms: tuple[GaussianTerm, ...], epsilon: float, delta: float, roughly: bool) -> bool:
    """Whether a part of ``terms`` alone has a larger ε than ``epsilon`` at ``delta``.

    ``False`` proves nothing.

    An observer who is told only a part of the releases learns no more than one who is told all of them, so
    the ε of a part is at most that of all. Tried are the terms without sampling, first the one of them that
    contributes most to μ² and then all of them. With ``roughly`` two more parts are tried: the terms without
    sampling together with those whose draws the observer sees; and a single release under a hidden draw.
    """
    if unsampled := _not_drawn(terms, or_seen=roughly):
        largest = max(unsampled, key=lambda term: term.count * term.rate * squared_mu_of_term(term))
        if not (
            is_within_when_told((largest,), epsilon, delta) and is_within_when_told(unsampled, epsilon, delta)
        ):
            return True
    return roughly and any(delta_of_one_release(term, epsilon) > delta * _SURELY for term in terms)


def _not_drawn(terms: tuple[GaussianTerm, ...], *, or_seen: bool = False) -> tuple[GaussianTerm, ...]:
    """Those ``terms`` that the unit is in for certain; ``or_seen``: also those whose draws are all seen."""
    return tuple(term for term in terms if term.rate == 1 or (or_seen and is_seen(term.sampling)))


def is_seen(draw: Sampling | None) -> bool:
    """Whether the observer sees ``draw`` and nothing scales the noise by chance; ``False`` for ``None``."""
    return draw is not None and not (draw.hidden or draw.scales or draw.seen_scales)


@cache
def _with_draws_seen(terms: tuple[GaussianTerm, ...], delta: float, roughly: bool = False) -> float:
    """The ε of merged ``terms`` at ``delta`` for an observer who is told every draw; every result is kept.

    ``roughly``: it may be larger, since values of μ² are rounded up (`RevealedDraws.of`).
    """
    revealed = RevealedDraws.of(terms, roughly=True) if roughly else _revealed_draws(terms)
    return revealed.epsilon(delta)


@cache
def _composed(
    terms: tuple[GaussianTerm, ...], neighbours: Neighbours, delta: float, roughly: bool = False
) -> tuple[float, str]:
    """The ε of merged ``terms`` at ``delta`` and its method; every result is kept.

    ``roughly``: whether ε may be up to 2 % larger (`compose_roughly`).
    """
    if roughly:
        return compose_roughly(terms, neighbours=neighbours, delta=delta).smallest(delta)
    return compose(terms, neighbours=neighbours).smallest(delta)

"""Calibration: the factor on all noise at which a pair, or a composition, meets its target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial

from sfumato.privacy.accountant import compose, composed_epsilon
from sfumato.privacy.charges import Composition, ways_to_charge
from sfumato.privacy.dominance import undominated
from sfumato.privacy.losses import gaussian
from sfumato.privacy.losses.revealed_draws import RevealedDraws
from sfumato.privacy.release import Exposure
from sfumato.privacy.sampling import GaussianTerm, Neighbours, is_visible_mixture, merged_terms, outcomes_told

_COARSER = 16.0
"""How much wider the grid is on which a root is looked for first."""
_STEP, _CLOSE, _FLAT, _REFINED = 0.01, 8e-5, 0.05, 6
"""In ln(factor): for slopes, and how far a root may be below. Slopes taken as too flat. Steps from there."""


def noise_scale_for(
    exposures: Sequence[Exposure], *, epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """The least factor on all noise stds of a pair at which its ε at ``delta`` is at most ``epsilon``.

    ∞ if every way of charging it has a release without noise.

    Args:
        exposures: one for each bound of the pair.
        epsilon: the target, > 0 and finite.
        delta: δ in (0, 1).
        neighbours: the neighbouring relation.
    """
    ways = (charge for exposure in exposures for charge in ways_to_charge(exposure, neighbours))
    return scale_for(ways, epsilon=epsilon, delta=delta)


def scale_for(ways: Iterable[Composition], *, epsilon: float, delta: float) -> float:
    """The least factor on all noise stds at which one of ``ways`` has at most ``epsilon`` at ``delta``.

    Not solved for are a way whose ε is too large at the least factor found before, since it needs a larger
    one, and a way whose ε is surely at least that of another one.

    Args:
        ways: sound ways to charge one pair.
        epsilon: the target, > 0 and finite.
        delta: δ in (0, 1).

    Returns:
        The factor, to a relative 1e-4; ∞ if there is none.

    Raises:
        ValueError: ``epsilon`` is not > 0 and finite, and a way is solved for.
    """
    least = math.inf
    for charge in undominated(tuple(ways)):
        delta_of_terms = delta - charge.failure_probability
        if delta_of_terms > 0 and (math.isinf(least) or _is_within(charge, least, epsilon, delta_of_terms)):
            least = min(least, _scale(charge.terms, charge.neighbours, epsilon, delta_of_terms))
    return least


def is_surely_enough(ways: Iterable[Composition], factor: float, *, epsilon: float, delta: float) -> bool:
    """Whether one of ``ways``, at ``factor`` times its noise, surely has at most ``epsilon`` at ``delta``.

    On a coarse grid of privacy losses, which is quick and never has too small a δ. ``False`` proves nothing.

    Args:
        ways: sound ways to charge one pair.
        factor: on all noise stds, > 0.
        epsilon: the target, > 0, in nats.
        delta: δ in (0, 1).
    """
    if factor == 0:
        return False
    curves = (
        (way, compose(_scaled(way.terms, factor), neighbours=way.neighbours, coarser=_COARSER))
        for way in ways
    )
    return any(curve.is_within(epsilon, delta - way.failure_probability) for way, curve in curves)


def _scaled(terms: Iterable[GaussianTerm], factor: float) -> list[GaussianTerm]:
    """Multiply the noise multiplier of every term by ``factor``."""
    return [replace(term, multiplier=term.multiplier * factor) for term in terms]


def _is_within(charge: Composition, factor: float, epsilon: float, delta: float) -> bool:
    """Whether ε of ``charge`` at ``delta`` is at most ``epsilon`` with all noise stds times ``factor``."""
    if factor == 0:
        return False
    coarsely = compose(_scaled(charge.terms, factor), neighbours=charge.neighbours, coarser=_COARSER)
    if coarsely.is_within(epsilon, delta):
        return True
    return composed_epsilon(_scaled(charge.terms, factor), charge.neighbours, delta)[0] <= epsilon


@cache
def _scale(terms: tuple[GaussianTerm, ...], neighbours: Neighbours, epsilon: float, delta: float) -> float:
    """Solve for the factor on the noise of ``terms`` that meets ``epsilon`` at ``delta``.

    Every result is kept.
    """
    return calibrate_scale(terms, target_epsilon=epsilon, delta=delta, neighbours=neighbours)


def calibrate_scale(
    terms: Iterable[GaussianTerm], *, target_epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """The factor on all noise stds of ``terms`` at which their ε at ``delta`` is the target.

    Unsampled terms: μ of the terms over μ of the target. Otherwise a root of the composed curve, bracketed
    from the revealed bound.

    Args:
        terms: the Gaussian releases that one observer meets.
        target_epsilon: ε wanted, > 0 and finite.
        delta: δ in (0, 1).
        neighbours: the relation that their multipliers refer to.

    Returns:
        The factor, at most 1e-4 (relative) above the exact one and with an ε that does not exceed the target.
        0 if no noise is needed: nothing is released, or so rarely that δ covers it. ∞ if a term has no noise
        to multiply, or if δ is below the probability of draws that `compose` leaves out.

    Raises:
        ValueError: a target out of range, terms that `compose` refuses, or, where no term is drawn, a δ out
            of range.
    """
    if not 0 < target_epsilon < math.inf:
        raise ValueError(f"target_epsilon: got {target_epsilon}; must be > 0 and finite")
    charged = merged_terms(terms)
    curve = compose(charged, neighbours=neighbours)
    if curve.gdp_mu is not None:
        return curve.gdp_mu / gaussian.mu(epsilon=target_epsilon, delta=delta) * (1 + 1e-9)
    if any(term.multiplier == 0 for term in charged) or RevealedDraws.of(charged).lost >= delta:
        return math.inf
    if math.prod((1 - _chance_to_tell(term)) ** term.count for term in charged) >= 1 - delta:
        return 0.0
    first = charged[0].multiplier
    relative = tuple(replace(term, multiplier=term.multiplier / first) for term in charged)
    return _sampled_scale(relative, target_epsilon, delta, neighbours) / first * (1 + 1e-12)


def _chance_to_tell(term: GaussianTerm) -> float:
    """Probability that one release of ``term`` depends on the unit at all."""
    if is_visible_mixture(term):
        return min(1.0, math.fsum(chance for chance, _ in outcomes_told(term)))
    return term.rate


@lru_cache(maxsize=256)
def _sampled_scale(
    charged: tuple[GaussianTerm, ...], target_epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """Solve for the factor on the noise of sampled terms, the first of multiplier 1, that meets the target.

    Results are kept, and devices whose terms differ only by one factor share them.

    Args:
        charged: the terms, merged.
        target_epsilon: ε wanted, > 0 and finite.
        delta: δ in (0, 1).
        neighbours: the relation that the multipliers refer to.
    """

    scaled = partial(_scaled, charged)

    def revealed(factor: float) -> float:
        return RevealedDraws.of(scaled(factor)).epsilon(delta)

    def revealed_by_delta(
        factor: float,
    ) -> float:  # meets the target where `revealed` does; no root of its own
        return RevealedDraws.of(scaled(factor)).delta(target_epsilon) / delta * target_epsilon

    def finely_composed(factor: float) -> float:
        return compose(scaled(factor), neighbours=neighbours).epsilon(delta)

    start = _smallest_factor(revealed_by_delta, target_epsilon, 1.0)
    if compose(scaled(start), neighbours=neighbours).method == "gdp":
        return _smallest_factor(revealed, target_epsilon, 1.0)

    def roughly_composed(factor: float) -> float:
        return compose(scaled(factor), neighbours=neighbours, coarser=_COARSER).epsilon(delta)

    near = _smallest_factor(roughly_composed, target_epsilon, start)
    return _refine_factor(finely_composed, roughly_composed, target_epsilon, near)


def _refine_factor(
    spent: Callable[[float], float], roughly: Callable[[float], float], target: float, near: float
) -> float:
    """The smallest factor with ``spent`` at most ``target``; starts at the root ``near`` of ``roughly``.

    The slope of the rough curve leads to the root of the fine one. A factor is returned only where the fine
    curve itself has at most the target there, and no more than _CLOSE below it by that slope.

    Args:
        spent: ε by the noise factor, composed finely; it decreases.
        roughly: ε by the noise factor, composed on a coarser grid.
        target: ε wanted.
        near: the factor at which ``roughly`` meets it.
    """
    place = math.log(near)
    above, below = (roughly(math.exp(place + sign * _STEP)) for sign in (1, -1))
    slope = (math.log(below) - math.log(above)) / (2 * _STEP) if above > 0 else 0.0
    for _ in range(_REFINED):
        if not slope > _FLAT:
            break
        excess = math.log(max(spent(math.exp(place)), 1e-300) / target) / slope
        if -_CLOSE <= excess <= 0:
            return math.exp(place)
        place += excess + _CLOSE / 2
    return _smallest_factor(spent, target, near)


def _smallest_factor(spent: Callable[[float], float], target: float, start: float) -> float:
    """The smallest factor with ``spent`` of it at most ``target``, to 1e-4 and rather too large.

    Args:
        spent: ε by the noise factor; it decreases.
        target: ε wanted.
        start: factor from which to look for a bracket.
    """
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

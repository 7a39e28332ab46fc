"""From exposures to a guarantee that says everything a guarantee must say (docs/accounting.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sfumato.privacy.accountant import (
    GaussianTerm,
    PoissonSampling,
    RevealedSampling,
    SamplingWithoutReplacement,
    calibrate_scale,
    compose,
)
from sfumato.privacy.relation import Neighbours
from sfumato.privacy.release import Exposure, Release, total_mu_squared


@dataclass(frozen=True)
class EpsilonBound:
    """One upper bound on what a pair reveals."""

    epsilon: float
    releases: int
    method: str
    neighbours: Neighbours
    how: str


@dataclass(frozen=True)
class Guarantee:
    """What one observer learns at most about one unit, over the whole training.

    Attributes:
        unit: e.g. ``device:1``.
        observer: a party, or a coalition joined by commas.
        stands_for: equivalent ordered pairs that this row represents.
        delta: the probability of failure.
        bound: name of the smallest of ``bounds``.
        bounds: every bound computed.
        relation: how observer and unit are placed, for people.
        why: one sentence.
        curve: pairs of delta and epsilon, where asked for.
    """

    unit: str
    observer: str
    stands_for: int
    delta: float
    bound: str
    bounds: Mapping[str, EpsilonBound]
    relation: str
    why: str
    curve: Sequence[tuple[float, float]] = field(default=())

    @property
    def epsilon(self) -> float:
        """The smallest bound; infinite where nothing protects."""
        return self.bounds[self.bound].epsilon

    @property
    def releases(self) -> int:
        """Number of releases that the smallest bound charges."""
        return self.bounds[self.bound].releases

    @property
    def method(self) -> str:
        """How the smallest bound was composed: gdp, pld or rdp."""
        return self.bounds[self.bound].method

    @property
    def neighbours(self) -> str:
        """Neighbouring relation of the smallest bound."""
        return self.bounds[self.bound].neighbours

    def to_dict(self) -> dict[str, Any]:
        """The row of ``account --json``."""
        row: dict[str, Any] = {
            "unit": self.unit,
            "observer": self.observer,
            "relation": self.relation,
            "stands_for": self.stands_for,
            "neighbours": self.neighbours,
            "epsilon": number(self.epsilon),
            "releases": self.releases,
            "bound": self.bound,
            "method": self.method,
            "bounds": {
                name: {"epsilon": number(bound.epsilon), "releases": bound.releases}
                for name, bound in self.bounds.items()
            },
            "why": self.why,
        }
        if self.curve:
            row["curve"] = [{"delta": d, "epsilon": number(e)} for d, e in self.curve]
        return row


def number(value: float) -> float | str:
    """JSON has no infinity: ``"inf"`` stands for it."""
    return value if math.isfinite(value) else "inf"


@dataclass(frozen=True)
class Composition:
    """Terms for the accountant, and how they came about.

    Attributes:
        terms: what is composed.
        neighbours: the relation they refer to.
        how: for people.
        failure_probability: probability that nothing protects; the rest of delta is left for ``terms``.
    """

    terms: tuple[GaussianTerm, ...]
    neighbours: Neighbours
    how: str
    failure_probability: float = 0.0


def charges(exposure: Exposure, neighbours: Neighbours) -> tuple[Composition, ...]:
    """Every sound way to charge ``exposure``, chances included; the smallest result counts."""
    found = _certain_charges(exposure, neighbours)
    if exposure.election_events:
        found = tuple(_with_chances(charge, exposure) for charge in found)
    return found + tuple(charge for other in exposure.alternatives for charge in charges(other, neighbours))


def _with_chances(charge: Composition, exposure: Exposure) -> Composition:
    """``charge`` with what elections add: a mixture over the number of rounds in which they do.

    A round's loss is at most that of the releases met anyway and, if the chance comes true, the increase
    in ``mu^2``; chances are independent of each other and of who takes part, so the increases are mixtures
    over Binomial(rounds, probability), independent of the rest (docs/hdp.md).
    """
    terms, risk, told = list(charge.terms), charge.failure_probability, []
    for chance in exposure.election_events:
        once = (
            -math.expm1(exposure.rounds * math.log1p(-chance.probability)) if chance.probability < 1 else 1.0
        )
        more = max(_increase(more, less, charge.neighbours) for more, less in chance.pairs)
        told.append(
            f"{chance.what} at least once with probability {once:.4g}, in "
            f"{exposure.rounds * chance.probability:.4g} rounds on average"
        )
        if math.isinf(more):
            told[-1] += ", and nothing protects then"
            risk += once
        elif more > 0:
            sampling = RevealedSampling(chance.probability) if chance.probability < 1 else None
            terms.append(GaussianTerm(1 / math.sqrt(more), exposure.rounds, sampling))
    return Composition(tuple(terms), charge.neighbours, "; ".join([charge.how, *told]), risk)


def _increase(more: Sequence[Release], less: Sequence[Release], neighbours: Neighbours) -> float:
    """By how much ``mu^2`` of a round grows; nothing is added to what is infinite already."""
    before = total_mu_squared(less, neighbours)
    return 0.0 if math.isinf(before) else max(0.0, total_mu_squared(more, neighbours) - before)


def _certain_charges(exposure: Exposure, neighbours: Neighbours) -> tuple[Composition, ...]:
    """Every sound way to charge ``exposure``; the smallest result counts.

    Sampling amplifies only for who is blind to the draw, only noise that is there whoever is drawn, and
    never replace pairs of others (docs/accounting.md). One draw serves all releases of a round, so a round is
    one sampled Gaussian. Whoever sees the draw is charged the Binomial mixture of participations. A fixed
    number drawn amplifies under replace-one only; zeroing a device out is one way to replace it, so that
    bound may stand for both relations.

    Where denominators depend on who is drawn, a round without the unit differs from one with its message
    zeroed, so zeroing out is no sampled Gaussian and Poisson sampling amplifies under *remove* only.
    """
    draw = exposure.draw
    amplifies = exposure.draw_hidden and all(
        r.noise_is_draw_independent and r.propagated_sensitivity == 0 for r in exposure.releases
    )
    if neighbours == "remove":
        return (_removed(exposure, amplifies=amplifies),)
    if draw.kind == "all":
        terms = tuple(GaussianTerm(_multiplier(r, neighbours), r.count) for r in exposure.releases)
        return (Composition(terms, neighbours, "no sampling"),)
    in_round = _one_multiplier(total_mu_squared(exposure.releases, neighbours))
    seen = Composition(
        (GaussianTerm(in_round, exposure.rounds, RevealedSampling(draw.rate)),),
        neighbours,
        f"mixture over Binomial({exposure.rounds}, {draw.rate:.4g}) participations, not amplified",
    )
    if not amplifies:
        return (seen,)
    if draw.kind == "fixed":
        return seen, _drawn_without_replacement(exposure)
    if neighbours == "replace" or any(r.divides_by_drawn for r in exposure.releases):
        return (seen,)
    return (_drawn_by_poisson(exposure, neighbours),)


def _removed(exposure: Exposure, *, amplifies: bool) -> Composition:
    """The charge of a unit that is gone in the other world: only a hidden draw hides its absence."""
    if not any(release.depends_on_unit for release in exposure.releases):
        return Composition((), "remove", "nothing depends on the unit")
    if exposure.draw.kind == "poisson" and amplifies:
        return _drawn_by_poisson(exposure, "remove")
    return Composition(
        (), "remove", "what is seen tells whether the unit is there at all", failure_probability=1.0
    )


def _drawn_by_poisson(exposure: Exposure, neighbours: Neighbours) -> Composition:
    in_round = _one_multiplier(total_mu_squared(exposure.releases, neighbours))
    rate = exposure.draw.rate
    sampled = GaussianTerm(in_round, exposure.rounds, PoissonSampling(rate))
    return Composition((sampled,), neighbours, f"amplified by Poisson sampling at rate {rate:.4g}")


def _drawn_without_replacement(exposure: Exposure) -> Composition:
    """A round with the unit in it against one with another device in its place, which may be heavier.

    The two messages may point apart: ``w b + w' b`` over the denominator, with weights w of the unit and w'
    of the other. Where the denominator is the larger of a floor and the drawn weights, what all others
    contribute moves too, and the sum by at most ``2 max(w, w') b`` over the floor (docs/hdp.md).
    """
    draw = exposure.draw
    moves = any(release.divides_by_drawn for release in exposure.releases)
    factor = 2.0 * max(1.0, draw.max_weight_ratio) if moves else 1.0 + draw.max_weight_ratio
    in_round = _one_multiplier(factor**2 * total_mu_squared(exposure.releases, "zero-out"))
    sampled = GaussianTerm(
        in_round, exposure.rounds, SamplingWithoutReplacement(draw.population, draw.sample)
    )
    how = f"amplified by drawing {draw.sample} of {draw.population} without replacement, replace-one"
    return Composition((sampled,), "replace", how)


def judge(exposure: Exposure, *, delta: float, neighbours: Neighbours) -> EpsilonBound:
    """The smallest epsilon among the sound charges of ``exposure``."""
    found = []
    for charge in charges(exposure, neighbours):
        if charge.failure_probability >= delta:
            epsilon, method = math.inf, "gdp"
        else:
            epsilon, method = composed(charge.terms, charge.neighbours, delta - charge.failure_probability)
        releases = sum(r.count for r in exposure.releases)
        found.append(EpsilonBound(epsilon, releases, method, charge.neighbours, charge.how))
    return min(found, key=lambda bound: bound.epsilon)


def smallest(bounds: Mapping[str, EpsilonBound]) -> str:
    """Name of the smallest bound; a tie (to rounding) is named flow."""
    best = min(bounds.values(), key=lambda bound: bound.epsilon).epsilon
    if "flow" in bounds and (bounds["flow"].epsilon == best or bounds["flow"].epsilon <= best * (1 + 1e-9)):
        return "flow"
    return min(bounds, key=lambda name: bounds[name].epsilon)


def noise_scale_for(
    exposures: Sequence[Exposure], *, epsilon: float, delta: float, neighbours: Neighbours
) -> float:
    """Least factor on all noise of a pair for an epsilon of at most ``epsilon``; infinite without noise."""
    return min(
        _scale(charge.terms, charge.neighbours, epsilon, delta - charge.failure_probability)
        if charge.failure_probability < delta
        else math.inf
        for exposure in exposures
        for charge in charges(exposure, neighbours)
    )


@cache
def _scale(terms: tuple[GaussianTerm, ...], neighbours: Neighbours, epsilon: float, delta: float) -> float:
    return calibrate_scale(terms, target_epsilon=epsilon, delta=delta, neighbours=neighbours)


@cache
def composed(terms: tuple[GaussianTerm, ...], neighbours: Neighbours, delta: float) -> tuple[float, str]:
    """Epsilon of ``terms`` and the method that gave it; computed once for equal terms."""
    curve = compose(terms, neighbours=neighbours)
    return curve.epsilon(delta), curve.method_at(delta)


def _multiplier(release: Release, neighbours: Neighbours) -> float:
    sensitivity = release.sensitivity(neighbours)
    return math.inf if sensitivity == 0 else math.sqrt(release.variance) / sensitivity


def _one_multiplier(mu_squared: float) -> float:
    """Multiplier of the one Gaussian that a round's releases amount to."""
    return math.inf if mu_squared == 0 else 1 / math.sqrt(mu_squared)

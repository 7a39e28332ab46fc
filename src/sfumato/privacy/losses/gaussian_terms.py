"""Gaussian releases as the accountant composes them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from sfumato.privacy.draws.sampling import Sampling

Method: TypeAlias = Literal["gdp", "pld"]


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


class CurveBound(Protocol):
    """One way to bound the curve of a composition."""

    @property
    def method(self) -> Method:
        """The name of the method."""

    def epsilon(self, delta: float) -> float:
        """The least ε that it gives at ``delta``."""

    def delta(self, epsilon: float) -> float:
        """The least δ that it gives at ``epsilon``."""


def is_poisson(term: GaussianTerm) -> bool:
    """Whether Poisson sampling amplifies ``term``."""
    return term.sampling is not None and term.sampling.kind == "poisson" and term.sampling.hidden


def is_of_batches(term: GaussianTerm) -> bool:
    """Whether a device's own draw of batches amplifies ``term``."""
    return term.sampling is not None and term.sampling.kind == "batches"


def is_fixed_size(term: GaussianTerm) -> bool:
    """Whether sampling without replacement amplifies ``term``."""
    return term.sampling is not None and term.sampling.kind == "fixed" and term.sampling.hidden


def has_scales(term: GaussianTerm) -> bool:
    """Whether a public draw decides how much noise each release has."""
    return term.sampling is not None and bool(term.sampling.scales or term.sampling.seen_scales)


def is_visible_mixture(term: GaussianTerm) -> bool:
    """Whether each release is Gaussian by an outcome that the observer sees, and nothing else is drawn."""
    return term.sampling is not None and has_scales(term) and not term.sampling.hidden and term.rate == 1


def outcomes_told(term: GaussianTerm) -> list[tuple[float, float]]:
    """Probabilities and μ² of one release of ``term``, which `has_scales`, if every draw is told."""
    assert term.sampling is not None
    square, sampling = squared_mu(term), term.sampling
    unseen = [(sampling.rate * chance, square * share**2) for chance, share in sampling.scales]
    return unseen + [(chance, square * share**2) for chance, share in sampling.seen_scales]


def squared_mu(term: GaussianTerm) -> float:
    """μ² of one release that uses the unit; ∞ without noise."""
    mu = 1 / term.multiplier if term.multiplier > 0 else math.inf
    return mu * mu


def merged(terms: Iterable[GaussianTerm]) -> list[GaussianTerm]:
    """The terms that tell something, equal ones added up, certain draws as no sampling, in a fixed order."""
    counts: defaultdict[tuple[float, Sampling | None], int] = defaultdict(int)
    for term in terms:
        if term.count > 0 and term.multiplier < math.inf and term.rate > 0:
            is_drawn = term.rate < 1 or has_scales(term)
            counts[term.multiplier, term.sampling if is_drawn else None] += term.count
    merged = [GaussianTerm(multiplier, count, sampling) for (multiplier, sampling), count in counts.items()]
    return sorted(merged, key=lambda term: (term.multiplier, term.rate, repr(term.sampling)))

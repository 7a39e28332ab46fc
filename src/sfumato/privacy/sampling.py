"""What the accountant composes: Gaussian releases, how the unit is drawn, and between which worlds.

*Neighbouring relations* say in what the two worlds differ that an observer tries to tell apart:

=========  =======================================  ==================================================
relation   the unit in the other world              its message moves by
=========  =======================================  ==================================================
zero-out   takes part and counts as before, but     its clip
           everything it contributes is 0
remove     is not there: it is never drawn, and     its clip; twice that where denominators shrink with
           its weight is in no denominator          it (docs/hdp.md)
replace    takes part and counts as before, with    twice its clip
           any other data
=========  =======================================  ==================================================

One relation holds for a whole row, and it means the same for every observer. Who takes part, how much
it counts, schedules and trust are public under zero-out and replace. Under remove whoever sees the
participants would see that the unit is missing, so there is no guarantee towards them.

*Draws* say how the participants of a round are drawn, and whether an observer sees whom the draw chose:

================  =====================  =========================================================
drawn             the observer sees it   charged
================  =====================  =========================================================
all               either                 as it is: every release uses the unit
poisson, fixed    yes                    the Binomial mixture of participations, at rate ``rate``
poisson           no                     amplified by Poisson sampling; a replaced unit leaves in both
                                         worlds the release in which it is not drawn
fixed             no                     amplified by sampling without replacement
batches           no                     amplified; what a record's first draw moves is a mixture
================  =====================  =========================================================

The first three draw devices. ``batches`` are the records that a device draws for itself, step by step, and
that nobody else sees (`sfumato.privacy.records`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

Neighbours: TypeAlias = Literal["zero-out", "remove", "replace"]


@dataclass(frozen=True)
class Sampling:
    """One draw of participants, or of a device's batches, as one observer meets it.

    Attributes:
        kind: ``all``; ``poisson``: each independently with probability ``rate``; ``fixed``: ``sample``
            of ``population`` uniformly without replacement.
        rate: expected share of draws that choose a device.
        hidden: whether the observer never learns whom the draw chose.
        population: devices drawn from, as far as the observer knows (``fixed`` only). Towards a coalition
            that knows its own ``k`` members were not drawn it is N - k.
        sample: devices drawn (``fixed`` only).
        apart: by how many times its sensitivity the unit's message is, at most, from that of the device that
            is drawn in its place (``fixed``), or from the release without it (``poisson`` with
            ``shares_a_part``), in the one world and in the other (`losses.one_release`).
        moves: of ``batches`` only: a probability, by which share of the sensitivity the release moves then,
            at most, from one world to the other, and by which from the part that they share. The
            probabilities add up to ``rate``.
        scales: of ``poisson`` only: a public draw of how much noise there is, independent of everything else,
            once a release: a probability, and the share of the largest sensitivity over noise std that the
            release has then. What the probabilities lack to 1 tells nothing. Empty: always the largest.
        seen_scales: the same for outcomes in which the observer sees a draw that is hidden otherwise; each
            probability is that of the outcome and of a draw that uses the unit.
        shares_a_part: of ``batches`` and hidden ``poisson`` only: whether the two worlds differ from the part
            that they share both; otherwise one of them is that part.

    Raises:
        ValueError: a rate outside [0, 1], no population, a sample larger than it, no distance, or shares
            outside (0, 1].
    """

    kind: Literal["all", "poisson", "fixed", "batches"] = "all"
    rate: float = 1.0
    hidden: bool = True
    population: int = 0
    sample: int = 0
    apart: tuple[float, float] = (1.0, 1.0)
    moves: tuple[tuple[float, float, float], ...] = ()
    shares_a_part: bool = False
    scales: tuple[tuple[float, float], ...] = ()
    seen_scales: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        """Check rates, counts and shares; a ValueError names the field, its value and what is allowed."""
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate: got {self.rate}; must be in [0, 1]")
        if self.kind == "fixed" and self.population < 1:
            raise ValueError(f"population: got {self.population}; must be at least 1")
        if self.kind == "fixed" and not 0 <= self.sample <= self.population:
            raise ValueError(f"sample: got {self.sample}; must be in 0..{self.population} (the population)")
        if not min(self.apart) > 0:
            raise ValueError(f"apart: got {self.apart}; must be > 0")
        if any(not (chance >= 0 and 0 < a <= 1 and 0 < b <= 1) for chance, a, b in self.moves):
            raise ValueError(f"moves: got {self.moves}; must be probabilities with shares in (0, 1]")

        scales = (*self.scales, *self.seen_scales)
        if any(not (chance >= 0 and 0 <= share <= 1) for chance, share in scales):
            raise ValueError(f"scales: got {scales}; must be probabilities with shares in [0, 1]")

    @classmethod
    def poisson(
        cls,
        rate: float,
        *,
        hidden: bool = True,
        apart: float = 0.0,
        scales: tuple[tuple[float, float], ...] = (),
        seen_scales: tuple[tuple[float, float], ...] = (),
    ) -> Sampling:
        """A draw that takes each device independently with probability ``rate``.

        Args:
            rate: in [0, 1]; 1: everybody.
            hidden: whether the observer does not learn whom it takes.
            apart: distance, in sensitivities, of a replaced unit's release from the one without it, in either
                world. With 0 one of the worlds is that release.
            scales: pairs (probability, share) of a public draw of how much noise a release has: share of the
                largest sensitivity over noise std. Empty: always the largest.
            seen_scales: the same for outcomes in which the observer sees who is drawn, with the probability
                that the unit is used.
        """
        leaves, distances = apart > 0, (apart, apart) if apart > 0 else (1.0, 1.0)
        return cls(
            "poisson",
            rate,
            hidden,
            apart=distances,
            shares_a_part=leaves,
            scales=scales,
            seen_scales=seen_scales,
        )

    @classmethod
    @lru_cache(maxsize=1 << 12)
    def revealed(cls, rate: float) -> Sampling:
        """A draw that uses the unit with probability ``rate`` in each release, and that the observer sees.

        A term of count T is then a mixture over how often the unit takes part, which is Binomial(T, rate),
        as it can be computed before training. A draw of a fixed number that is seen is one of these too, at
        rate sample / population.
        """
        return cls("poisson", rate, hidden=False)

    @classmethod
    @lru_cache(maxsize=1 << 12)
    def without_replacement(
        cls, population: int, sample: int, apart: tuple[float, float] = (1.0, 1.0)
    ) -> Sampling:
        """A hidden draw of ``sample`` of ``population`` devices, uniformly without replacement.

        ``apart``: how many sensitivities the unit's message is, at most, from that of the device drawn in its
        place, in the one world and in the other.
        """
        rate = min(1.0, max(0.0, sample / max(population, 1)))
        return cls("fixed", rate, True, population, sample, apart)

    @classmethod
    def of_batches(cls, moves: Iterable[tuple[float, float, float]], *, shares_a_part: bool) -> Sampling:
        """A device's own draw of records, hidden from everybody; ``moves`` of equal shares are merged.

        Args:
            moves: triples of a probability, the share of the sensitivity that the release moves then from one
                world to the other, and the share that it moves from the release without the record; the
                shares are in (0, 1].
            shares_a_part: whether both worlds differ from the release without the record; ``False``: one of
                the worlds is that release.

        Raises:
            ValueError: a share outside (0, 1].
        """
        chances: defaultdict[tuple[float, float], list[float]] = defaultdict(list)
        for chance, between, from_shared in moves:
            chances[between, from_shared].append(chance)
        listed = tuple((math.fsum(chances[shares]), *shares) for shares in sorted(chances, reverse=True))
        rate = min(1.0, math.fsum(chance for chance, _, _ in listed))
        return cls("batches", rate, True, moves=listed, shares_a_part=shares_a_part)

    @property
    def amplifies(self) -> bool:
        """Whether the draw is hidden and may leave devices (or records) out, so that it may lower ε.

        Whether it does depends on the releases too (`DrawnReleases.amplifies`).
        """
        return self.kind != "all" and self.hidden

    def shown(self) -> Sampling:
        """A copy of this draw towards an observer that sees who is drawn, so that nothing is amplified."""
        return self if self.kind == "all" else Sampling.revealed(self.rate)


def any_of_fixed_draw(sampling: Sampling, devices: int) -> float:
    """Upper bound on the probability that ``sampling``, of a fixed number, takes any of ``devices`` devices.

    It is larger than with independent draws at the same rate. Members of the coalition are taken not to be
    drawn, which leaves more places for the others.
    """
    population, sample = sampling.population, sampling.sample
    if devices > population - sample:
        return 1.0
    return 1.0 - math.prod(1.0 - sample / (population - taken) for taken in range(devices))


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
        """Check that ``multiplier`` and ``count`` are at least 0; else raise a ValueError."""
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
        """The name of the method, for reports."""

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 that this bound gives at ``delta``; ∞ where there is none."""

    def delta(self, epsilon: float) -> float:
        """The least δ in [0, 1] that this bound gives at ``epsilon``."""

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether this bound gives at most ``delta`` at ``epsilon``."""


def is_poisson(term: GaussianTerm) -> bool:
    """Whether ``term`` is drawn by Poisson sampling that the observer does not see."""
    return term.sampling is not None and term.sampling.kind == "poisson" and term.sampling.hidden


def is_of_batches(term: GaussianTerm) -> bool:
    """Whether ``term`` is drawn by its device as batches of records."""
    return term.sampling is not None and term.sampling.kind == "batches"


def is_fixed_size(term: GaussianTerm) -> bool:
    """Whether ``term`` is drawn without replacement, unseen by the observer."""
    return term.sampling is not None and term.sampling.kind == "fixed" and term.sampling.hidden


def has_scales(term: GaussianTerm) -> bool:
    """Whether the noise of each release of ``term`` has a random scale, by a draw that is public.

    The scales and their probabilities are ``scales`` and ``seen_scales`` of its `Sampling`.
    """
    return term.sampling is not None and bool(term.sampling.scales or term.sampling.seen_scales)


def is_visible_mixture(term: GaussianTerm) -> bool:
    """Whether the observer sees an outcome given which a release of ``term`` is Gaussian.

    The outcome is a public draw of the noise's scale. Its probabilities may count whether the unit is drawn;
    nothing else is drawn.
    """
    return term.sampling is not None and has_scales(term) and not term.sampling.hidden and term.rate == 1


def outcomes_told(term: GaussianTerm) -> list[tuple[float, float]]:
    """Pairs (probability, μ²) of one release of ``term``, if the observer is told every draw's outcome.

    ``term`` must have a public draw of its noise's scale (`has_scales`). The probabilities may add up to less
    than 1; with the rest the release does not depend on the unit.
    """
    assert term.sampling is not None
    square, sampling = squared_mu_of_term(term), term.sampling
    unseen = [(sampling.rate * chance, square * share**2) for chance, share in sampling.scales]
    return unseen + [(chance, square * share**2) for chance, share in sampling.seen_scales]


def squared_mu_of_term(term: GaussianTerm) -> float:
    """μ² = 1 / multiplier² of one release of ``term`` that uses the unit; ∞ without noise."""
    mu = 1 / term.multiplier if term.multiplier > 0 else math.inf
    return mu * mu


def merged_terms(terms: Iterable[GaussianTerm]) -> list[GaussianTerm]:
    """A list of ``terms`` in a fixed order, in which equal ones are one term with their counts added up.

    Terms that tell nothing are left out; draws that always take the unit become no sampling.
    """
    counts: defaultdict[tuple[float, Sampling | None], int] = defaultdict(int)
    for term in terms:
        if term.count > 0 and term.multiplier < math.inf and term.rate > 0:
            is_drawn = term.rate < 1 or has_scales(term)
            counts[term.multiplier, term.sampling if is_drawn else None] += term.count
    merged = [GaussianTerm(multiplier, count, sampling) for (multiplier, sampling), count in counts.items()]
    return sorted(merged, key=lambda term: (term.multiplier, term.rate, repr(term.sampling)))

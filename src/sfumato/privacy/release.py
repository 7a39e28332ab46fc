"""Releases as facts, the way they bear on one unit and one coalition of observers.

A protocol says what it sends; nothing here knows an epsilon. Sensitivities and standard deviations
of one release share a unit (the clip norm, or step size times clip norm), which cancels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from sfumato.privacy.sampling import Neighbours, Sampling, any_of_fixed_draw


@dataclass(frozen=True)
class NoiseLaw:
    """The distribution of a mechanism's noise, and whether the accountant can compose it.

    The accountant composes Gaussian noise only. Noise of any other law is charged as none: epsilon is
    infinite, and the report says why.

    Attributes:
        name: of the distribution, for people.
        why_not_composed: why its releases cannot be charged as those of a Gaussian mechanism with the same
            standard deviation; empty where they can.
        composed_for_records: whether they can for a record as the unit all the same: what cannot be said is
            how far a whole device moves a message.
    """

    name: str
    why_not_composed: str = ""
    composed_for_records: bool = False

    def is_composed(self, *, of_records: bool = False) -> bool:
        """Whether releases with this noise are charged as Gaussian; ``of_records``: with records as unit."""
        return not self.why_not_composed or (of_records and self.composed_for_records)


GAUSSIAN = NoiseLaw("Gaussian")


@dataclass(frozen=True)
class Release:
    """A noised message that a coalition sees, or is charged as if it saw.

    Attributes:
        name: when it happens, for people.
        vector: which sum of it is met, for people.
        own_sensitivity: zero-out sensitivity of the unit's own contribution, ``a_u C_u``.
        propagated_sensitivity: summed replace sensitivity ``sum 2 a_j C_j`` of the devices whose inputs
            depend on the unit and are not determined by what is exposed; 0 under the flow bound.
        variance: of the noise owned by parties outside the coalition, a coordinate.
        noise_is_draw_independent: whether that noise is there whoever is drawn; only then may a draw amplify.
        divides_by_drawn: whether what the sum is divided by depends on who is drawn.
        linking: how many others move it whatever the unit does in this draw, if they are drawn themselves:
            they started from a model that the unit's data had reached before. With none, what propagates does
            so only when the unit is drawn, whose draw is then the only one that matters.
        amplifies_propagated: whether a hidden draw is known to amplify what propagates too (docs/leakage.md).
    """

    name: str
    vector: str
    own_sensitivity: float
    propagated_sensitivity: float
    variance: float
    noise_is_draw_independent: bool
    divides_by_drawn: bool = False
    linking: int = 0
    amplifies_propagated: bool = False

    @cached_property
    def without_names(self) -> Release:
        """A copy without the texts `name` and `vector`, so that releases equal but for these are equal."""
        return replace(self, name="", vector="")

    def sensitivity(self, neighbours: Neighbours) -> float:
        """The largest l2 distance by which data of ``neighbours`` move it, in the unit of the noise std."""
        if neighbours == "replace" or (neighbours == "remove" and self.divides_by_drawn):
            return 2.0 * self.own_sensitivity + self.propagated_sensitivity
        return self.own_sensitivity + self.propagated_sensitivity

    def mu_squared(self, neighbours: Neighbours) -> float:
        """``(sensitivity / noise std)^2`` of one such release under ``neighbours``; ∞ without noise."""
        sensitivity = self.sensitivity(neighbours)
        if sensitivity == 0:
            return 0.0
        return sensitivity**2 / self.variance if self.variance > 0 else math.inf

    @property
    def depends_on_unit(self) -> bool:
        """Whether the unit's data move the release at all."""
        return self.own_sensitivity + self.propagated_sensitivity > 0

    @property
    def is_unprotected(self) -> bool:
        """Whether the unit's data move the release, and the coalition knows all of its noise."""
        return self.depends_on_unit and self.variance == 0


def total_mu_squared(releases: Iterable[Release], neighbours: Neighbours) -> float:
    """Sum of `Release.mu_squared` over ``releases`` under ``neighbours``; ∞ if one of them is unprotected."""
    return math.fsum(release.mu_squared(neighbours) for release in releases)


def _noiseless(releases: tuple[Release, ...]) -> tuple[Release, ...]:
    """``releases`` without their noise."""
    return tuple(replace(release, variance=0.0) for release in releases)


def without_noise_in(draw: DrawnReleases) -> DrawnReleases:
    """A copy of ``draw`` whose releases have no noise."""
    return replace(draw, releases=_noiseless(draw.releases), drawn_noise=())


def without_noise(exposure: Exposure) -> Exposure:
    """A copy of ``exposure`` whose releases have no noise: for noise that the accountant cannot compose."""
    return replace(
        exposure,
        draws=tuple(without_noise_in(draw) for draw in exposure.draws),
        election_events=tuple(
            replace(chance, pairs=tuple((_noiseless(one), _noiseless(other)) for one, other in chance.pairs))
            for chance in exposure.election_events
        ),
        alternatives=tuple(without_noise(other) for other in exposure.alternatives),
    )


@dataclass(frozen=True)
class DrawnNoise:
    """Noise of other devices that is in the releases of a draw if these devices are drawn.

    Attributes:
        count: how many devices, neither the unit nor members; each is drawn by itself at the draw's rate.
        variances: what each of them adds to each release, if it is drawn, a coordinate.
    """

    count: int
    variances: tuple[float, ...]


@dataclass(frozen=True)
class DrawnReleases:
    """The releases that one draw of participants serves, and how often such a draw happens.

    Attributes:
        sampling: how the participants are drawn, and whether the coalition sees whom.
        releases: of one draw.
        count: number of such draws in the whole training; they are independent of each other.
        max_weight_ratio: how many times as much as the unit the heaviest device counts that may be drawn in
            its place (a fixed number drawn only).
        drawn_noise: what others add beyond the releases' own variances, if they are drawn (Poisson only).
    """

    sampling: Sampling
    releases: tuple[Release, ...]
    count: int
    max_weight_ratio: float = 1.0
    drawn_noise: tuple[DrawnNoise, ...] = ()

    @cached_property
    def amplifies(self) -> bool:
        """Whether the draw lowers ε: it is hidden, and it decides about the unit's message alone.

        Then the noise is the same whoever is drawn, and no release moves by what others pass on, unless
        `Release.amplifies_propagated`: such messages may be anything in either world, drawn or not
        (docs/accounting.md).
        """
        return self.sampling.amplifies and all(
            release.noise_is_draw_independent
            and not release.linking
            and (release.propagated_sensitivity == 0 or release.amplifies_propagated)
            for release in self.releases
        )

    def poisson_amplifies(self, neighbours: Neighbours) -> bool:
        """Whether the draw is a hidden Poisson draw that amplifies under ``neighbours``.

        The pair of one draw is then a sampled Gaussian, or under *replace* two worlds that both leave the
        draw without the unit. Where denominators depend on who is drawn, a round without the unit differs
        from one in which it sends zeros: then *zero-out* is not amplified.
        """
        if self.sampling.kind != "poisson" or not self.amplifies:
            return False
        return neighbours != "zero-out" or not self.divides_by_drawn

    def distance_from_undrawn(self, neighbours: Neighbours) -> float:
        """The largest distance of a release with a drawn unit from that without the unit, in sensitivities.

        0 under every relation but *replace*, as one of the two worlds then is the draw without the unit.
        """
        if neighbours != "replace":
            return 0.0
        moving = [release for release in self.releases if release.depends_on_unit]
        return max((r.sensitivity("remove") / r.sensitivity("replace") for r in moving), default=0.0)

    def shows_a_missing_unit(self, neighbours: Neighbours) -> bool:
        """Whether the releases reveal if the unit is there at all, where ``neighbours`` is *remove*.

        Only an amplified draw hides that it is not there. Under the other relations it is there in both
        worlds.
        """
        if neighbours != "remove" or self.poisson_amplifies(neighbours):
            return False
        return any(release.own_sensitivity > 0 for release in self.releases)

    @property
    def moved_rate(self) -> float:
        """Probability that a draw takes any of the devices that move a release because of the unit's data."""
        linking = max((release.linking for release in self.releases), default=0)
        movers = linking + any(release.own_sensitivity > 0 for release in self.releases)
        rate = self.sampling.rate
        if movers > 1 and self.sampling.kind == "fixed":
            return any_of_fixed_draw(self.sampling, movers)
        return rate if movers <= 1 else 1.0 - (1.0 - rate) ** movers

    @property
    def divides_by_drawn(self) -> bool:
        """Whether the denominator of any release's sum depends on who is drawn."""
        return any(release.divides_by_drawn for release in self.releases)


@dataclass(frozen=True)
class ElectionEvent:
    """What more the coalition meets in a round with some probability, independently of all else.

    Attributes:
        probability: in each round.
        rounds: number of rounds.
        pairs: releases of a round with and without it; the largest difference is charged.
        what: for people, e.g. ``elected supernode of edge:0``.
    """

    probability: float
    rounds: int
    pairs: tuple[tuple[tuple[Release, ...], tuple[Release, ...]], ...]
    what: str


@dataclass(frozen=True)
class RoundOutcomes:
    """A public draw in every round, independent of everything else, that decides what is met.

    Attributes:
        chances: the probability of each outcome; they add up to 1.
        what: for people.
    """

    chances: tuple[float, ...]
    what: str


@dataclass(frozen=True)
class Exposure:
    """What bounds one pair: all releases charged, under one of the bounds of docs/accounting.md.

    Attributes:
        bound_name: ``flow`` (all ancestors exposed), ``cut`` (only what is seen) or ``min-cost`` (the
            cheapest set between the two).
        draws: the releases, draw by draw.
        groups_draw_separately: whether every group draws its own participants; otherwise one draw serves a
            round.
        election_events: what elections may add.
        outcomes: where given, a round has one of ``draws`` by these chances, not all of them.
        alternatives: other sound ways to charge the same; the smallest result counts.
        exposed: which releases the coalition is taken to see: of every group how many, from the first one on;
            of a tree which aggregations of a round, from 1, where the set was searched for.
        gap: how many times the cheapest set's Rényi divergence of order 2 that of this set is at most; 1 if
            it is known that no set has a smaller one; ∞ where nothing bounds it; ``None`` where the set was
            not searched for.
        roughly: whether ε may be up to 2 % above what a finer grid of privacy losses gives
            (`sfumato.privacy.accountant.compose_roughly`), and more where another bound is surely smaller.
    """

    bound_name: Literal["flow", "cut", "min-cost"]
    draws: tuple[DrawnReleases, ...]
    groups_draw_separately: bool = False
    election_events: tuple[ElectionEvent, ...] = ()
    outcomes: RoundOutcomes | None = None
    alternatives: tuple[Exposure, ...] = ()
    exposed: tuple[int, ...] = ()
    gap: float | None = None
    roughly: bool = False

    @property
    def releases(self) -> tuple[Release, ...]:
        """The releases of every draw, each once, however often the draw happens."""
        return tuple(release for draw in self.draws for release in draw.releases)

    @property
    def counted_releases(self) -> tuple[tuple[Release, int], ...]:
        """Every release with the number of times that it happens in the whole training."""
        return tuple((release, draw.count) for draw in self.draws for release in draw.releases)

    @property
    def release_count(self) -> int:
        """Number of releases in the whole training, repeated ones counted."""
        return sum(count for _, count in self.counted_releases)

    @cached_property
    def without_names(self) -> tuple[str, frozenset[tuple[tuple[Sampling, tuple[Release, ...]], int]]]:
        """What is charged, without texts: equal for exposures whose releases differ in their texts only.

        Returns:
            The bound's name, and how often each pair of a draw and its releases happens.
        """
        counts: Counter[tuple[Sampling, tuple[Release, ...]]] = Counter()
        for drawn in self.draws:
            bare = tuple(release.without_names for release in drawn.releases)
            counts[drawn.sampling, bare] += drawn.count
        return self.bound_name, frozenset(counts.items())

    def charges_same_as(self, other: Exposure) -> bool:
        """Whether this exposure and ``other`` refer to one `draws` object, so that they charge the same.

        ``False`` proves nothing. It is ``False`` where this exposure has elections, outcomes or alternatives.
        """
        return self.draws is other.draws and not (self.alternatives or self.election_events or self.outcomes)

    @property
    def hides_a_draw(self) -> bool:
        """Whether a hidden draw amplifies some of the releases: their privacy losses have to be composed."""
        return any(draw.amplifies for draw in self.draws)

    @property
    def draw_hidden(self) -> bool:
        """Whether the coalition sees none of the draws of participants."""
        return all(draw.sampling.hidden for draw in self.draws)

    @property
    def is_unprotected(self) -> bool:
        """Whether the coalition knows all noise of a release that the unit moves, so that ε is infinite."""
        return any(release.is_unprotected for release in self.releases)

    def without_draws(self) -> Exposure:
        """A copy in which the unit takes part every time, without noise that depends on other draws."""
        draws = tuple(replace(draw, sampling=Sampling(), drawn_noise=()) for draw in self.draws)
        return replace(self, draws=draws)

    def with_draws_shown(self) -> Exposure:
        """A copy in which the coalition sees every draw, without noise that others add only if drawn.

        It is for rounds in which a member may hold office: the μ² that an election adds is computed from
        noise that is there in any case.
        """
        draws = (replace(draw, sampling=draw.sampling.shown(), drawn_noise=()) for draw in self.draws)
        return replace(self, draws=tuple(draws))


def merged_draws(draws: Iterable[DrawnReleases]) -> tuple[DrawnReleases, ...]:
    """``draws`` with equal ones merged and their counts added up, in the order of first occurrence."""
    found: dict[Any, DrawnReleases] = {}
    for drawn in draws:
        key = drawn.sampling, drawn.releases, drawn.max_weight_ratio, drawn.drawn_noise
        same = found.get(key)
        found[key] = drawn if same is None else replace(same, count=same.count + drawn.count)
    return tuple(found.values())


def are_unprotected(exposures: Iterable[Exposure]) -> bool:
    """Whether each of ``exposures``, one for each bound of a pair, has a release without noise.

    Then ε is infinite.
    """
    return all(exposure.is_unprotected for exposure in exposures)

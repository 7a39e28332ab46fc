"""Releases as facts, the way they bear on one unit and one coalition of observers.

A protocol says what it sends; nothing here knows an epsilon. Sensitivities and standard deviations
of one release share a unit (the clip norm, or step size times clip norm), which cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from sfumato.privacy.relation import Neighbours


@dataclass(frozen=True)
class Draw:
    """How the participants of a round are chosen; one draw serves every release of the round.

    Attributes:
        kind: ``all``; ``poisson``: each independently with probability ``rate``; ``fixed``: ``sample``
            of ``population`` uniformly without replacement.
        rate: expected share of rounds a device takes part in.
        population: devices drawn from, as far as the observer knows (``fixed`` only).
        sample: devices drawn (``fixed`` only).
        outweighed: how many times as much as the unit the heaviest device counts that may be drawn in its
            place (``fixed`` only).
    """

    kind: Literal["all", "poisson", "fixed"] = "all"
    rate: float = 1.0
    population: int = 0
    sample: int = 0
    max_weight_ratio: float = 1.0


@dataclass(frozen=True)
class Release:
    """A noised message that a coalition sees, or is charged as if it saw.

    Attributes:
        name: when it happens, for people.
        vector: which sum of it is met, for people.
        own_sensitivity: zero-out sensitivity of the unit's own contribution, ``a_u C_u``.
        propagated_sensitivity: summed replace sensitivity ``sum 2 a_j C_j`` of the devices whose inputs depend on the
            unit and are not determined by what is exposed; 0 under the flow bound.
        variance: of the noise owned by parties outside the coalition, a coordinate.
        noise_is_draw_independent: whether that noise is there whoever is drawn; only then may a draw amplify.
        count: how many such releases there are in the whole training.
        divides_by_drawn: whether what the sum is divided by depends on who is drawn.
    """

    name: str
    vector: str
    own_sensitivity: float
    propagated_sensitivity: float
    variance: float
    noise_is_draw_independent: bool
    count: int
    divides_by_drawn: bool = False

    def sensitivity(self, neighbours: Neighbours) -> float:
        """How far the release moves, at most, between two worlds that are ``neighbours``."""
        if neighbours == "replace" or (neighbours == "remove" and self.divides_by_drawn):
            return 2.0 * self.own_sensitivity + self.propagated_sensitivity
        return self.own_sensitivity + self.propagated_sensitivity

    def mu_squared(self, neighbours: Neighbours) -> float:
        """``(sensitivity / noise std)^2`` of one such release; infinite without noise."""
        return _ratio_squared(self.sensitivity(neighbours), self.variance)

    @property
    def depends_on_unit(self) -> bool:
        """Whether anything in it depends on the unit's data."""
        return self.own_sensitivity + self.propagated_sensitivity > 0

    @property
    def is_unprotected(self) -> bool:
        """Whether it depends on the unit's data and has no noise that the coalition does not know."""
        return self.depends_on_unit and self.variance == 0


def _ratio_squared(sensitivity: float, variance: float) -> float:
    if sensitivity == 0:
        return 0.0
    return sensitivity**2 / variance if variance > 0 else math.inf


def total_mu_squared(releases: Iterable[Release], neighbours: Neighbours) -> float:
    """Sum of `Release.mu_squared`, each release once, whatever its count."""
    return math.fsum(release.mu_squared(neighbours) for release in releases)


def without_noise(exposure: Exposure) -> Exposure:
    """``exposure`` as if nobody added noise: for noise that the accountant cannot compose."""

    def bare(releases: tuple[Release, ...]) -> tuple[Release, ...]:
        return tuple(replace(release, variance=0.0) for release in releases)

    return replace(
        exposure,
        releases=bare(exposure.releases),
        election_events=tuple(
            replace(chance, pairs=tuple((bare(one), bare(other)) for one, other in chance.pairs))
            for chance in exposure.election_events
        ),
        alternatives=tuple(without_noise(other) for other in exposure.alternatives),
    )


@dataclass(frozen=True)
class ElectionEvent:
    """What more the coalition meets in a round with some probability, independently of all else.

    Attributes:
        probability: in each round.
        pairs: releases of a round with and without it; the largest difference is charged.
        what: for people, e.g. ``elected supernode of edge:0``.
    """

    probability: float
    pairs: tuple[tuple[tuple[Release, ...], tuple[Release, ...]], ...]
    what: str


@dataclass(frozen=True)
class Exposure:
    """What bounds one pair: all releases charged, under one of the bounds of docs/accounting.md.

    Attributes:
        bound: ``flow`` (all ancestors exposed) or ``cut`` (only what is seen).
        releases: one for each kind in a round.
        draw: how participants are chosen.
        draw_hidden: whether the whole coalition is blind to the draw.
        rounds: number of rounds.
        election_events: what elections may add.
        alternatives: other sound ways to charge the same; the smallest result counts.
    """

    bound: Literal["flow", "cut", "min-cost"]
    releases: tuple[Release, ...]
    draw: Draw
    draw_hidden: bool
    rounds: int
    election_events: tuple[ElectionEvent, ...] = ()
    alternatives: tuple[Exposure, ...] = ()

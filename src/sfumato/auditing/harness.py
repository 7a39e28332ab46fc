"""The interface by which an audit simulates a protocol: rounds with a target that sends given updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sfumato.auditing.tradeoff import TrialScores
from sfumato.privacy.sampling import Neighbours

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
TARGET = -1
ObservationKey = tuple[int, int, str, int]
"""Of a vector that a coalition saw: (time, tier, kind, number).

In a tree the time is the aggregation of the round, and the tier that of the party with the number. In groups
it is the round, from the first simulated one, and the tier is 1. By kind the number is

- ``sent``: of the sender of a message (the unit's own: `TARGET`),
- ``received``: of the node that received a sum of messages,
- ``met``: of a leaf that received a sum and then sent nothing,
- ``broadcast``: of the node whose model was received.
"""
Observations = Mapping[ObservationKey, FloatArray]


@dataclass(frozen=True)
class TargetDraw:
    """One draw of participants that decides whether the unit sends.

    Attributes:
        rate: probability that the unit takes part in a round.
        visible: whether the observer sees whether the unit takes part.
        independent: whether the draws of others are independent of the unit's.
    """

    rate: float
    visible: bool
    independent: bool = True


@dataclass(frozen=True)
class ElectionOutcome:
    """One outcome of a round's elections for the coalition; every trial draws one of the outcomes.

    Attributes:
        probability: of this outcome, given everything else that is public.
        draws: draws of participants that decide whether the unit sends. Some of the observations belong to
            each draw.
    """

    probability: float
    draws: tuple[TargetDraw, ...]


class AuditHarness(Protocol):
    """A plan's rounds, with one unit as the target and one coalition of observers.

    Every coordinate is a trial of its own: noise is independent from coordinate to
    coordinate, and sums and averages do not mix them, so a model of M parameters whose every coordinate is
    bounded by C shows M independent runs of the mechanism that bounds one coordinate by C: its worst case,
    a message of norm C along one direction, whatever the dimension.
    """

    @property
    def rounds(self) -> int:
        """Number of rounds or intervals, which are independent of each other given the observations."""

    @property
    def exchangeable_devices(self) -> IntArray:
        """Numbers of the devices that can be exchanged with the unit, ascending, ``[n]``.

        The unit is among them; members of the coalition are not.
        """

    def outcomes(self, number: int, seed: int) -> tuple[ElectionOutcome, ...]:
        """A tuple of the possible outcomes of elections in round or interval ``number`` under ``seed``.

        Outcomes differ in the offices that members hold, and have the same number of draws; their
        probabilities add up to 1. In the first outcome members hold no office.
        """

    def simulate(
        self, number: int, *, taking_part: bool, signs: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Simulate one round or interval.

        Args:
            number: of the round or interval.
            taking_part: whether the unit is among the participants, in all draws.
            signs: what the unit sends in each trial, in units of the largest message allowed, ``[M]``.
            seed: of everything random. The other participants, dropouts and elected supernodes are the same
                whether the unit takes part or not, as far as the protocol allows.

        Returns:
            For every outcome and every draw, the observations of the coalition that depend on the draw, by
            `ObservationKey`: ``[M]`` each.
        """

    def simulate_canaries(
        self, number: int, units: IntArray, updates: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Simulate one round or interval in which several devices send canaries, if they are drawn.

        Args:
            number: of the round or interval.
            units: some of `exchangeable_devices`, ascending, ``[n]``.
            updates: what each sends, of norm at most 1, in units of the largest message allowed, ``[n, M]``;
                coordinates are not trials here.
            seed: of everything random.

        Returns:
            For every device and every draw, the observations in the first outcome.
        """

    def scores_through_others(self, neighbours: Neighbours, *, trials: int, seed: int) -> TrialScores | None:
        """Scores of trials of a whole training in which others pass on what they learn of the unit.

        Args:
            neighbours: the relation between neighbouring data sets.
            trials: how many are held out, and how many tested, under each hypothesis.
            seed: of everything random.

        Returns:
            ``None`` where that is not simulated: messages of the unit reach the coalition themselves, or
            nobody passes anything on to it.
        """

"""What a protocol offers to an audit: rounds played with a target that sends what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
TARGET = -1
ObservationKey = tuple[int, int, str, int]
Observations = Mapping[ObservationKey, FloatArray]


@dataclass(frozen=True)
class TargetDraw:
    """One draw of participants that decides whether the unit sends.

    Attributes:
        rate: chance that the unit takes part in a round.
        visible: whether the observer sees whether it does.
        independent: whether others' draws say nothing about the unit's.
    """

    rate: float
    visible: bool
    independent: bool = True


@dataclass(frozen=True)
class ElectionOutcome:
    """What the elections of a piece may make of the coalition; every trial draws one of the outcomes.

    Attributes:
        probability: of this outcome, given all else that is public.
        draws: draws of participants that decide whether the unit sends; each governs some of what is heard.
    """

    probability: float
    draws: tuple[TargetDraw, ...]


class AuditHarness(Protocol):
    """A plan's rounds, with one unit as the target and one coalition that listens.

    Every coordinate of what is played is a trial of its own: noise is independent from coordinate to
    coordinate, and sums and averages do not mix them, so a model of M parameters whose every coordinate is
    bounded by C shows M independent runs of the mechanism that bounds one coordinate by C: its worst case,
    a message of norm C along one direction, whatever the dimension.
    """

    @property
    def rounds(self) -> int:
        """Number of pieces that the training falls into, independent of each other given what was seen."""

    @property
    def exchangeable_devices(self) -> IntArray:
        """Units that stand exactly as the unit does, itself included, the coalition's members not."""

    def outcomes(self, number: int, seed: int) -> tuple[ElectionOutcome, ...]:
        """What the coalition may come to hear in a piece played with ``seed``.

        Outcomes differ in which offices its members hold, and agree in the number of draws; their chances
        add up to 1. The first is the one in which members hold no office.
        """

    def simulate(
        self, number: int, *, taking_part: bool, signs: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Play one piece.

        Args:
            number: of the piece.
            taking_part: whether the unit is among the participants, of all draws.
            signs: of what it sends in each trial, in units of the largest message allowed, ``[M]``.
            seed: of everything random. Who else takes part, drops out and is elected is the same whether the
                unit takes part or not, as far as the protocol lets it be.

        Returns:
            For every outcome and every draw, what the coalition heard that depends on the draw, by when,
            where, how and whose (the unit's own: `THE_UNIT`): ``[M]`` each.
        """

    def simulate_canaries(
        self, number: int, units: IntArray, updates: Tensor, seed: int
    ) -> tuple[tuple[Observations, ...], ...]:
        """Play one piece in which several mates send something of their own, where they are drawn.

        Args:
            number: of the piece.
            units: some of the mates, ascending, ``[n]``.
            updates: what each sends, of norm 1 at most, in units of the largest message allowed, ``[n, M]``;
                a coordinate is no trial here.
            seed: of everything random.

        Returns:
            For every one of them and every draw, what was heard in the first outcome.
        """

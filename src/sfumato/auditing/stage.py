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
THE_UNIT = -1
Key = tuple[int, int, str, int]
Heard = Mapping[Key, FloatArray]


@dataclass(frozen=True)
class UnitDraw:
    """One draw of participants that decides whether the unit sends.

    Attributes:
        rate: chance that the unit takes part in a round.
        seen: whether the observer sees whether it does.
        independent: whether others' draws say nothing about the unit's.
    """

    rate: float
    seen: bool
    independent: bool = True


class Stage(Protocol):
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
    def draws(self) -> tuple[UnitDraw, ...]:
        """Draws in a piece that decide whether the unit sends; each governs some of what is heard."""

    @property
    def mates(self) -> IntArray:
        """Units that stand exactly as the unit does, itself included, the coalition's members not."""

    def play(self, number: int, *, taking_part: bool, signs: Tensor, seed: int) -> tuple[Heard, ...]:
        """Play one piece.

        Args:
            number: of the piece.
            taking_part: whether the unit is among the participants, of all draws.
            signs: of what it sends in each trial, in units of the largest message allowed, ``[M]``.
            seed: of the noise, and of the draws, which are drawn again until the unit is in or out as asked.

        Returns:
            For every draw, what the coalition heard that depends on it, by when, where, how and whose (the
            unit's own: `THE_UNIT`): ``[M]`` each.
        """

    def play_together(
        self, number: int, units: IntArray, updates: Tensor, seed: int
    ) -> tuple[tuple[Heard, ...], ...]:
        """Play one piece in which several mates send something of their own, where they are drawn.

        Args:
            number: of the piece.
            units: some of the mates, ascending, ``[n]``.
            updates: what each sends, of norm 1 at most, in units of the largest message allowed, ``[n, M]``;
                a coordinate is no trial here.
            seed: of the noise and the draws.

        Returns:
            For every one of them, what `play` returns for the unit.
        """

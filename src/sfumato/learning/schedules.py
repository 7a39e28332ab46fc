"""Learning-rate schedules: the rate of a round, as a pure function of it. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from sfumato.errors import SpecError


class LearningRate(Protocol):
    """A learning-rate schedule."""

    def at(self, round_: int) -> float:
        """The rate of round ``round_``, counted from 0."""


@dataclass(frozen=True)
class Constant:
    """``initial`` in every round."""

    initial: float

    def __post_init__(self) -> None:
        _check_rate("initial", self.initial)

    def at(self, round_: int) -> float:
        """The rate of round ``round_``, counted from 0."""
        return self.initial


@dataclass(frozen=True)
class InverseSqrt:
    """``initial / sqrt(k + 1)`` in round k."""

    initial: float

    def __post_init__(self) -> None:
        _check_rate("initial", self.initial)

    def at(self, round_: int) -> float:
        """The rate of round ``round_``, counted from 0."""
        return self.initial / math.sqrt(round_ + 1)


@dataclass(frozen=True)
class Step:
    """``initial * decay ** (k // every)`` in round k."""

    initial: float
    decay: float
    every: int

    def __post_init__(self) -> None:
        _check_rate("initial", self.initial)
        _check_decay(self.decay)
        _check_rounds("every", self.every)

    def at(self, round_: int) -> float:
        """The rate of round ``round_``, counted from 0."""
        return self.initial * self.decay ** (round_ // self.every)


@dataclass(frozen=True)
class Exponential:
    """``initial * decay ** k`` in round k."""

    initial: float
    decay: float

    def __post_init__(self) -> None:
        _check_rate("initial", self.initial)
        _check_decay(self.decay)

    def at(self, round_: int) -> float:
        """The rate of round ``round_``, counted from 0."""
        return self.initial * self.decay**round_


@dataclass(frozen=True)
class Cosine:
    """``final + (initial - final) (1 + cos(pi k / rounds)) / 2`` in round k, ``final`` from ``rounds`` on."""

    initial: float
    rounds: int
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_rate("initial", self.initial)
        _check_rounds("rounds", self.rounds)
        if not (math.isfinite(self.final) and self.final >= 0):
            raise SpecError("training.learning_rate.final", self.final, "must be a finite number, 0 or more")

    def at(self, round_: int) -> float:
        """The rate of round ``round_``, counted from 0."""
        progress = min(round_ / self.rounds, 1.0)
        return self.final + (self.initial - self.final) * (1 + math.cos(math.pi * progress)) / 2


def _check_rate(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise SpecError(f"training.learning_rate.{name}", value, "must be a positive finite number")


def _check_decay(value: float) -> None:
    if not 0 < value <= 1:
        raise SpecError("training.learning_rate.decay", value, "must lie in (0, 1]")


def _check_rounds(name: str, value: int) -> None:
    if value < 1:
        raise SpecError(f"training.learning_rate.{name}", value, "must be at least 1")

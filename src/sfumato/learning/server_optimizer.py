"""What a server does with the averaged update: SGD with momentum, or Adam. Post-processing, so free of ε.

State in, state out: nothing here is changed in place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sfumato.errors import SpecError


@dataclass(frozen=True)
class ServerState:
    """What a server optimizer remembers between rounds.

    Attributes:
        rounds: how many updates it has applied.
        moments: tensors ``[M]``: the momentum of SGD (none without momentum), both moments of Adam.
    """

    rounds: int
    moments: tuple[Tensor, ...]


class ServerOptimizer(Protocol):
    """Turns averaged updates into models."""

    def initial(self, model: Tensor) -> ServerState:
        """The state before the first update of a model ``[M]``."""

    def step(self, state: ServerState, model: Tensor, update: Tensor) -> tuple[ServerState, Tensor]:
        """The next state, and a new model after an averaged update; no argument is changed.

        Args:
            state: that the step before returned, or that of `initial`.
            model: ``[M]``.
            update: the mean of what devices changed, new minus old, ``[M]``.
        """


@dataclass(frozen=True)
class ServerSGD:
    """``v <- momentum v + update``, ``model <- model + learning_rate v``; plain averaging by default.

    Raises:
        SpecError: the rate is not positive, or the momentum not in [0, 1).
    """

    learning_rate: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_decay("momentum", self.momentum)

    def initial(self, model: Tensor) -> ServerState:
        """The state before the first update of a model ``[M]``."""
        return ServerState(0, (torch.zeros_like(model),) if self.momentum else ())

    def step(self, state: ServerState, model: Tensor, update: Tensor) -> tuple[ServerState, Tensor]:
        """The next state, and a new model after an averaged update; no argument is changed.

        Args:
            state: that the step before returned, or that of `initial`.
            model: ``[M]``.
            update: the mean of what devices changed, new minus old, ``[M]``.
        """
        if not self.momentum:
            return ServerState(state.rounds + 1, ()), model + self.learning_rate * update
        velocity = self.momentum * state.moments[0] + update
        return ServerState(state.rounds + 1, (velocity,)), model + self.learning_rate * velocity


@dataclass(frozen=True)
class ServerAdam:
    """FedAdam: Adam (Kingma and Ba 2015, with bias correction) on minus the averaged update.

    Raises:
        SpecError: the rate or epsilon is not positive, or a beta not in [0, 1).
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_decay("beta1", self.beta1)
        _check_decay("beta2", self.beta2)
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise SpecError("server.epsilon", self.epsilon, "must be a positive finite number")

    def initial(self, model: Tensor) -> ServerState:
        """The state before the first update of a model ``[M]``."""
        return ServerState(0, (torch.zeros_like(model), torch.zeros_like(model)))

    def step(self, state: ServerState, model: Tensor, update: Tensor) -> tuple[ServerState, Tensor]:
        """The next state, and a new model after an averaged update; no argument is changed.

        Args:
            state: that the step before returned, or that of `initial`.
            model: ``[M]``.
            update: the mean of what devices changed, new minus old, ``[M]``.
        """
        rounds = state.rounds + 1
        first = self.beta1 * state.moments[0] + (1 - self.beta1) * update
        second = self.beta2 * state.moments[1] + (1 - self.beta2) * update.square()
        scale = (second / (1 - self.beta2**rounds)).sqrt_().add_(self.epsilon)
        rate = self.learning_rate / (1 - self.beta1**rounds)
        return ServerState(rounds, (first, second)), model + rate * first / scale


def _check_rate(value: float) -> None:
    """Raise `SpecError` unless ``value``, the learning rate, is positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise SpecError("server.learning_rate", value, "must be a positive finite number")


def _check_decay(name: str, value: float) -> None:
    """Raise `SpecError` unless ``value`` is in [0, 1); ``name``: of the key below ``server``."""
    if not 0 <= value < 1:
        raise SpecError(f"server.{name}", value, "must lie in [0, 1)")

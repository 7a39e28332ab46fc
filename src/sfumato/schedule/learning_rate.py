"""Step size of the local steps, round by round."""

from __future__ import annotations

import math

from sfumato.spec.training import (
    ConstantRate,
    CosineRate,
    ExponentialRate,
    InverseSqrtRate,
    StepRate,
    Training,
)


def learning_rate(training: Training, round_number: int) -> float:
    """Step size in round ``round_number`` (from 0)."""
    rate = training.learning_rate
    match rate:
        case ConstantRate():
            return rate.initial
        case InverseSqrtRate():
            return rate.initial / math.sqrt(round_number + 1)
        case ExponentialRate():
            return float(rate.initial * rate.decay**round_number)
        case StepRate():
            return float(rate.initial * rate.decay ** (round_number // rate.every))
        case CosineRate():
            done = round_number / training.rounds  # `final` is what would come next, so it may be 0
            return rate.final + (rate.initial - rate.final) * (1 + math.cos(math.pi * done)) / 2
        case _:
            return float(rate)


def momentum_gain(steps: int, momentum: float) -> float:
    """How far ``steps`` clipped steps of SGD with momentum can go, in steps times clip norm.

    The buffer starts at zero: ``sum_j (steps - j) momentum**j``; ``steps`` without momentum.
    """
    return float(sum((steps - j) * momentum**j for j in range(steps)))

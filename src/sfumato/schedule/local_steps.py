"""The local steps of a round: how long each is, how far they go together, and who aggregates after which."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.spec.base import WrittenPerEdge
from sfumato.spec.training import (
    ConstantRate,
    CosineRate,
    ExponentialRate,
    InverseSqrtRate,
    StepRate,
    Training,
)

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def learning_rate(training: Training, round_number: int) -> float:
    """The step size in round ``round_number`` (k, from 0) by the schedule of ``training``.

    A number alone or ``constant``: the same in every round. ``inverse-sqrt``: initial / sqrt(k + 1).
    ``exponential``: initial * decay**k. ``step``: initial * decay**(k // every). ``cosine``: from initial at
    k = 0 along half a cosine to final, which the round after the last would have.
    """
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
    """How far ``steps`` clipped SGD steps can go together, in units of step size times clip norm.

    It is ``sum_j (steps - j) momentum**j``, for a momentum buffer that starts at zero; ``steps`` without
    momentum.

    Args:
        steps: number of clipped steps, at least 0.
        momentum: of SGD, in [0, 1).
    """
    return float(sum((steps - j) * momentum**j for j in range(steps)))


@dataclass(frozen=True)
class Aggregation:
    """One aggregation of a round.

    Attributes:
        step: local steps done since the round began.
        tier: whose nodes aggregate; 0 is the cloud.
        local_steps: local steps since the previous aggregation: what one message holds, at most.
        of_edge: where edges differ, the local steps that a message to each holds; 0 for an edge that takes
            no part. Empty: ``local_steps`` for all.
        edge_broadcasts: at a global aggregation, which edges broadcast their own average too. Empty: none.
    """

    step: int
    tier: int
    local_steps: int
    of_edge: tuple[int, ...] = ()
    edge_broadcasts: tuple[bool, ...] = ()

    def title(self, names: Sequence[str]) -> str:
        """The aggregation in words, such as ``global aggregation at step 10``; ``names``: of the tiers."""
        who = "global" if self.tier == 0 else names[self.tier]
        return f"{who} aggregation at step {self.step}"

    def steps_of(self, leaves: int) -> IntArray:
        """Local steps in a message to each of ``leaves`` leaves, ``[leaves]``; 0 for one that sends none."""
        if self.of_edge:
            return np.array(self.of_edge, dtype=np.int64)
        return np.full(leaves, self.local_steps, dtype=np.int64)

    def takes_part(self, leaves: int) -> BoolArray:
        """Which of ``leaves`` leaves send a message in this aggregation, ``[leaves]``."""
        return self.steps_of(leaves) > 0


def aggregations(steps: int, periods: Sequence[int]) -> tuple[Aggregation, ...]:
    """The aggregations of a round of ``steps`` local steps, in order; the global one comes last.

    Args:
        steps: of a round, at least 1.
        periods: local steps between aggregations of each tier below the cloud, top down. Where several fall
            on one step only the highest tier's happens, as it brings everybody below together.
    """
    done: list[Aggregation] = []
    previous = 0
    for step in range(1, steps + 1):
        due = [tier for tier, period in enumerate(periods, start=1) if step % period == 0]
        if step == steps or due:
            done.append(Aggregation(step, 0 if step == steps else min(due), step - previous))
            previous = step
    return tuple(done)


def edge_aggregations(
    steps: int, periods: Sequence[int], *, edge_at_global: bool = False
) -> tuple[Aggregation, ...]:
    """The aggregations of a round in which each edge under the cloud has a period of its own, in order.

    Every step at which an edge's period ends has an aggregation of these edges only. The last step has the
    global one, of all edges.

    Args:
        steps: of a round.
        periods: local steps between the aggregations of each edge.
        edge_at_global: whether edges whose period ends at the last step broadcast their own average too.
    """
    every = np.array(periods, dtype=np.int64)
    due_at = sorted({step for period in set(periods) for step in range(period, steps, period)} | {steps})
    done, previous = [], np.zeros_like(every)
    for step in due_at:
        due = every > 0 if step == steps else step % every == 0
        held = np.where(due, step - previous, 0)
        previous = np.where(due, step, previous)
        alike = bool((held == held[0]).all())
        both = edge_at_global and step == steps and steps % every == 0
        done.append(
            Aggregation(
                step,
                0 if step == steps else 1,
                int(held.max()),
                () if alike else tuple(held.tolist()),
                tuple(np.broadcast_to(both, every.shape).tolist()) if np.any(both) else (),
            )
        )
    return tuple(done)


def training_aggregations(training: Training, depth: int, edges: int = 1) -> tuple[Aggregation, ...]:
    """The aggregations of a round that ``training`` asks for on a tree of ``depth`` tiers.

    With ``local_epochs`` a round is one piece of work, counted as one step.

    Args:
        training: resolved: periods of edges that differ are listed.
        depth: of the tree.
        edges: how many there are; one stands for all where they have one period.
    """
    steps = training.local_steps or 1
    if training.aggregate_every is not None:
        return aggregations(steps, training.aggregate_every)
    if depth == 2 and training.edge_every is not None:
        periods = per_edge(training.edge_every, edges)
        return edge_aggregations(steps, periods, edge_at_global=bool(training.edge_at_global))
    return aggregations(steps, (steps,) * (depth - 1))


def per_edge(value: WrittenPerEdge, edges: int) -> tuple[int, ...]:
    """``value`` as a tuple with one number for each of ``edges`` edges; a single number is repeated."""
    assert not isinstance(value, Mapping)  # `listed` came before
    return (value,) * edges if isinstance(value, int) else value

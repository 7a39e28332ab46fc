"""What happens when in a round of the tiered protocol: which tier aggregates after which local step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.spec.training import Training


@dataclass(frozen=True)
class Aggregation:
    """One aggregation of a round.

    Attributes:
        step: local steps done since the round began.
        tier: whose nodes aggregate; 0 is the cloud.
        local_steps: local steps since the previous aggregation: what one message holds.
    """

    step: int
    tier: int
    local_steps: int

    def title(self, names: Sequence[str]) -> str:
        """For people."""
        who = "global" if self.tier == 0 else names[self.tier]
        return f"{who} aggregation at step {self.step}"


def aggregations(steps: int, periods: Sequence[int]) -> tuple[Aggregation, ...]:
    """The aggregations of a round of ``steps`` local steps.

    ``periods`` are local steps between aggregations of the tiers below the cloud, top down. Where
    several fall on one step only the highest tier's happens, as it brings everybody below together.
    """
    done: list[Aggregation] = []
    previous = 0
    for step in range(1, steps + 1):
        due = [tier for tier, period in enumerate(periods, start=1) if step % period == 0]
        if step == steps or due:
            done.append(Aggregation(step, 0 if step == steps else min(due), step - previous))
            previous = step
    return tuple(done)


def of_training(training: Training, depth: int) -> tuple[Aggregation, ...]:
    """The aggregations that ``training`` asks for on a tree of ``depth`` tiers.

    With ``local_epochs`` a round is one piece of work, counted as one step.
    """
    steps = training.local_steps or 1
    if training.aggregate_every is not None:
        periods = training.aggregate_every
    else:
        periods = (training.edge_every or steps,) if depth == 2 else (steps,) * (depth - 1)
    return aggregations(steps, periods)

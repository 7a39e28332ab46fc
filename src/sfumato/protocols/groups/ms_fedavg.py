"""MS-FedAvg: every group averages the models of its sampled workers; nothing is clipped or noised."""

from __future__ import annotations

import numpy as np
import torch

from sfumato.learning.norms import drop_non_finite_
from sfumato.protocols.base import RoundStats
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.groups.state import GroupedState
from sfumato.schedule.group_participation import draw_assignments, without_lost


def run_round(operations: GroupOperations, state: GroupedState) -> tuple[GroupedState, RoundStats]:
    """Run one round of FedAvg with several servers, without clipping and noise.

    Every worker starts from the mean of the models of its groups. Each group's model becomes the mean of the
    models that its master receives; it stays as it is where none is received.

    Args:
        operations: of the groups of this round.
        state: before the round.

    Returns:
        The state after the round, and its measurements.
    """
    number = state.round
    assignments = draw_assignments(operations.plan, number)
    start, start_of = operations.start(state.models, assignments, merge=True)
    start = start.to(operations.device)
    sums = operations.sums(number, clipped=False)
    for rows, updates in operations.train(assignments, start, start_of, number):
        drop_non_finite_(updates, operations.norms_of(updates))
        updates += start[start_of[rows].to(operations.device)]
        operations.hand_over_(updates, assignments, rows, number, sums)
    received = without_lost(assignments, operations.turnout(number))
    values = operations.values(sums)
    sampled = np.bincount(received.groups, minlength=len(values))
    counts = torch.from_numpy(sampled).to(operations.device)[:, None]
    models = torch.where(counts > 0, values / counts.clamp(min=1), state.models).float()
    operations.tell_received(values, number)
    operations.tell_broadcast(models, number)
    return GroupedState(number + 1, models), operations.stats(number, assignments, None)

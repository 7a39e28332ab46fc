"""DP-OGL, Algorithm 1 of the paper: every round samples workers anew and ends in one noised release."""

from __future__ import annotations

from sfumato.protocols.base import RoundStats
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.groups.state import GroupedState
from sfumato.schedule.group_participation import draw_assignments


def run_round(operations: GroupOperations, state: GroupedState) -> tuple[GroupedState, RoundStats]:
    """Run one round of DP-OGL (Algorithm 1 of the paper): one sample of workers and one noised release.

    Args:
        operations: of the groups of this round.
        state: before it.

    Returns:
        The state after it, and its measurements.

    Raises:
        EnvelopeError: a message exceeds what the plan declared.
    """
    plan, number = operations.plan, state.round
    assignments = draw_assignments(plan, number)
    start, start_of = operations.start(state.models, assignments, merge=number % plan.merge_every == 0)
    sums, clipped = operations.sums(number), 0
    for rows, updates in operations.train(assignments, start, start_of, number):
        clipped += operations.send_(updates, assignments, rows, number, sums, base=state.models)
    server, models = operations.release(state.server, state.models, sums, number)
    after = GroupedState(number + 1, models, server=server)
    return after, operations.stats(number, assignments, clipped)

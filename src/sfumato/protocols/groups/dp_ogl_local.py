"""dp-ogl-local: one sample an interval; workers train alone and send one update at its end."""

from __future__ import annotations

from dataclasses import replace

from sfumato.protocols.base import RoundStats
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.groups.state import GroupedState
from sfumato.schedule.group_participation import draw_assignments


def run_round(operations: GroupOperations, state: GroupedState) -> tuple[GroupedState, RoundStats]:
    """Run one round of DP-OGL where workers train alone for an interval and send one clipped update.

    The work is done in the interval's last round, with the step size of its first; in the others nothing is
    sent, and nothing changes.

    Args:
        operations: of the groups of this round.
        state: before it.

    Returns:
        The state after it, and its measurements.

    Raises:
        EnvelopeError: a message exceeds what the plan declared.
    """
    plan, number = operations.plan, state.round
    began = plan.interval_start(number)
    assignments = draw_assignments(plan, began)
    if not plan.sends_in(number):
        after = replace(state, round=number + 1)
        return after, operations.stats(number, assignments, None, silent=True)
    start, start_of = operations.start(state.models, assignments, merge=True)
    sums, clipped = operations.sums(number), 0
    for rows, updates in operations.train(assignments, start, start_of, began, rounds=plan.merge_every):
        clipped += operations.send_(updates, assignments, rows, number, sums, base=state.models)
    server, models = operations.release(state.server, state.models, sums, number)
    after = GroupedState(number + 1, models, server=server)
    return after, operations.stats(number, assignments, clipped)

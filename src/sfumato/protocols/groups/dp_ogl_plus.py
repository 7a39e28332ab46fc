"""DP-OGL+: one sample an interval, steps without noise inside it, and one noised release at its end."""

from __future__ import annotations

from sfumato.learning.norms import drop_non_finite_, row_norms
from sfumato.protocols.base import RoundStats
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.groups.state import GroupedState
from sfumato.schedule.group_participation import draw_assignments


def run_round(operations: GroupOperations, state: GroupedState) -> tuple[GroupedState, RoundStats]:
    """Run one round of DP-OGL+: steps without noise (11), and in an interval's last round a noised release.

    Workers are sampled once an interval; the release is by (12) and (13) of the paper.

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
    start, start_of = operations.start(state.models, assignments, merge=number == began)
    base = state.models if state.base is None else state.base
    gathered = operations.zero_vectors() if state.gathered is None else state.gathered.copy()
    releasing, clipped = plan.releases_after(number), 0
    sums = operations.sums(number, clipped=releasing)
    for rows, updates in operations.train(assignments, start, start_of, number, vectors=gathered):
        drop_non_finite_(updates, row_norms(updates))
        whole = updates if state.gathered is None else updates + gathered.of(rows)
        if releasing:
            clipped += operations.send_(whole, assignments, rows, number, sums)
        else:
            gathered.write_(rows, whole)
            operations.hand_over_(updates, assignments, rows, number, sums)
    if not releasing:
        received = operations.values(sums)
        models = state.models + operations.averages(received)
        operations.tell_received(received, number)
        operations.tell_broadcast(models, number)
        # until the release, updates count from the models that the interval began with
        inside = GroupedState(number + 1, models, base, gathered, state.server)
        return inside, operations.stats(number, assignments, None)
    server, models = operations.release(state.server, base, sums, number)
    after = GroupedState(number + 1, models, server=server)
    return after, operations.stats(number, assignments, clipped)

"""Which workers the groups sample in a round, and whose messages get through where workers drop out.

The draw follows from the seed, never from data: whoever asks draws the same, so a resumed run loses the same
messages. Every group draws for its workers in a stream of its own, ``(round, group)``, a row for every worker
of the group, whether it takes part or not.

Under secure aggregation a session below its threshold ends without a sum. Then the group has nothing to
release: its master adds no noise, and its average counts as no change. Sums are divided by the same public
numbers whoever is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from sfumato.random import Stream, generator
from sfumato.schedule.faults.dropouts import DROPOUTS, PHASES, dropout_phases, session_has_sum
from sfumato.schedule.groups import HOP, GroupPlan
from sfumato.schedule.participation import threshold_of
from sfumato.secure_aggregation.server import Phase

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupAssignments:
    """Who was sampled by which group; groups ascend, workers ascend inside a group.

    Attributes:
        workers: ``[assignments]``.
        groups: ``[assignments]``.
    """

    workers: IntArray
    groups: IntArray


def draw_assignments(plan: GroupPlan, number: int) -> GroupAssignments:
    """Draw the workers that each group samples for round ``number`` (from 0), or for the interval it begins.

    Every group draws from a stream of its own, ``(number, group)``.

    Returns:
        Pairs of a worker and a group, sorted by group, then worker; all workers of a group where nothing is
        drawn.
    """
    chosen = []
    for group in range(plan.groups.count):
        members, rate = plan.groups.members_of(group), float(plan.rates[group])
        if plan.drawn:
            members = plan.drawn[group]
        elif plan.cohort or rate < 1:
            rng = generator(plan.spec.seed, Stream.PARTICIPATION, number, group)
            if plan.cohort:
                members = np.sort(rng.choice(members, size=plan.cohort[group], replace=False))
            else:
                members = members[rng.random(len(members)) < rate]
        chosen.append(members)
    sizes = [len(members) for members in chosen]
    return GroupAssignments(np.concatenate(chosen), np.repeat(np.arange(len(chosen), dtype=np.int64), sizes))


BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GroupTurnout:
    """What became of the messages of a round, one for each assignment.

    Attributes:
        drawn: messages that were to be in every group's sum, ``[M]``.
        sent: which were sent.
        received: which are in a sum.
        formed: which groups have a sum, ``[M]``.
        counts: messages in every group's sum, ``[M]``.
    """

    drawn: IntArray
    sent: BoolArray
    received: BoolArray
    formed: BoolArray
    counts: IntArray


@lru_cache(maxsize=1)
def group_turnout(plan: GroupPlan, number: int) -> GroupTurnout | None:
    """Which messages of round ``number`` (from 0) are sent and summed; ``None`` if none can be lost.

    They are of the workers drawn for the round or, with intervals, for the interval that it is in.
    """
    faults = plan.spec.faults
    if faults is None or not any(faults.drop_rates):
        return None
    seats = draw_assignments(plan, plan.interval_start(number) if plan.by_interval else number)
    sent, received = (np.zeros(len(seats.workers), dtype=np.bool_) for _ in range(2))
    formed = np.ones(plan.groups.count, dtype=np.bool_)
    starts = np.searchsorted(seats.groups, np.arange(plan.groups.count + 1))
    for group in range(plan.groups.count):
        here = slice(int(starts[group]), int(starts[group + 1]))
        phases = _draw_dropout_phases(plan, number, group, seats.workers[here])
        parties = here.stop - here.start
        sent[here] = phases > Phase.MASK
        if plan.spec.transport.get(HOP) == "secure-aggregation" and parties > 1:
            formed[group] = session_has_sum(phases, threshold_of(faults, parties))
        received[here] = sent[here] & formed[group]
    counts = np.bincount(seats.groups[received], minlength=plan.groups.count).astype(np.int64)
    return GroupTurnout(np.diff(starts), sent, received, formed, counts)


def _draw_dropout_phases(plan: GroupPlan, number: int, group: int, workers: IntArray) -> IntArray:
    """The phase of round ``number`` from which each of a group's ``workers`` is silent, ``[workers]``.

    They are those of `dropout_phases`, drawn by the spec's seed. ``workers``: those that ``group`` has drawn.
    """
    faults, members = plan.spec.faults, plan.groups.members_of(group)
    assert faults is not None
    draws = generator(plan.spec.seed, Stream.FAULTS, DROPOUTS, number, group).random(
        (len(members), len(PHASES))
    )
    return dropout_phases(faults, draws[np.searchsorted(members, workers)])


def without_lost(assignments: GroupAssignments, turnout: GroupTurnout | None) -> GroupAssignments:
    """The assignments whose messages are in a sum by ``turnout``; all of them if it is ``None``."""
    if turnout is None:
        return assignments
    kept = turnout.received
    return GroupAssignments(assignments.workers[kept], assignments.groups[kept])

"""Which workers the groups sample in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sfumato.random import Stream, generator
from sfumato.schedule.groups import GroupPlan

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
    """Who is sampled by which group in the round, or in the interval that begins with round, ``number``.

    Every group draws from a stream of its own, ``(number, group)``.
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

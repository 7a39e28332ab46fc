"""Who takes part in a round: the same draw for whoever plays, prices or audits it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sfumato.random import Stream, generator
from sfumato.schedule.tree import TreePlan


def draw_participants(plan: TreePlan, number: int) -> npt.NDArray[np.int64]:
    """Devices that take part in round ``number``, ascending: drawn, unless the plan says who they are."""
    tree, participants = plan.tree, plan.participants
    if participants.cohort is not None:
        return participants.cohort
    if participants.kind == "all":
        return np.arange(tree.device_count, dtype=np.int64)
    rng = generator(plan.spec.seed, Stream.PARTICIPATION, number)
    if participants.kind == "poisson":
        return np.flatnonzero(rng.random(tree.device_count) < participants.rate).astype(np.int64)
    counts = participants.drawn.astype(np.int64)
    chosen = [
        first + np.sort(rng.choice(size, size=count, replace=False))
        for first, size, count in zip(tree.first_device[:-1], tree.devices, counts, strict=True)
    ]
    return np.concatenate(chosen).astype(np.int64)

"""A variant of a grouped protocol: DP-OGL whose masters shrink what noise has made too long.

After importing this module specs may say ``protocol: shrunk-dp-ogl``. A round is that of DP-OGL, but every
master scales the noised average of its group down, as James and Stein do. Noise of variance v
a coordinate adds about v P to the squared norm of P coordinates, so the average y is multiplied
by max(0, 1 - v P / |y|^2). That is computed from the released sum and public numbers only, so the variant is
accounted for as DP-OGL is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sfumato.protocols.base import RoundStats
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.groups.state import GroupedState
from sfumato.protocols.registry import register_grouped
from sfumato.schedule.group_participation import draw_assignments


def run_round(operations: GroupOperations, state: GroupedState) -> tuple[GroupedState, RoundStats]:
    """One sample and one noised release, which masters shrink before they send models to their workers."""
    plan, number = operations.plan, state.round
    assignments = draw_assignments(plan, number)
    start, start_of = operations.start(state.models, assignments, merge=number % plan.merge_every == 0)
    sums, clipped = operations.sums(number), 0
    for rows, updates in operations.train(assignments, start, start_of, number):
        clipped += operations.send_(updates, assignments, rows, number, sums)
    variance = torch.from_numpy(plan.model_noise_std(number) ** 2).to(state.models)
    models = state.models + shrunk(operations.noised_averages(sums, number), variance)
    operations.tell_broadcast(models, number)
    return GroupedState(number + 1, models), operations.stats(number, assignments, clipped)


def shrunk(averages: Tensor, variance: Tensor) -> Tensor:
    """Noised averages ``[M, P]``, scaled down by what noise of ``variance`` ``[M]`` adds to their squares."""
    squares = averages.square().sum(dim=1)
    factors = (1 - variance * averages.shape[1] / squares.clamp(min=1e-30)).clamp(min=0)
    return averages * factors[:, None]


register_grouped("shrunk-dp-ogl", run_round, releases_of="dp-ogl")

"""What `run` draws for workers and masters of groups, and `run` of groups on the grid of a deployment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from sfumato.deployment.messages import RoundPosition
from sfumato.deployment.worker_data import mean_of_groups
from sfumato.learning.batches import BatchPlan
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.tree.local_work import draw_batches
from sfumato.random import Stream, key_at
from sfumato.schedule.group_participation import GroupAssignments, draw_assignments
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.integer_grid import group_integer_grid
from sfumato.secure_aggregation.encoding import encode
from sfumato.simulation.training_inputs import TrainingInputs


def rows_from_0(drawn: BatchPlan, rows: npt.NDArray[np.int64], size: int) -> BatchPlan:
    """Mini-batches of rows of the data set as those of the rows that one device holds, from 0."""
    place = torch.zeros(int(rows.max()) + 1, dtype=torch.int32)
    place[torch.from_numpy(rows)] = torch.arange(size, dtype=torch.int32)
    used = torch.arange(drawn.width) < drawn.counts[:, :, None]
    return replace(drawn, rows=torch.where(used, place[torch.where(used, drawn.rows, int(rows[0]))], 0))


@dataclass
class SimulatedGroupRandomness:
    """What `run` draws for one party of groups: whoever knows the seed knows every secret."""

    plan: GroupPlan
    inputs: TrainingInputs
    party: int
    source = "injected"

    def noise_key(self, position: RoundPosition, context: bytes = b"") -> bytes:
        own = (self.party,) if self.party < self.plan.groups.workers else ()
        return key_at(self.plan.spec.seed, Stream.NOISE, *position, *own)

    def batches(self, plan: GroupPlan, number: int, size: int, times: int, context: bytes = b"") -> BatchPlan:
        """As `GroupOperations` draws them: for all assignments of a round together."""
        training, partition = plan.spec.training, self.inputs.partition
        began, rounds = (plan.interval_start(number), plan.merge_every) if plan.by_interval else (number, 1)
        every = draw_assignments(plan, began)
        drawn = draw_batches(
            training,
            [partition.indices(int(worker)) for worker in every.workers],
            list(zip(every.groups.tolist(), every.workers.tolist(), strict=True)),
            steps=(training.local_steps or 1) * rounds,
            passes=rounds,
            seed=plan.spec.seed,
            stream=Stream.BATCHES if training.batches == "shuffled" else Stream.POISSON_BATCHES,
            address=(began,),
        )
        own = drawn.of(torch.from_numpy(np.flatnonzero(every.workers == self.party)))
        assert own.devices == times
        return rows_from_0(own, partition.indices(self.party), size)


@dataclass
class IntegerSums:
    """What masters add up in a round, whole numbers on the grid of each."""

    steps: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)


def send_on_the_grid(
    self: GroupOperations,
    updates: Tensor,
    assignments: GroupAssignments,
    rows: npt.NDArray[np.int64],
    number: int,
    sums: IntegerSums,
    *,
    base: Tensor | None = None,
) -> int:
    """`GroupOperations.send_`, which encodes messages instead of noising them in floating point."""
    plan, groups, workers = self.plan, assignments.groups[rows], assignments.workers[rows]
    clipped = self._clip_(updates, groups)
    for update, group, worker in zip(updates.numpy(), groups.tolist(), workers.tolist(), strict=True):
        grid = group_integer_grid(plan, number, group, self.parameters)
        std = 0.0 if plan.trusted[group] else float(plan.noise_std(number)[group])
        how = grid.device_rounding(0, float(plan.bounds[group]), std)
        share = update.astype(np.float64) * grid.shares[0]
        steps = encode(share, how, self._noise_key(number, group, worker)).view(np.int64)
        sums.steps[group] = sums.steps.get(group, np.zeros_like(steps)) + steps
    return clipped


def averages_on_the_grid(
    self: GroupOperations, messages: IntegerSums, number: int, *, base: Tensor | None = None
) -> Tensor:
    """`GroupOperations.noised_averages` of whole numbers."""
    plan, averages = self.plan, []
    for group in range(plan.groups.count):
        grid, total = group_integer_grid(plan, number, group, self.parameters), messages.steps[group][None]
        if plan.trusted[group]:
            of_average = float(plan.noise_std(number)[group]) / float(plan.denominators[group])
            stds = np.array([grid.node_steps(0, 0, of_average)])
            key = self._noise_key(number, group)
            DiscreteGaussianNoise().add_(total, stds, lambda _, key=key: key)
        averages.append(torch.from_numpy(total[0] / grid.scale).float())
    return torch.stack(averages)


def merged_one_by_one(self: GroupOperations, models: Tensor) -> Tensor:
    """`GroupOperations.mean_of_groups`, which takes the mean for every class by itself, as workers do."""
    return torch.stack([mean_of_groups(models[own]) for own in self.plan.groups.classes.groups])


def put_groups_on_the_grid(patch: pytest.MonkeyPatch) -> None:
    """Let `run` of groups send whole numbers, as a deployment does."""
    changed: dict[str, Any] = {
        "mean_of_groups": merged_one_by_one,
        "send_": send_on_the_grid,
        "noised_averages": averages_on_the_grid,
        "sums": lambda self, number, *, clipped=True: IntegerSums(),
    }
    for name, function in changed.items():
        patch.setattr(GroupOperations, name, function)

"""An engine without training: devices send updates that are given in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.distributed.ranks import ALONE
from sfumato.engine.base import EngineSettings, LocalTask, UpdateChunk
from sfumato.learning.batches import BatchPlan

_CHUNK_FLOATS = 1 << 24
Answer = Callable[[Tensor, Tensor], Tensor]
"""What targets send ``[t, M]``, given the models that they train from ``[t, M]`` and what they would send."""


@dataclass(frozen=True)
class AnswerAbove:
    """How a device answers to what it finds in the model that it starts from.

    Attributes:
        above: it answers in the coordinates in which the model exceeds this.
        sends: what it sends there.
    """

    above: float
    sends: float

    def __call__(self, models: Tensor, updates: Tensor) -> Tensor:
        """Return ``updates`` with the answer in every coordinate in which ``models`` exceed the threshold.

        Both, and the result, are ``[p, M]``.
        """
        return torch.where(models > self.above, torch.full_like(updates, self.sends), updates)


class WorstCaseEngine:
    """Replaces the local engine in a simulation: all devices except the targets send one constant.

    Noise at local steps is the runtime's own.

    Args:
        targets: rows of the target devices among the devices that train, ``[t]``.
        updates: the targets' updates in every call of `train`, in order: ``[t, M]`` each.
        others: value of every coordinate of all other updates.
        answers: of the targets, in every call of `train`; empty where they do not look at models.
    """

    def __init__(
        self,
        targets: npt.NDArray[np.int64],
        updates: Iterable[Tensor],
        others: float = 0.0,
        answers: Iterable[Answer] = (),
    ) -> None:
        self.ranks = ALONE
        self.settings = EngineSettings("cpu", torch.get_num_threads(), _CHUNK_FLOATS * 4)
        self._targets = targets
        self._updates = iter(updates)
        self._others = others
        self._answers = iter(answers)

    def owners(self, task: LocalTask, batches: BatchPlan) -> list[npt.NDArray[np.int64]]:
        """One list with the numbers of all devices of ``batches``, as there is one rank.

        See `Engine.owners`.
        """
        return [np.arange(batches.devices)]

    def train(
        self,
        task: LocalTask,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        tiles: slice = slice(None),
    ) -> Iterator[UpdateChunk]:
        """Yield the given updates of all devices, each a tile, in chunks; arguments as of `Engine.train`.

        Nothing is trained: of the batches only their number and divisor matter.
        """
        update, devices = next(self._updates), len(group_of)
        answer = next(self._answers, None)
        if answer is not None:
            update = answer(start[group_of[torch.from_numpy(self._targets)]], update)
        every, each = np.arange(devices)[tiles], max(1, _CHUNK_FLOATS // update.shape[1])
        for first in range(0, len(every), each):
            rows = every[first : first + each]
            updates = torch.full((len(rows), update.shape[1]), self._others)
            here = np.flatnonzero(np.isin(self._targets, rows))
            places = np.searchsorted(rows, self._targets[here])
            updates[torch.from_numpy(places)] = update[torch.from_numpy(here)]
            _add_step_noise_(task, updates, rows, batches)
            quiet = torch.zeros(len(updates))
            clip = task.update_clip is not None
            yield UpdateChunk(rows, updates, quiet if clip else None, quiet.bool() if clip else None, quiet)


def _add_step_noise_(
    task: LocalTask, updates: Tensor, rows: npt.NDArray[np.int64], batches: BatchPlan
) -> None:
    """Add to ``updates`` ``[p, M]``, in place, the sum that noise at local steps, if any, leaves in each.

    ``rows``: indices ``[p]`` of the devices in ``batches``.
    """
    if task.step_noise is None:
        return
    add_ = task.step_noise.of(rows.tolist())
    velocity = torch.zeros_like(updates)
    for step in range(batches.rows.shape[1]):
        noise = torch.zeros_like(updates)
        add_(noise, step, batches.divisor or 1)
        velocity.mul_(task.sgd.momentum).add_(noise)
        updates.add_(velocity, alpha=-task.sgd.learning_rate)


def one_example_per_device(devices: int) -> Partition:
    """A partition that gives each of ``devices`` devices one example: row 0, the same for all."""
    return Partition(np.zeros(devices, dtype=np.int64), np.arange(devices + 1, dtype=np.int64))

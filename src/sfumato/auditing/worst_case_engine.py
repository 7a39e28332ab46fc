"""An engine without training: devices send updates that are given in advance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.data.partition import Partition
from sfumato.engine.base import EngineSettings, LocalTask, UpdateChunk
from sfumato.learning.batches import BatchPlan

_CHUNK_FLOATS = 1 << 24


class WorstCaseEngine:
    """Replaces the local engine in a simulation: all devices except the targets send one constant.

    Args:
        targets: rows of the target devices among the devices that train, ``[t]``.
        updates: the targets' updates in every call of `train`, in order: ``[t, M]`` each.
        others: value of every coordinate of all other updates.
    """

    def __init__(
        self, targets: npt.NDArray[np.int64], updates: Sequence[Tensor], others: float = 0.0
    ) -> None:
        self.settings = EngineSettings("cpu", torch.get_num_threads(), _CHUNK_FLOATS * 4)
        self._targets = targets
        self._updates = iter(updates)
        self._others = others

    def train(
        self, task: LocalTask, start: Tensor, group_of: Tensor, batches: BatchPlan
    ) -> Iterator[UpdateChunk]:
        """The updates of all devices, in chunks; the arguments give the number of devices."""
        update, devices = next(self._updates), len(group_of)
        each = max(1, _CHUNK_FLOATS // update.shape[1])
        for first in range(0, devices, each):
            rows = slice(first, min(first + each, devices))
            updates = torch.full((rows.stop - rows.start, update.shape[1]), self._others)
            here = np.flatnonzero((self._targets >= rows.start) & (self._targets < rows.stop))
            updates[torch.from_numpy(self._targets[here] - first)] = update[torch.from_numpy(here)]
            quiet = torch.zeros(len(updates))
            clip = task.update_clip is not None
            yield UpdateChunk(rows, updates, quiet if clip else None, quiet.bool() if clip else None, quiet)


def one_example_per_device(devices: int) -> Partition:
    """A partition with one example for each device; its content is not used."""
    return Partition(np.zeros(devices, dtype=np.int64), np.arange(devices + 1, dtype=np.int64))

"""Local training of one device after another: for any module, whatever its forward pass does.

Every device trains a copy of the model of its own. Buffers, and whatever else a module keeps beside its
parameters, start anew for every device and are thrown away: nothing that a device computes reaches another
device, or leaves the engine, but its clipped update.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import torch
from torch import Tensor, nn

from sfumato.engine.base import EngineSettings, LocalTask, UpdateChunk
from sfumato.engine.chunks import begin_chunk, checked, finish_, intra_op_threads
from sfumato.learning.autograd_gradient import AutogradGradient
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dropout import DropoutLayout
from sfumato.learning.local_training import train_stack
from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.training_memory import StartModels, TrainingMemory


class PerDeviceEngine:
    """Trains devices that hold rows of one data set, each by itself.

    Args:
        model: the architecture; its parameters are not read.
        features: ``[N, *shape]``, the data set.
        labels: int64 ``[N]``, or the targets that the loss takes ``[N, ...]``.
        settings: see `EngineSettings`.
        loss: of every example.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Tensor,
        labels: Tensor,
        settings: EngineSettings,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        self.settings = settings
        self._model, self._loss = model, loss
        self._layout = ParameterLayout.of(model)
        self._features = features.to(settings.device)
        self._labels = labels.to(settings.device)
        self._dropout = DropoutLayout.of(model, torch.zeros(1, *features.shape[1:], dtype=features.dtype))

    def train(
        self, task: LocalTask, start: Tensor, group_of: Tensor, batches: BatchPlan
    ) -> Iterator[UpdateChunk]:
        """Train P devices; see `Engine.train`."""
        task = checked(task, self._layout, start, group_of, batches)
        start = start.to(self.settings.device)
        size = max(1, self.settings.memory_bytes // (2 * 4 * self._layout.total))
        for first in range(0, batches.devices, size):
            rows = slice(first, min(first + size, batches.devices))
            yield self._train_chunk(task, start, group_of[rows], batches.of(rows), rows)

    def _train_chunk(
        self, task: LocalTask, start: Tensor, group_of: Tensor, batches: BatchPlan, rows: slice
    ) -> UpdateChunk:
        chunk = begin_chunk(task, self._layout, rows, self._features.device)
        workers = 1 if self._features.is_cuda else min(self.settings.threads, batches.devices)

        def train(device: int) -> None:
            self._train_device(task, start[group_of[device]], batches, device, chunk)

        with intra_op_threads(self.settings.threads if workers == 1 else 1):
            if workers == 1:
                for device in range(batches.devices):
                    train(device)
                return chunk
            pool = ThreadPoolExecutor(workers)
            try:
                list(pool.map(train, range(batches.devices)))
            finally:
                pool.shutdown(cancel_futures=True)
        return chunk

    def _train_device(
        self, task: LocalTask, start: Tensor, batches: BatchPlan, device: int, chunk: UpdateChunk
    ) -> None:
        where = self._features.device
        own = batches.of(slice(device, device + 1))
        own = own.to(where)
        model = deepcopy(self._model).to(where)
        gradient = AutogradGradient(model, self._loss, self._dropout)
        memory = TrainingMemory(gradient, self._layout.total, self._features)
        starts = StartModels(start[None], [(slice(0, 1), 1)])
        row = chunk.rows.start + device
        noise = None if task.step_noise is None else task.step_noise.of([row])
        drawn = None if task.dropout is None else task.dropout.of([row])
        more = None if task.corrections is None else task.corrections[row : row + 1].to(where)
        steps_clipped, drift = train_stack(
            memory, starts, own, self._features, self._labels, task.sgd, noise, more, drawn
        )
        update = memory.reserve(1, own.width).sub_(start) if drift is None else drift
        finish_(chunk, task, torch.tensor([device], device=where), update, steps_clipped, own)

"""Local training of one device after another: for any module, whatever its forward pass does.

Every device trains a copy of the model of its own. Buffers, and whatever else a module keeps beside its
parameters, start anew for every device and are thrown away: nothing that a device computes reaches another
device, or leaves the engine, but its clipped update.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.data.features import FeatureSource
from sfumato.distributed.ranks import ALONE
from sfumato.engine.base import EngineSettings, IntArray, LocalTask, UpdateChunk
from sfumato.engine.tiles import chunks_of, run_in_threads, tiles_of
from sfumato.learning.autograd_gradient import AutogradGradient
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dropout import DropoutLayout
from sfumato.learning.examples import Examples, LoadedExamples
from sfumato.learning.local_training import train_stack
from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.training_memory import StartModels, TrainingMemory


class PerDeviceEngine:
    """Trains devices that hold rows of one data set, each by itself.

    Args:
        model: the architecture; its parameters are not read.
        features: ``[N, *shape]``, the data set; or a source, from which what devices train on is taken.
        labels: ``[N]``, or the targets that the loss takes ``[N, ...]``; a source of features may be its own.
        settings: see `EngineSettings`.
        loss: of every example.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Tensor | FeatureSource,
        labels: Tensor | FeatureSource,
        settings: EngineSettings,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        self.settings, self.ranks = settings, ALONE
        self._model, self._loss = model, loss
        self._layout = ParameterLayout.of(model)
        self._examples = Examples.of(features, labels, settings.device)
        self._no_features = self._examples.none[0]
        example = torch.zeros(1, *features.shape[1:], dtype=self._no_features.dtype)
        self._dropout = DropoutLayout.of(model, example)

    def owners(self, task: LocalTask, batches: BatchPlan) -> list[IntArray]:
        """One list with the indices of all P devices of ``batches``, as there is one rank."""
        return [np.arange(batches.devices)]

    def tiles(self, task: LocalTask, batches: BatchPlan) -> list[list[Tensor]]:
        """For each block of neighbours of ``batches``, its tiles: one for each device, int64 ``[1]``.

        ``task`` makes no difference.
        """
        return tiles_of(batches.steps, {0: 1}, 4 * self._layout.total)

    def train(
        self,
        task: LocalTask,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        tiles: slice = slice(None),
    ) -> Iterator[UpdateChunk]:
        """Train P devices one by one, device p from ``start[group_of[p]]`` on ``batches`` p.

        Args:
            task: what each device does.
            start: float32 ``[G, M]``.
            group_of: int64 ``[P]``.
            batches: of the P devices.
            tiles: numbers of the tiles (devices) to train; all by default.

        Yields:
            The updates, in chunks of ascending devices that fit the memory of the settings.

        Raises:
            SpecError: shapes that do not fit.
        """
        task = task.checked(self._layout, start, group_of, batches)
        start, an_update = start.to(self.settings.device), 4 * self._layout.total
        workers = 1 if self._no_features.is_cuda else self.settings.threads
        half = self.settings.memory_bytes // 2
        for some in chunks_of(self.tiles(task, batches), tiles, half // an_update):
            chunk = UpdateChunk.empty(task, self._layout, some, self._examples.device)
            for loaded, examples in self._examples.loads(batches, some, self.settings.load_bytes):

                def train(
                    tile: Tensor, chunk: UpdateChunk = chunk, examples: LoadedExamples = examples
                ) -> None:
                    self._train_device(task, start[group_of[int(tile)]], batches, examples, tile, chunk)

                run_in_threads(loaded, train, min(workers, len(loaded)))
            yield chunk

    def _train_device(
        self,
        task: LocalTask,
        start: Tensor,
        batches: BatchPlan,
        examples: LoadedExamples,
        tile: Tensor,
        chunk: UpdateChunk,
    ) -> None:
        """Train the one device of ``tile`` from ``start`` ``[M]``, and write its update into ``chunk``."""
        target, row = self._examples.device, int(tile)
        own = examples.places_of(batches.of(tile).to(target))
        model = deepcopy(self._model).to(target)
        gradient = AutogradGradient(model, self._loss, self._dropout)
        memory = TrainingMemory(gradient, self._layout.total, self._no_features)
        starts = StartModels(start[None], [(slice(0, 1), 1)])
        noise = None if task.step_noise is None else task.step_noise.of([row])
        masks = None if task.dropout is None else task.dropout.of([row])
        corrections = None if task.corrections is None else task.corrections.of([row])
        steps_clipped, drift = train_stack(
            memory, starts, own, examples.features, examples.targets, task.sgd, noise, corrections, masks
        )
        update = memory.reserve(1, own.width).sub_(start) if drift is None else drift
        chunk.write_(task, chunk.places_of(tile), update, steps_clipped, own)

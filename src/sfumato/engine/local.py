"""Local training of many devices on this machine: chunks to fit memory, tiles to fit caches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from sfumato.engine.base import EngineSettings, LocalTask, UpdateChunk
from sfumato.engine.chunks import begin_chunk, checked, finish_, intra_op_threads, room_for
from sfumato.learning.batches import BatchPlan
from sfumato.learning.gradients import stacked_gradient
from sfumato.learning.local_training import train_stack
from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.training_memory import StartModels, TrainingMemory

# Weights are read and written at every step, so the devices that a core trains side by side should stay in
# its share of the cache: from main memory mlps take twice as long. Fewer at once leave more work to Python.
_TILE_BYTES = 8 << 20


class LocalEngine:
    """Trains devices that hold rows of one data set.

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
        self._idle: list[TrainingMemory] = []
        self._floats: dict[int, int] = {}

    def train(
        self, task: LocalTask, start: Tensor, group_of: Tensor, batches: BatchPlan
    ) -> Iterator[UpdateChunk]:
        """Train P devices; see `Engine.train`."""
        task = checked(task, self._layout, start, group_of, batches)
        start = start.to(self.settings.device)
        group_of = group_of.to(self.settings.device)
        chunk, tile = self._sizes(task, batches.width)
        for first in range(0, batches.devices, chunk):
            rows = slice(first, min(first + chunk, batches.devices))
            yield self._train_chunk(task, start, group_of[rows], batches.of(rows), rows, tile)

    def _sizes(self, task: LocalTask, width: int) -> tuple[int, int]:
        """Devices a chunk, devices a tile."""
        if width not in self._floats:
            memory = self._borrow()
            self._floats[width] = memory.gradient.scratch_floats(width)
            self._idle.append(memory)
        noisy, adam = task.step_noise is not None, task.sgd.adam is not None
        drifts = task.sgd.clips_gradients
        beside = bool(task.sgd.momentum) + bool(task.sgd.proximal) + (task.corrections is not None)
        stacks = 3 + beside + (task.sgd.step_clip is not None or noisy or adam) + 2 * noisy + 3 * adam
        an_update = 4 * self._layout.total
        in_cache = stacks * an_update + 4 * self._floats[width]
        # drifts, and where they began, are passed over once a step: they need not stay in the cache
        a_device = in_cache + 2 * drifts * an_update
        if self._on_cuda:
            chunk = max(1, self.settings.memory_bytes // (a_device + an_update))
            return chunk, chunk
        tile = min(
            _TILE_BYTES // in_cache, self.settings.memory_bytes // (2 * self.settings.threads * a_device)
        )
        return max(1, self.settings.memory_bytes // (2 * an_update)), max(1, tile)

    @property
    def _on_cuda(self) -> bool:
        return self._features.is_cuda

    def _borrow(self) -> TrainingMemory:
        try:
            return self._idle.pop()
        except IndexError:
            # A copy each: torch.func swaps a module's parameters while it runs, which threads cannot share.
            model = deepcopy(self._model).to(self.settings.device)
            gradient = stacked_gradient(model, self._features, self._loss)
            return TrainingMemory(gradient, self._layout.total, self._features)

    def _train_chunk(
        self, task: LocalTask, start: Tensor, group_of: Tensor, batches: BatchPlan, rows: slice, tile: int
    ) -> UpdateChunk:
        p = batches.devices
        chunk = begin_chunk(task, self._layout, rows, self._features.device)
        # Longest first: devices of a tile then stop together, and threads finish together.
        order = torch.argsort(batches.steps, descending=True, stable=True)
        tiles = order.tensor_split(max(-(-p // tile), min(p, self.settings.threads)))

        def train(members: Tensor) -> None:
            self._train_tile(task, start, group_of, batches, members, chunk)

        workers = min(self.settings.threads, len(tiles))
        # Inside a tile one thread does best: the products are too small to share.
        with intra_op_threads(self.settings.threads if len(tiles) == 1 else 1):
            if workers == 1 or self._on_cuda:
                for members in tiles:
                    train(members)
                return chunk
            pool = ThreadPoolExecutor(workers)
            try:
                list(pool.map(train, tiles))
            finally:
                pool.shutdown(cancel_futures=True)
        return chunk

    def _train_tile(
        self,
        task: LocalTask,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        members: Tensor,
        chunk: UpdateChunk,
    ) -> None:
        device = self._features.device
        own = batches.of(members)
        own = own.to(device)
        rows = (members + chunk.rows.start).tolist()
        noise = None if task.step_noise is None else task.step_noise.of(rows)
        drawn = None if task.dropout is None else task.dropout.of(rows)
        members = members.to(device)
        begin = StartModels.of(start, group_of[members])
        memory = self._borrow()

        def packed(flat: Tensor) -> Tensor:
            memory.gradient.pack(flat, out := torch.empty_like(flat))
            return out

        starts = replace(begin, models=packed(begin.models))
        corrections = (
            None if task.corrections is None else packed(task.corrections[members + chunk.rows.start])
        )
        steps_clipped, drift = train_stack(
            memory, starts, own, self._features, self._labels, task.sgd, noise, corrections, drawn
        )
        update = room_for(chunk, members)
        moved = memory.reserve(len(members), own.width) if drift is None else drift
        memory.gradient.unpack(moved, update)
        self._idle.append(memory)
        if drift is None:
            for before, after in begin.beside(update):
                after.sub_(before)
        finish_(chunk, task, members, update, steps_clipped, own)

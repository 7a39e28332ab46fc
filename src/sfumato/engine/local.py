"""Local training of many devices on this machine: tiles to fit caches, chunks of tiles to fit memory."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.data.features import FeatureSource
from sfumato.distributed.ranks import ALONE
from sfumato.engine.base import EngineSettings, IntArray, LocalTask, UpdateChunk
from sfumato.engine.tiles import chunks_of, run_in_threads, tiles_of
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dual_form import DualForm, DualTile, padded_examples
from sfumato.learning.examples import Examples, LoadedExamples
from sfumato.learning.gradients import stacked_gradient
from sfumato.learning.local_training import train_stack
from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.training_memory import StartModels, TrainingMemory

# Weights are read and written at every step, so the devices that a core trains side by side should stay in
# its share of the cache: from main memory mlps take twice as long. Fewer at once leave more work to Python.
_TILE_BYTES = 8 << 20
_CUDA_TILE_BYTES = 1 << 30  # as many as keep a GPU busy, and fit the smallest ones


class LocalEngine:
    """Trains devices that hold rows of one data set.

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
        self._dual = DualForm.of(model, self._no_features, loss)
        self._idle: dict[int, list[TrainingMemory]] = {}
        self._floats: dict[tuple[int, int], int] = {}

    def owners(self, task: LocalTask, batches: BatchPlan) -> list[IntArray]:
        """One list with the indices of all P devices of ``batches``, as there is one rank."""
        return [np.arange(batches.devices)]

    def tiles(self, task: LocalTask, batches: BatchPlan) -> list[list[Tensor]]:
        """For each block of neighbours of ``batches``, its tiles, int64 ``[n]``: devices that train together.

        ``task``: what each device does.
        """
        order = batches.steps
        if self._form(task, batches) is not None:  # among those that stop together, by the memory they need
            order = order * (1 + batches.distinct.amax()) + batches.distinct
        return tiles_of(order, self._tile(task, batches)[0], 4 * self._layout.total)

    def train(
        self,
        task: LocalTask,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        tiles: slice = slice(None),
    ) -> Iterator[UpdateChunk]:
        """Train P devices, many models at once, device p from ``start[group_of[p]]`` on ``batches`` p.

        Args:
            task: what each device does.
            start: float32 ``[G, M]``.
            group_of: int64 ``[P]``.
            batches: of the P devices.
            tiles: numbers of the tiles to train; all by default.

        Yields:
            The updates, in chunks of ascending devices that fit the memory of the settings.

        Raises:
            SpecError: shapes that do not fit.
        """
        task = task.checked(self._layout, start, group_of, batches)
        start = start.to(self.settings.device)
        group_of = group_of.to(self.settings.device)
        form, scratch = self._form(task, batches), self._tile(task, batches)[1]
        half, an_update = self.settings.memory_bytes // 2, 4 * self._layout.total
        workers = max(1, min(self.settings.threads, half // scratch))
        for some in chunks_of(self.tiles(task, batches), tiles, half // an_update):
            chunk = UpdateChunk.empty(task, self._layout, some, self._examples.device)
            for loaded, examples in self._examples.loads(batches, some, self.settings.load_bytes):

                def train(
                    tile: Tensor, chunk: UpdateChunk = chunk, examples: LoadedExamples = examples
                ) -> None:
                    self._train_tile(task, form, start, group_of, batches, examples, tile, chunk)

                run_in_threads(loaded, train, 1 if self._on_cuda else min(workers, len(loaded)))
            yield chunk

    def _form(self, task: LocalTask, batches: BatchPlan) -> DualForm | None:
        """The dual form of the first layer, if the devices of ``batches`` are trained in it; else ``None``.

        ``task``: what each device does.
        """
        if self._dual is None or task.step_noise is not None or task.corrections is not None:
            return None
        return self._dual if self._dual.saves(task.sgd, batches) else None

    def _tile(self, task: LocalTask, batches: BatchPlan) -> tuple[int, int]:
        """The most devices of a tile, and about how many bytes a tile takes beside its updates.

        A tile is as large as fits a core's cache (or a share of a GPU's memory): at every step all of it is
        read.

        Args:
            task: what each device does.
            batches: of the P devices.
        """
        form, width, size, beside = self._form(task, batches), batches.width, self._layout.total, 0
        examples = 0 if form is None else padded_examples(int(batches.distinct.max()))
        if (examples, width) not in self._floats:
            memory = self._borrow(examples)
            self._floats[examples, width] = memory.gradient.scratch_floats(width)
            self._idle[examples].append(memory)
        if form is not None:
            size = form.parameters(size, examples)
            beside = 4 * examples * (form.inputs + 2 * examples + form.outputs)
        noisy, adam = task.step_noise is not None, task.sgd.adam is not None
        drifts = task.sgd.clips_gradients
        extra_vectors = bool(task.sgd.momentum) + bool(task.sgd.proximal) + (task.corrections is not None)
        vectors_a_device = (
            3 + extra_vectors + (task.sgd.step_clip is not None or noisy or adam) + 2 * noisy + 3 * adam
        )
        in_cache = vectors_a_device * 4 * size + 4 * self._floats[examples, width]
        # drifts, and where they began, are passed over once a step: they need not stay in the cache
        bytes_a_device = in_cache + 2 * drifts * 4 * size + beside
        most_devices = max(1, (_CUDA_TILE_BYTES if self._on_cuda else _TILE_BYTES) // in_cache)
        return most_devices, most_devices * bytes_a_device

    @property
    def _on_cuda(self) -> bool:
        """Whether training runs on a CUDA device."""
        return self._no_features.is_cuda

    def _borrow(self, examples: int = 0) -> TrainingMemory:
        """Training memory that no thread uses at present; it must be given back.

        ``examples``: K of the dual form in which devices are trained; 0 for training in no such form.
        """
        try:
            return self._idle.setdefault(examples, []).pop()
        except IndexError:
            pass
        size = self._layout.total
        if examples and self._dual is not None:
            gradient, inputs = self._dual.gradient(examples), self._dual.inputs_of(examples)
            like = self._no_features.new_empty(0, inputs)
            return TrainingMemory(gradient, self._dual.parameters(size, examples), like)
        # A copy each: torch.func swaps a module's parameters while it runs, which threads cannot share.
        model = deepcopy(self._model).to(self.settings.device)
        gradient = stacked_gradient(model, self._no_features, self._loss)
        return TrainingMemory(gradient, size, self._no_features)

    def _train_tile(
        self,
        task: LocalTask,
        form: DualForm | None,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        examples: LoadedExamples,
        tile: Tensor,
        chunk: UpdateChunk,
    ) -> None:
        """Train the devices of ``tile`` together, and write their updates into ``chunk``.

        Args:
            task: what each device does, as `LocalTask.checked` gives it.
            form: the dual form in which they are trained; ``None`` for none.
            start: models on the engine's device, ``[G, M]``.
            group_of: the row of ``start`` for each device, ``[P]``.
            batches: of the P devices.
            examples: that the tile's batches need.
            tile: the devices, int64 ``[n]``, sorted by falling number of steps.
            chunk: written to.
        """
        device = self._examples.device
        own = examples.places_of(batches.of(tile).to(device))
        starts = StartModels.of(start, group_of[tile.to(device)])
        places = chunk.places_of(tile)
        update = chunk.room_for(places)
        if form is None:
            features, targets = examples.features, examples.targets
            clipped, moved = self._train(task, tile, 0, starts, own, features, targets, update)
            if not moved:
                for before, after in starts.with_rows_of(update):
                    after.sub_(before)
        else:
            dual = DualTile.of(form, starts, own, examples.features, examples.targets)
            ends = update.new_empty(len(tile), dual.starts.models.shape[1])
            clipped, _ = self._train(
                task, tile, dual.examples, dual.starts, dual.batches, dual.features, dual.targets, ends
            )
            dual.write_update(ends, update)
        chunk.write_(task, places, update, clipped, own)

    def _train(
        self,
        task: LocalTask,
        tile: Tensor,
        examples: int,
        starts: StartModels,
        batches: BatchPlan,
        features: Tensor,
        targets: Tensor,
        out: Tensor,
    ) -> tuple[Tensor, bool]:
        """Train the devices of ``tile`` together, in a dual form of ``examples`` examples, or with 0 in none.

        Args:
            task: what each device does, as `LocalTask.checked` gives it.
            tile: the devices, int64 ``[n]``, sorted by falling number of steps.
            examples: K of the dual form; 0 for none.
            starts: flat models to start from.
            batches: of these devices.
            features: ``[N, ...]``.
            targets: ``[N, ...]``.
            out: where the flat models end, ``[n, M]``, or how far they moved; written to.

        Returns:
            How many of a device's gradients were clipped ``[n]``, and whether ``out`` is how far they moved.
        """
        noise = None if task.step_noise is None else task.step_noise.of(tile.tolist())
        masks = None if task.dropout is None else task.dropout.of(tile.tolist())
        correction_rows = None if task.corrections is None else task.corrections.of(tile.tolist())
        memory = self._borrow(examples)

        def packed(flat: Tensor) -> Tensor:
            memory.gradient.pack(flat, out := torch.empty_like(flat))
            return out

        starts = replace(starts, models=packed(starts.models))
        corrections = None if correction_rows is None else packed(correction_rows)
        clipped, drift = train_stack(
            memory, starts, batches, features, targets, task.sgd, noise, corrections, masks
        )
        ends = memory.reserve(len(tile), batches.width) if drift is None else drift
        memory.gradient.unpack(ends, out)
        self._idle[examples].append(memory)
        return clipped, drift is not None

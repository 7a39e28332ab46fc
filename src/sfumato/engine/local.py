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
from sfumato.learning.dual_form import DualForm, DualTile
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
        self._floats: dict[tuple[int, int], tuple[int, int]] = {}

    def owners(self, task: LocalTask, batches: BatchPlan) -> list[IntArray]:
        """One list with the indices of all P devices of ``batches``, as there is one rank."""
        return [np.arange(batches.devices)]

    def tiles(self, task: LocalTask, batches: BatchPlan) -> list[list[Tensor]]:
        """For each block of neighbours of ``batches``, its tiles, int64 ``[n]``: devices that train together.

        ``task``: what each device does.
        """
        return self._tiles(task, batches, self._rooms(task, batches))

    def _tiles(self, task: LocalTask, batches: BatchPlan, rooms: Tensor) -> list[list[Tensor]]:
        """`tiles`, given the `_rooms` ``[P]`` of the devices."""
        most = {room: self._tile(task, batches.width, room)[0] for room in _kinds(rooms)}
        return tiles_of(batches.steps, most, 4 * self._layout.total, rooms)

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
        rooms = self._rooms(task, batches)
        scratch = max(self._tile(task, batches.width, room)[1] for room in _kinds(rooms))
        half, an_update = self.settings.memory_bytes // 2, 4 * self._layout.total
        workers = max(1, min(self.settings.threads, half // scratch))
        for some in chunks_of(self._tiles(task, batches, rooms), tiles, half // an_update):
            chunk = UpdateChunk.empty(task, self._layout, some, self._examples.device)
            for loaded, examples in self._examples.loads(batches, some, self.settings.load_bytes):

                def train(
                    tile: Tensor, chunk: UpdateChunk = chunk, examples: LoadedExamples = examples
                ) -> None:
                    room = int(rooms[tile[0]])
                    self._train_tile(task, room, start, group_of, batches, examples, tile, chunk)

                run_in_threads(loaded, train, 1 if self._on_cuda else min(workers, len(loaded)))
            yield chunk

    def _rooms(self, task: LocalTask, batches: BatchPlan) -> Tensor:
        """For how many examples the dual form of each device has room, int64 ``[P]``; 0: it is not in one.

        ``task``: what each device does.
        """
        if self._dual is None or task.step_noise is not None or task.corrections is not None:
            return torch.zeros_like(batches.steps)
        return self._dual.rooms(task.sgd, batches)

    def _tile(self, task: LocalTask, width: int, room: int) -> tuple[int, int]:
        """The most devices of a tile, and about how many bytes a tile takes beside its updates.

        A tile is as large as fits a core's cache (or a share of a GPU's memory): at every step all of it is
        read.

        Args:
            task: what each device does.
            width: examples of the widest batch.
            room: of the dual form; 0 for none.
        """
        if (room, width) not in self._floats:
            memory = self._borrow(room)
            scratch = memory.gradient.scratch_floats
            self._floats[room, width] = scratch(width), scratch(width, clips_examples=True)
            self._idle[room].append(memory)
        floats, with_clip = self._floats[room, width]
        size, beside = self._layout.total, 0
        if room and self._dual is not None:
            size = self._dual.parameters(size, room)
            beside = 4 * room * (self._dual.inputs + self._dual.inputs_of(room))
        noisy, adam = task.step_noise is not None, task.sgd.adam is not None
        drifts = task.sgd.clips_gradients
        extra_vectors = bool(task.sgd.momentum) + bool(task.sgd.proximal) + (task.corrections is not None)
        vectors_a_device = (
            3 + extra_vectors + (task.sgd.step_clip is not None or noisy or adam) + 2 * noisy + 3 * adam
        )
        in_cache = vectors_a_device * 4 * size + 4 * floats
        # drifts, where they began and what clips of examples keep are passed over once a step: they need not
        # stay in the cache
        if task.sgd.example_clip is not None:
            beside += 4 * (with_clip - floats)
        bytes_a_device = in_cache + 2 * drifts * 4 * size + beside
        most_devices = max(1, (_CUDA_TILE_BYTES if self._on_cuda else _TILE_BYTES) // in_cache)
        return most_devices, most_devices * bytes_a_device

    @property
    def _on_cuda(self) -> bool:
        """Whether training runs on a CUDA device."""
        return self._no_features.is_cuda

    def _borrow(self, room: int) -> TrainingMemory:
        """Training memory that no thread uses at present; it must be given back.

        ``room``: of the dual form; 0 for none.
        """
        try:
            return self._idle.setdefault(room, []).pop()
        except IndexError:
            pass
        size = self._layout.total
        if room and self._dual is not None:
            like = self._no_features.new_empty(0, self._dual.inputs_of(room))
            return TrainingMemory(self._dual.gradient(room), self._dual.parameters(size, room), like)
        # A copy each: torch.func swaps a module's parameters while it runs, which threads cannot share.
        model = deepcopy(self._model).to(self.settings.device)
        gradient = stacked_gradient(model, self._no_features, self._loss)
        return TrainingMemory(gradient, size, self._no_features)

    def _train_tile(
        self,
        task: LocalTask,
        room: int,
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
            room: of the dual form in which they are trained; 0 for none.
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
        features, targets = examples.features, examples.targets
        if room and self._dual is not None:
            dual = DualTile.of(self._dual, room, starts, own, features, targets)
            ends = update.new_empty(len(tile), dual.starts.models.shape[1])
            clipped, _ = self._train(
                task, tile, room, dual.starts, dual.batches, dual.features, dual.targets, ends
            )
            dual.write_update(ends, update)
        else:
            clipped, moved = self._train(task, tile, 0, starts, own, features, targets, update)
            if not moved:
                for before, after in starts.with_rows_of(update):
                    after.sub_(before)
        chunk.write_(task, places, update, clipped, own)

    def _train(
        self,
        task: LocalTask,
        tile: Tensor,
        room: int,
        starts: StartModels,
        batches: BatchPlan,
        features: Tensor,
        targets: Tensor,
        out: Tensor,
    ) -> tuple[Tensor, bool]:
        """Train the devices of ``tile`` together, as models and examples that may be those of a dual form.

        Args:
            task: what each device does, as `LocalTask.checked` gives it.
            tile: the devices, int64 ``[n]``, sorted by falling number of steps.
            room: of the dual form; 0 for none.
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
        memory = self._borrow(room)

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
        self._idle[room].append(memory)
        return clipped, drift is not None


def _kinds(rooms: Tensor) -> list[int]:
    """The different numbers of ``rooms`` ``[P]``; 0 where there are no devices."""
    return sorted(set(rooms.tolist())) or [0]

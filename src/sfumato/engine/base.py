"""The interface of engines: what they are asked to do, and what they return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.arguments import Argument
from sfumato.distributed.ranks import Ranks
from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dropout import DropoutDraws
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.rounding_margin import with_margin
from sfumato.mechanisms.clipping import Clip, PerLayerClip
from sfumato.mechanisms.step_noise import StepNoise

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EngineSettings:
    """Where and with how much memory devices are trained. No bit of an update depends on threads and memory.

    Attributes:
        device: ``"cpu"`` or ``"cuda"``, perhaps with an index.
        threads: tiles that are worked on at once (`engine.tiles`); on CUDA unused.
        memory_bytes: what the updates and scratch of one chunk of devices may take, as far as the least that
            fits: the updates of a block of neighbours, of 32 MiB or one device's, and one tile's scratch.
            Where examples are not in memory, an eighth of it more for those of some tiles, or one tile's.
    """

    device: str
    threads: int
    memory_bytes: int

    @property
    def load_bytes(self) -> int:
        """Bytes for the features of one load of examples, if not in memory: an eighth of `memory_bytes`."""
        return self.memory_bytes // 8

    @classmethod
    def default(cls, device: str = "cpu") -> EngineSettings:
        """The default: torch's threads and 512 MiB on a CPU; one thread and half the memory on a CUDA device.

        Args:
            device: auto, cpu or cuda, perhaps with an index.

        Raises:
            SpecError: there is no such device here.
        """
        device = picked_device(device)
        if torch.device(device).type == "cuda":
            return cls(device, 1, torch.cuda.get_device_properties(device).total_memory // 2)
        return cls(device, torch.get_num_threads(), 512 << 20)


def picked_device(device: str) -> str:
    """The device to compute on: ``device``, or for ``auto`` ``cuda`` where there is a GPU, else ``cpu``.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``, perhaps with an index.

    Raises:
        SpecError: it is neither the CPU nor a CUDA device of this machine.
    """
    if device == "auto":
        return "cuda" if is_device_available("cuda") else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise SpecError(Argument("device"), device, "must be auto, cpu or cuda")
    if not is_device_available(device):
        count = _cuda_devices()
        there = f"must be cuda:0 to cuda:{count - 1}, the CUDA devices here"
        raise SpecError(Argument("device"), device, there if count else "no CUDA device is available here")
    return device


def is_device_available(device: str) -> bool:
    """Whether torch can compute on ``device``, the CPU or a CUDA device, on this machine.

    Raises:
        RuntimeError: torch knows no device of this name.
    """
    found = torch.device(device)
    return found.type == "cpu" or (found.type == "cuda" and (found.index or 0) < _cuda_devices())


def _cuda_devices() -> int:
    """Number of the CUDA devices here."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


class Corrections(Protocol):
    """The vector that each of P devices adds to its gradient at every local step."""

    def of(self, rows: list[int]) -> Tensor:
        """The corrections ``[p, M]`` of the devices ``rows``, indices among the P; it is thread-safe."""


@dataclass(frozen=True)
class LocalTask:
    """What every device does in one piece of local work.

    Attributes:
        sgd: how it steps.
        update_clip: how it clips the whole update, end minus start; ``None`` for not at all.
        layer_norms: what each layer of the whole update is clipped to instead, in the model's order.
        step_noise: what it adds to the sum of gradients of every step; ``None`` for nothing.
        corrections: what each device adds to the gradient of every step; ``None`` for nothing. A rank asks
            for those of devices that it trains.
        dropout: what masks of dropout layers are drawn from; needed by models that have any.
        gathers: whether every rank is handed the updates of all devices, or only of those that it trains.
    """

    sgd: LocalSGD
    update_clip: Clip | None = None
    layer_norms: tuple[float, ...] | None = None
    step_noise: StepNoise | None = None
    corrections: Corrections | None = None
    dropout: DropoutDraws | None = None
    gathers: bool = True

    def clip_of(self, layout: ParameterLayout) -> Clip | None:
        """The clip of the whole update of a model of ``layout``, perhaps by layers; ``None`` for none."""
        if self.layer_norms is None:
            return self.update_clip
        return PerLayerClip(self.layer_norms, layout.layer_spans)

    def checked(
        self, layout: ParameterLayout, start: Tensor, group_of: Tensor, batches: BatchPlan
    ) -> LocalTask:
        """This task with its clips ready to be applied, once the shapes of a request were checked.

        In it, norms of layers are one clip of the whole update, and clip norms leave room for rounding.

        Args:
            layout: of the model's M parameters.
            start: models to start from, ``[G, M]``.
            group_of: the row of ``start`` for each device, ``[P]``.
            batches: of the P devices.

        Raises:
            SpecError: shapes that do not fit.
        """
        if start.shape[1] != layout.total or len(group_of) != batches.devices:
            shapes = (tuple(start.shape), tuple(group_of.shape))
            raise SpecError("train", shapes, f"needs [G, {layout.total}] and [{batches.devices}]")
        sgd, clip = self.sgd, self.clip_of(layout)
        if sgd.clips_gradients:
            sgd = with_margin(sgd, batches, start, noisy=self.step_noise is not None)
        return replace(self, sgd=sgd, update_clip=clip)


@dataclass(frozen=True)
class UpdateChunk:
    """What some of the P devices learned. Private: for the simulator, or to be aggregated and noised.

    Attributes:
        rows: which of the P devices, ascending, int64 ``[p]``.
        updates: float32 ``[p, M]``, end minus start, clipped if the task says so; on the engine's device.
        norms: float32 ``[p]``, l2 norms of the updates before that clip; ``None`` without one.
        clipped: bool ``[p]``, whether that clip changed the update; ``None`` without one.
        steps_clipped: float32 ``[p]``, the share of a device's gradients, of steps or of examples, that the
            clip of these changed.
    """

    rows: IntArray
    updates: Tensor
    norms: Tensor | None
    clipped: Tensor | None
    steps_clipped: Tensor

    @classmethod
    def empty(
        cls, task: LocalTask, layout: ParameterLayout, tiles: Sequence[Tensor], device: torch.device
    ) -> Self:
        """A chunk with room, on ``device``, for the devices of ``tiles``; `write_` fills it.

        ``task``: what the devices do; ``layout``: of the model's M parameters.
        """
        rows = torch.cat([torch.zeros(0, dtype=torch.int64), *tiles]).sort().values
        p = len(rows)
        return cls(
            rows.numpy(),
            torch.empty(p, layout.total, device=device),
            None if task.update_clip is None else torch.empty(p, device=device),
            None if task.update_clip is None else torch.empty(p, dtype=torch.bool, device=device),
            torch.empty(p, device=device),
        )

    def places_of(self, tile: Tensor) -> Tensor:
        """Where in the chunk the devices ``tile`` ``[n]`` are: int64 ``[n]``, on the chunk's device."""
        found = torch.searchsorted(torch.from_numpy(self.rows), tile)
        return found.to(self.updates.device)

    def room_for(self, places: Tensor) -> Tensor:
        """Memory ``[n, M]`` for the updates at ``places`` ``[n]`` of the chunk, not initialised.

        It is the chunk's own memory where these places are consecutive, so that nothing is copied later.
        """
        first, n = int(places[0]), len(places)
        if torch.equal(places, torch.arange(first, first + n, device=places.device)):
            return self.updates[first : first + n]
        return torch.empty(n, self.updates.shape[1], device=self.updates.device)

    def write_(
        self, task: LocalTask, places: Tensor, update: Tensor, steps_clipped: Tensor, batches: BatchPlan
    ) -> None:
        """Clip the updates of some devices, if the task says so, and write them to the chunk.

        Args:
            task: what the devices did.
            places: of these devices in the chunk, int64 ``[n]``.
            update: how far they moved, ``[n, M]``, perhaps in the chunk itself; clipped in place.
            steps_clipped: how many of a device's gradients were clipped ``[n]``.
            batches: of these devices.
        """
        if task.update_clip is not None and self.norms is not None and self.clipped is not None:
            clipped = task.update_clip.clip_(update)
            self.norms[places], self.clipped[places] = clipped.norms, clipped.clipped
        if update.untyped_storage().data_ptr() != self.updates.untyped_storage().data_ptr():
            self.updates.index_copy_(0, places, update)
        self.steps_clipped[places] = steps_clipped / batches.steps.clamp(min=1)


class Engine(Protocol):
    """Trains the models of many devices, each on its own mini-batches."""

    @property
    def settings(self) -> EngineSettings:
        """Device, threads and memory with which devices are trained."""

    @property
    def ranks(self) -> Ranks:
        """The processes of the run that share the devices; `ALONE` if there is one."""

    def owners(self, task: LocalTask, batches: BatchPlan) -> list[IntArray]:
        """For each rank (process), the indices of the P devices of ``batches`` that it trains, ascending.

        The same on every rank; ``task``: what each device does.
        """

    def train(
        self,
        task: LocalTask,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        tiles: slice = slice(None),
    ) -> Iterator[UpdateChunk]:
        """Train P devices, device p from ``start[group_of[p]]`` on ``batches`` p.

        Args:
            task: what each device does.
            start: float32 ``[G, M]``.
            group_of: int64 ``[P]``.
            batches: of the P devices.
            tiles: numbers of the tiles to train, of all that the P devices are in; a tile's updates are the
                same whichever others are trained.

        Yields:
            The updates, in chunks that fit the memory of `EngineSettings`: all rows of a chunk are above
            those of the chunks before it. A device without data sends zero.

        Raises:
            SpecError: shapes that do not fit.
        """

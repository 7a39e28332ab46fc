"""What engines share: the check of a request, and how updates of some devices are clipped and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sfumato.engine.base import LocalTask, UpdateChunk
from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.rounding_margin import with_margin


def checked_task(
    task: LocalTask, layout: ParameterLayout, start: Tensor, group_of: Tensor, batches: BatchPlan
) -> LocalTask:
    """Check the shapes of a request for training; returns ``task`` with its clips ready to be applied.

    In it, norms of layers are one clip of the whole update, and clip norms leave room for rounding.

    Args:
        task: what every device does.
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
    if task.sgd.clips_gradients:
        sgd = with_margin(task.sgd, batches, start, noisy=task.step_noise is not None)
        task = replace(task, sgd=sgd)
    return replace(task, update_clip=task.clip_of(layout))


def begin_chunk(
    task: LocalTask, layout: ParameterLayout, tiles: Sequence[Tensor], device: torch.device
) -> UpdateChunk:
    """An empty chunk, on ``device``, for the updates of the devices of ``tiles``; `finish_` fills it.

    ``task``: what the devices do; ``layout``: of the model's M parameters.
    """
    rows = torch.cat([torch.zeros(0, dtype=torch.int64), *tiles]).sort().values
    p = len(rows)
    return UpdateChunk(
        rows.numpy(),
        torch.empty(p, layout.total, device=device),
        None if task.update_clip is None else torch.empty(p, device=device),
        None if task.update_clip is None else torch.empty(p, dtype=torch.bool, device=device),
        torch.empty(p, device=device),
    )


def places_of(chunk: UpdateChunk, tile: Tensor) -> Tensor:
    """The rows of ``chunk`` of the devices ``tile`` ``[n]``: int64 ``[n]``, on the chunk's device."""
    found = torch.searchsorted(torch.from_numpy(chunk.rows), tile)
    return found.to(chunk.updates.device)


def room_for(chunk: UpdateChunk, places: Tensor) -> Tensor:
    """Memory ``[n, M]`` for the updates of the rows ``places`` ``[n]`` of a chunk, not initialised.

    It is the chunk's own where these rows are neighbours, so that nothing is copied later.
    """
    first, n = int(places[0]), len(places)
    if torch.equal(places, torch.arange(first, first + n, device=places.device)):
        return chunk.updates[first : first + n]
    return torch.empty(n, chunk.updates.shape[1], device=chunk.updates.device)


def finish_(
    chunk: UpdateChunk,
    task: LocalTask,
    places: Tensor,
    update: Tensor,
    steps_clipped: Tensor,
    batches: BatchPlan,
) -> None:
    """Clip the updates of some devices, if the task says so, and write them to their rows of ``chunk``.

    Args:
        chunk: written to.
        task: what the devices did.
        places: of these devices in the chunk, int64 ``[n]``.
        update: how far they moved, ``[n, M]``, perhaps in the chunk itself; clipped in place.
        steps_clipped: how many of a device's gradients were clipped ``[n]``.
        batches: of these devices.
    """
    if task.update_clip is not None and chunk.norms is not None and chunk.clipped is not None:
        clipped = task.update_clip.clip_(update)
        chunk.norms[places], chunk.clipped[places] = clipped.norms, clipped.clipped
    if update.untyped_storage().data_ptr() != chunk.updates.untyped_storage().data_ptr():
        chunk.updates.index_copy_(0, places, update)
    chunk.steps_clipped[places] = steps_clipped / batches.steps.clamp(min=1)

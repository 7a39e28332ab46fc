"""Training shared by the ranks of a run: rank r of N trains tiles r, r + N, ... of those that a plan makes.

A tile's updates do not depend on who trains it (`engine.tiles`), so that every number of ranks gives the same
bytes. Every rank replays what follows from the updates; those who need all of them get the others' rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from sfumato.distributed.ranks import Ranks
from sfumato.engine.base import EngineSettings, IntArray, LocalTask, UpdateChunk
from sfumato.engine.local import LocalEngine
from sfumato.engine.per_device import PerDeviceEngine
from sfumato.learning.batches import BatchPlan


class RankedEngine:
    """One of several ranks that share the devices.

    Args:
        inner: trains the tiles of this rank.
        ranks: of the run.
    """

    def __init__(self, inner: LocalEngine | PerDeviceEngine, ranks: Ranks) -> None:
        self._inner = inner
        self.ranks = ranks

    @property
    def settings(self) -> EngineSettings:
        """Device, threads and memory of this rank's own engine."""
        return self._inner.settings

    def owners(self, task: LocalTask, batches: BatchPlan) -> list[IntArray]:
        """For each rank (process), the indices of the P devices of ``batches`` that it trains, ascending.

        The same on every rank; ``task``: what each device does.
        """
        tiles = list(chain.from_iterable(self._inner.tiles(task, batches)))
        nobody, count = torch.zeros(0, dtype=torch.int64), self.ranks.count
        return [torch.cat([nobody, *tiles[rank::count]]).sort().values.numpy() for rank in range(count)]

    def train(
        self,
        task: LocalTask,
        start: Tensor,
        group_of: Tensor,
        batches: BatchPlan,
        tiles: slice = slice(None),
    ) -> Iterator[UpdateChunk]:
        """Train P devices, divided among the ranks (processes); device p starts from ``start[group_of[p]]``.

        Args:
            task: what each device does; without ``task.gathers`` only this rank's updates are yielded.
            start: float32 ``[G, M]``.
            group_of: int64 ``[P]``.
            batches: of the P devices.
            tiles: numbers of the tiles to train; all by default.

        Yields:
            The updates, in chunks of ascending devices.

        Raises:
            SpecError: shapes that do not fit.
        """
        numbers = range(len(batches.steps))[tiles]  # at least as many as there are tiles
        start_at, step = numbers.start, numbers.step
        own = slice(start_at + self.ranks.rank * step, numbers.stop, self.ranks.count * step)
        for chunk in self._inner.train(task, start, group_of, batches, own):
            if task.gathers:
                yield self._gather_chunk(chunk)
            elif len(chunk.rows):
                yield chunk

    def _gather_chunk(self, own: UpdateChunk) -> UpdateChunk:
        """The chunk with the devices of all ranks, ascending, from this rank's chunk ``own``.

        Every rank must call it.
        """
        every = self.ranks.gather(own.rows)
        rows = torch.cat([torch.from_numpy(one) for one in every])
        ordered = rows.sort().values
        owners = [torch.searchsorted(ordered, torch.from_numpy(one)) for one in every]

        def whole(part: Tensor) -> Tensor:
            found = part.new_empty(len(rows), *part.shape[1:])
            found[owners[self.ranks.rank].to(part.device)] = part
            self.ranks.share_rows_(found, owners)
            return found

        return UpdateChunk(
            ordered.numpy(),
            whole(own.updates),
            None if own.norms is None else whole(own.norms),
            None if own.clipped is None else whole(own.clipped),
            whole(own.steps_clipped),
        )

"""What protocols ask of whoever trains devices for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from sfumato.engine.local import LocalTask, Speed, UpdateChunk
from sfumato.learning.batches import BatchPlan


class Engine(Protocol):
    """Trains devices; see `LocalEngine`."""

    @property
    def speed(self) -> Speed:
        """How fast, and on which kind of device."""

    def train(
        self, task: LocalTask, start: Tensor, group_of: Tensor, batches: BatchPlan
    ) -> Iterator[UpdateChunk]:
        """Train P devices, device p from ``start[group_of[p]]`` on ``batches`` p; see `LocalEngine.train`."""

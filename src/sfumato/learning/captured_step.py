"""Gradient steps on a GPU as CUDA graphs: one call launches all operations of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sfumato.learning.gradients import GradientStep

# Libraries set themselves up when they are first used, which a capture does not allow. A step that is taken
# no more often than this is not worth a capture.
_EAGER_CALLS = 2


class GraphPool:
    """Memory for what captured steps compute in between, shared by steps that are never taken at the same
    time.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.handle = device, torch.cuda.graph_pool_handle()
        # torch gives a pool up with the last graph that uses it, and refuses to take it up again
        self._number, self._first = torch.zeros(1, device=device), torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(self._first, pool=self.handle):
            self._number.zero_()


class CapturedStep:
    """A gradient step over fixed memory on a GPU, captured once and then replayed.

    A round of small models waits for the launches of their operations, some twenty a step, and not for the
    GPU. A replay launches the same kernels on the same memory in the same order, so that the bytes are those
    of the step itself. What the step is called with is copied to memory that the graph reads.

    Args:
        step: on tensors that stay where they are, with no operation that waits for the GPU.
        pool: of the GPU that the tensors are on.
    """

    def __init__(self, step: GradientStep, pool: GraphPool) -> None:
        self._step, self._pool = step, pool
        self._eager_calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._clipped: Tensor | None = None

    def __call__(self, labels: Tensor, weights: Tensor, uniforms: Tensor | None = None) -> Tensor | None:
        """Do the step; see `gradients.GradientStep`.

        Args:
            labels: ``[n, B]``, or the targets that the loss takes ``[n, B, ...]``; of the same shape and type
                at every call, as ``weights`` and ``uniforms`` are.
            weights: float32 ``[n, B]``.
            uniforms: float32 ``[n, B, F]``; ``None``, at every call, without dropout.

        Returns:
            Which examples were clipped, bool ``[n, B]``, until the next call; ``None`` without a clip of
            examples.
        """
        given = [labels, weights] if uniforms is None else [labels, weights, uniforms]
        if self._graph is None:
            if self._eager_calls < _EAGER_CALLS:
                self._eager_calls += 1
                return self._step(labels, weights, uniforms)
            self._graph = self._capture(given)
        for own, new in zip(self._inputs, given, strict=True):
            own.copy_(new)
        self._graph.replay()
        return self._clipped

    def _capture(self, given: list[Tensor]) -> torch.cuda.CUDAGraph:
        """Record the step on memory of its own for inputs like ``given``; nothing is computed."""
        self._inputs = [torch.empty_like(new, memory_format=torch.contiguous_format) for new in given]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._pool.device), torch.cuda.graph(graph, pool=self._pool.handle):
            self._clipped = self._step(*self._inputs)
        return graph

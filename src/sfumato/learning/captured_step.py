"""Gradient steps on a GPU as CUDA graphs: one call launches all operations of a step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfumato.errors import first_line

if TYPE_CHECKING:
    from sfumato.learning.gradients import GradientStep

LOG = logging.getLogger("sfumato")

# Libraries set themselves up when they are first used, which a capture does not allow. A step that is taken
# no more often than this is not worth a capture.
_EAGER_CALLS = 2


class GraphPool:
    """Memory for what captured steps compute in between.

    It is shared by steps that are never taken at the same time.

    Args:
        device: the GPU.

    Attributes:
        is_refused: whether a step of this model could not be captured: a module may copy from the CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.handle, self.is_refused = device, torch.cuda.graph_pool_handle(), False
        # torch gives a pool up with the last graph that uses it, and refuses to take it up again
        self._number, self._first = torch.zeros(1, device=device), torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(self._first, pool=self.handle):
            self._number.zero_()


class StepGraphs:
    """Captures the steps of one model that are taken on a GPU; leaves those on a CPU as they are."""

    def __init__(self) -> None:
        self._pool: GraphPool | None = None

    def captured(self, step: GradientStep, models: Tensor) -> GradientStep:
        """``step`` as a `CapturedStep` if ``models``, which it reads, are on a GPU; else ``step`` itself."""
        if not models.is_cuda:
            return step
        if self._pool is None:
            self._pool = GraphPool(models.device)
        return CapturedStep(step, self._pool)


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
            if self._eager_calls >= _EAGER_CALLS and not self._pool.is_refused:
                self._capture(given)
            if self._graph is None:
                self._eager_calls += 1
                return self._step(labels, weights, uniforms)
        for own, new in zip(self._inputs, given, strict=True):
            own.copy_(new)
        self._graph.replay()
        return self._clipped

    def _capture(self, given: list[Tensor]) -> None:
        """Record the step on memory of its own for inputs like ``given``; nothing is computed.

        Where the step cannot be recorded, a warning says so, once a model, and no step of it is from then on.
        """
        self._inputs = [torch.empty_like(new, memory_format=torch.contiguous_format) for new in given]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.device(self._pool.device), torch.cuda.graph(graph, pool=self._pool.handle):
                self._clipped = self._step(*self._inputs)
        except RuntimeError as error:
            self._pool.is_refused = True
            LOG.warning("model: its steps are launched one operation after another: %s", first_line(error))
        else:
            self._graph = graph

"""A list of operations over memory that is laid out once, and used again by the next list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Operation = Callable[[], object]


class Memory:
    """Memory that tapes share, one after the other: they ask for the same tensors, of other batch sizes.

    The k-th tensor of every tape lies in the same block, which grows as needed. No tape may count on what
    another, or its own last run, left there.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Tensor] = {}

    def block(self, number: int, like: Tensor, floats: int) -> Tensor:
        """The first ``floats`` of a block, on the device of ``like``."""
        block = self._blocks.get(number)
        if block is None or len(block) < floats or block.device != like.device:
            block = self._blocks[number] = torch.empty(floats, device=like.device)
        return block[:floats]


class Tape:
    """Operations in the order in which they were appended, and the tensors that they work on.

    Args:
        memory: where the tensors lie.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._operations: list[Operation] = []
        self._tensors = 0

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def append(self, operation: Operation) -> None:
        """Record an operation."""
        self._operations.append(operation)

    def empty(self, like: Tensor, *shape: int) -> Tensor:
        """A contiguous float32 tensor on the device of ``like``, filled by the tape's own operations."""
        self._tensors += 1
        return self._memory.block(self._tensors, like, math.prod(shape)).view(shape)

    def empty_like(self, x: Tensor) -> Tensor:
        """Such a tensor as ``x`` ``[n, rows, columns]``, laid out in the same way: by rows or by columns."""
        if x.is_contiguous():
            return self.empty(x, *x.shape)
        return self.empty(x, *x.mT.shape).mT

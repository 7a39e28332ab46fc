"""A list of operations over memory that is laid out once, and used again by the next list."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Operation = Callable[[], object]

_FEW = 2048


class Memory:
    """Memory that tapes share, one after the other: they ask for the same tensors, of other batch sizes.

    The k-th tensor of every tape lies in the same block, which grows as needed. No tape may count on what
    another, or its own last run, left there.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, Tensor] = {}

    def block(self, number: int, like: Tensor, entries: int, dtype: torch.dtype) -> Tensor:
        """The first ``entries`` entries of block ``number``, 1-D of ``dtype``, on the device of ``like``.

        They are not initialised. A block that is too small, or of another type or device, is made anew.
        """
        block = self._blocks.get(number)
        if block is None or len(block) < entries or (block.device, block.dtype) != (like.device, dtype):
            block = self._blocks[number] = torch.empty(entries, dtype=dtype, device=like.device)
        return block[:entries]


class Constant:
    """Memory that is filled with a value when it is made, and shared by tapes of all sizes.

    Args:
        value: of every entry.
    """

    def __init__(self, value: float) -> None:
        self._value = value
        self._block = torch.empty(0)

    def at_least(self, like: Tensor, floats: int) -> Tensor:
        """The constant as a float32 vector ``[floats]`` on the device of ``like``; its memory is shared."""
        if len(self._block) < floats or self._block.device != like.device:
            self._block = torch.full((floats,), self._value, device=like.device)
        return self._block[:floats]


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
        """Record an operation, to be called after those recorded before."""
        self._operations.append(operation)

    def empty(self, like: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """A contiguous tensor ``[*shape]`` of ``dtype`` on the device of ``like``, not initialised."""
        self._tensors += 1
        return self._memory.block(self._tensors, like, math.prod(shape), dtype).view(shape)

    def empty_like(self, x: Tensor) -> Tensor:
        """A tensor like ``x`` ``[n, rows, columns]``, laid out in the same way, by rows or columns.

        It is a block of float32 memory, not initialised.
        """
        if x.is_contiguous():
            return self.empty(x, *x.shape)
        return self.empty(x, *x.mT.shape).mT


def add_product_(target: Tensor, left: Tensor, right: Tensor, keep: float, scale: float) -> None:
    """``target <- keep target + scale left right``, in place, for stacks of matrices ``[n, a, b]``.

    PyTorch multiplies a whole stack at once where the result is contiguous, and matrix by matrix where it is
    part of longer rows; small matrices are therefore added up beside their target. The bits are the same.
    """
    if target.shape[1] * target.shape[2] > _FEW:
        target.baddbmm_(left, right, beta=keep, alpha=scale)
        return
    found = target.new_empty(target.shape) if keep == 0.0 else target.contiguous()
    target.copy_(found.baddbmm_(left, right, beta=keep, alpha=scale))


def add_scaled_(target: Tensor, gradient: Tensor, keep: float, scale: float) -> None:
    """``target <- keep target + scale gradient``, in place; with ``keep`` 0 the target may be anything."""
    if keep == 0.0:
        torch.mul(gradient, scale, out=target)
        return
    if keep != 1.0:
        target.mul_(keep)
    target.add_(gradient, alpha=scale)

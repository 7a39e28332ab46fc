"""Clipping the gradient of every example inside a mini-batch, in a chain of hand-written layers.

An example's gradient at a layer is a product of what came in with the gradient of what came out, so its norm
follows from the two (Goodfellow 2015; for convolutions Bu et al. 2022), and gradients of single examples are
stored only for convolutions where that takes no more memory.

What one example changes is compared with one clip norm, and not with the length of what the batch adds up to.
So sums are formed in blocks, and where terms of one gradient may cancel each other, in float64: the rounding
that is left is in the margin of `rounding_margin`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sfumato.learning.norms import row_norms, scale_factors
from sfumato.learning.tape import Tape, add_product_

BLOCK = 32
"""Examples whose gradients are added up before the sum is added to those of other examples."""

# A gradient that is a sum over pixels, which is not stored, has terms that may cancel each other. Its squared
# norm counts this share of what they amount to, so that a factor never makes their rounding large.
_OF_TERMS = 2.0**-24


@dataclass(frozen=True)
class ProductTarget:
    """Where the gradients of a product's weight and bias go: ``target <- keep target + scale gradient``.

    Attributes:
        weight: ``[n, outputs, inputs]``.
        bias: ``[n, 1, outputs]``; ``None`` for a product without.
        keep: what the target is multiplied by.
        scale: what the gradient is multiplied by.
    """

    weight: Tensor
    bias: Tensor | None
    keep: float
    scale: float

    def add_(self, target: Tensor, left: Tensor, right: Tensor) -> None:
        """Do ``target <- keep target + scale (left @ right)`` in place, with this `keep` and `scale`.

        The sum over B examples is formed in blocks of `BLOCK`, to keep rounding small; only the first block
        multiplies the target by `keep`.

        Args:
            target: ``[n, a, b]``: `weight` or `bias`, perhaps flattened.
            left: ``[n, a, B]``, one column for each example.
            right: ``[n, B, b]``, one row for each example; B is at least 1.
        """
        keep = self.keep
        for some in _blocks(right.shape[1]):
            add_product_(target, left[:, :, some], right[:, some], keep, self.scale)
            keep = 1.0


class _Product(Protocol):
    def squares(self) -> Tensor:
        """Squared l2 norms of the examples' gradients, float64 ``[n, B]``."""

    def add_(self, factors: Tensor, drop: Tensor | None) -> None:
        """Add the gradients times ``factors`` ``[n, B]`` to their target, in place.

        ``drop``: bool ``[n, B]``, examples that add nothing (their gradients may be not finite); ``None``:
        none.
        """


class ExampleClip:
    """The clip of a step of n models on batches of B examples.

    Args:
        bound: l2 bound of an example's gradient.
        examples: B.
    """

    def __init__(self, bound: float, examples: int) -> None:
        self._bound, self._examples = bound, examples
        self._products: list[_Product] = []

    def watch(self, dy: Tensor, x: Tensor, target: ProductTarget, tape: Tape) -> None:
        """Register a product of a layer: its gradient counts in each example's norm and is clipped with it.

        Args:
            dy: ``[n, B pixels, outputs]``, the gradient at the output; unchanged once computed.
            x: ``[n, B pixels, inputs]``, the input; unchanged once computed.
            target: where the product's gradients go, in the end.
            tape: that computes ``dy``; gives scratch memory.
        """
        dy, x = (torch.unflatten(part, 1, (self._examples, -1)) for part in (dy, x))
        self._products.append(product_of(dy, x, target, tape))

    def add_clipped_(self, weights: Tensor) -> Tensor:
        """Clip the gradient of each example over all layers and add it, times its weight, to the targets.

        An example's gradient is that of all products that `watch` registered, and its norm is over all of
        them. An example whose gradient has an entry that is not finite adds nothing. Call it once, after the
        last `watch`.

        Args:
            weights: of the examples, ``[n, B]``; 0 for rows that hold no example.

        Returns:
            Which examples of positive weight were clipped, bool ``[n, B]``.
        """
        squares = self._products[0].squares()
        for product in self._products[1:]:
            squares += product.squares()
        norms = squares.sqrt_().float()
        drop = ~norms.isfinite()
        # to ask whether there is any would wait for a GPU
        dropped = drop if drop.is_cuda or bool(drop.any()) else None
        factors = scale_factors(norms, self._bound).mul_(weights)
        for product in self._products:
            product.add_(factors, dropped)
        return (~(norms <= self._bound)).logical_and_(weights > 0)


def product_of(dy: Tensor, x: Tensor, target: ProductTarget, tape: Tape) -> _Product:
    """The cheapest of the three ways to clip the examples' gradients ``dy^T x``, ``[n, B, outputs, inputs]``.

    Args:
        dy: gradient at the output, ``[n, B, pixels, outputs]``.
        x: input, ``[n, B, pixels, inputs]``.
        target: where the gradients go.
        tape: gives scratch memory.
    """
    pixels, outputs, inputs = dy.shape[2], dy.shape[3], x.shape[3]
    if pixels == 1:
        return _OnePixel(dy[:, :, 0], x[:, :, 0], target)
    if outputs * inputs <= 2 * pixels * (pixels + inputs):  # no more memory than the other way takes
        return _Stored(dy, x, target, tape)
    return _NotStored(dy, x, target, tape)


@dataclass(frozen=True, eq=False)
class _OnePixel:
    """For layers applied once an example: every gradient is the product of two vectors."""

    dy: Tensor
    x: Tensor
    target: ProductTarget

    def squares(self) -> Tensor:
        """Squared l2 norms of the examples' gradients, weight and bias together, float64 ``[n, B]``."""
        of_input = _norms(self.x).square_()
        return _norms(self.dy).square_() * (of_input if self.target.bias is None else of_input.add_(1.0))

    def add_(self, factors: Tensor, drop: Tensor | None) -> None:
        """Add gradients, each times its factor ``[n, B]``, to the target by one product.

        ``drop``: bool ``[n, B]``, examples that add nothing; ``None``: none.
        """
        self.dy.mul_(factors[:, :, None])
        if drop is not None:
            _clear_(self.dy, drop)
            _clear_(self.x, drop)
        self.target.add_(self.target.weight, self.dy.mT, self.x)
        if self.target.bias is not None:
            self.target.add_(self.target.bias, torch.ones_like(factors)[:, None], self.dy)


class _Stored:
    """Every gradient is small enough to be stored: only the sum over examples counts as rounding.

    Products are of float32, one for each gradient; those of `_NotStored` are of float64, and twice as many.
    Arguments are those of `product_of`.
    """

    def __init__(self, dy: Tensor, x: Tensor, target: ProductTarget, tape: Tape) -> None:
        self._dy, self._x, self._target = dy, x, target
        gradients = tape.empty(x, *x.shape[:2], dy.shape[3], x.shape[3])
        self._gradients, self._out = gradients.flatten(2), gradients.flatten(0, 1)
        self._biases = torch.empty(0)

    def squares(self) -> Tensor:
        """Squared l2 norms of the examples' gradients, weight and bias together, float64 ``[n, B]``.

        Every gradient is computed and stored, for `add_`.
        """
        torch.bmm(self._dy.flatten(0, 1).mT, self._x.flatten(0, 1), out=self._out)
        self._biases = self._dy.sum(dim=2)
        squares = _norms(self._gradients).square_()
        return squares if self._target.bias is None else squares.add_(_norms(self._biases).square_())

    def add_(self, factors: Tensor, drop: Tensor | None) -> None:
        """Add the stored gradients, each times its factor ``[n, B]``, to the target.

        ``drop``: bool ``[n, B]``, examples that add nothing; ``None``: none.
        """
        if drop is not None:
            _clear_(self._gradients, drop)
            _clear_(self._biases, drop)
        target, left = self._target, factors[:, None]
        target.add_(target.weight.flatten(1)[:, None], left, self._gradients)
        if target.bias is not None:
            target.add_(target.bias, left, self._biases)


class _NotStored:
    """Norms follow from the products of all pixels with each other, in float64, as does the sum.

    Arguments are those of `product_of`.
    """

    def __init__(self, dy: Tensor, x: Tensor, target: ProductTarget, tape: Tape) -> None:
        self._dy, self._x, self._target = dy, x, target
        self._wide_x = tape.empty(x, *x.shape, dtype=torch.float64)
        self._wide_weight = tape.empty(x, *target.weight.shape, dtype=torch.float64)

    def squares(self) -> Tensor:
        """Squared l2 norms of the examples' gradients, weight and bias together, float64 ``[n, B]``.

        They follow from products of all pixels with each other, rounded up by what cancellation may hide.
        """
        dy, x = self._dy.double(), self._wide_x.copy_(self._x)
        of_outputs, of_inputs = dy @ dy.mT, x @ x.mT  # of every pixel with every other one
        terms = _trace(of_outputs) * _trace(of_inputs)
        squares = of_outputs.mul_(of_inputs).sum(dim=(2, 3)).clamp_(min=0.0).add_(terms, alpha=_OF_TERMS)
        return squares if self._target.bias is None else squares.add_(dy.sum(dim=2).square_().sum(dim=2))

    def add_(self, factors: Tensor, drop: Tensor | None) -> None:
        """Add gradients, each times its factor ``[n, B]``, to the target by one product in float64.

        ``drop``: bool ``[n, B]``, examples that add nothing; ``None``: none.
        """
        if drop is not None:
            _clear_(self._dy, drop)
            _clear_(self._wide_x, drop)
        target, factors, keep = self._target, factors.double()[:, :, None, None], self._target.keep
        weight = self._wide_weight.copy_(target.weight)
        biases = weight.new_zeros(len(weight), 1, weight.shape[1])
        for some in _blocks(factors.shape[1]):
            dy = (self._dy[:, some] * factors[:, some]).flatten(1, 2)
            weight.baddbmm_(dy.mT, self._wide_x[:, some].flatten(1, 2), beta=keep, alpha=target.scale)
            biases += dy.sum(dim=1, keepdim=True)
            keep = 1.0
        target.weight.copy_(weight)
        if target.bias is not None:
            biases.mul_(target.scale)
            target.bias.copy_(biases if target.keep == 0.0 else biases.add_(target.bias, alpha=target.keep))


def _trace(products: Tensor) -> Tensor:
    """Add up the diagonals of the last two axes: ``[..., a, a]`` to ``[...]``."""
    return products.diagonal(dim1=-2, dim2=-1).sum(dim=-1)


def _blocks(examples: int) -> Iterator[slice]:
    """Slices of at most `BLOCK` examples that cover ``examples``."""
    return (slice(first, first + BLOCK) for first in range(0, examples, BLOCK))


def _norms(vectors: Tensor) -> Tensor:
    """Norms of the last axis of ``[n, B, m]``, float64 ``[n, B]``."""
    flat = vectors.reshape(-1, vectors.shape[2])
    return torch.unflatten(row_norms(flat).double(), 0, vectors.shape[:2])


def _clear_(values: Tensor, drop: Tensor) -> None:
    """Set the rows of ``values`` ``[n, B, ...]`` that ``drop`` ``[n, B]`` marks to zero, in place."""
    values.masked_fill_(drop.reshape(drop.shape + (1,) * (values.dim() - 2)), 0.0)

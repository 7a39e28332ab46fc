"""Clipping the gradient of every example inside a mini-batch, in a chain of hand-written layers.

An example's gradient at a layer is a product of what came in with the gradient of what came out, so its norm
follows from the two (Goodfellow 2015; for convolutions Bu et al. 2022) and no gradient of a single example is
stored for the model. All gradients are linear in the gradient at the logits: once the norms are known, every
layer's outgoing gradient is scaled by its example's factor, and the sum is formed as without a clip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from sfumato.learning.norms import row_norms, scale_factors


class ExampleClip:
    """The clip of a step of n models on batches of B examples.

    Args:
        bound: l2 bound of an example's gradient.
        squares: float64 ``[n, B]``, scratch: the squared norms as far as they are added up.
    """

    def __init__(self, bound: float, squares: Tensor) -> None:
        self.tape: list[Callable[[], object]] = []
        self._bound = bound
        self._squares = squares
        self._pairs: list[tuple[Tensor, Tensor]] = []

    def start(self) -> None:
        """Begin a step: no norms yet."""
        self._squares.zero_()

    def watch(self, dy: Tensor, x: Tensor, *, has_bias: bool) -> Callable[[], None]:
        """What adds a product's part of the squared norms, once ``dy`` and ``x`` are computed.

        Args:
            dy: ``[n, B pixels, outputs]``, the gradient at the output.
            x: ``[n, B pixels, inputs]``, the input.
            has_bias: whether the layer has one.
        """
        examples = self._squares.shape[1]
        pair = tuple(torch.unflatten(part, 1, (examples, -1)) for part in (dy, x))
        self._pairs.append((pair[0], pair[1]))
        return partial(self._add, *self._pairs[-1], has_bias)

    def _add(self, dy: Tensor, x: Tensor, has_bias: bool) -> None:
        self._squares.add_(_squared_norms(dy, x))
        if has_bias:
            self._squares.add_(_norms(dy.sum(dim=2)).square_())

    def scale_(self, weights: Tensor) -> Tensor:
        """Scale every product's ``dy`` by the factors of its examples, and by ``weights`` ``[n, B]``.

        What an example with a gradient that is not finite left anywhere is set to zero.

        Returns:
            Which examples were clipped, bool ``[n, B]``.
        """
        norms = self._squares.sqrt().float()
        finite = norms.isfinite()
        factors = scale_factors(norms, self._bound).mul_(weights)[:, :, None, None]
        for dy, x in self._pairs:
            dy.mul_(factors)
            if not bool(finite.all()):
                dy[~finite] = 0.0
                x[~finite] = 0.0
        return ~(norms <= self._bound) & (weights > 0)


def _norms(vectors: Tensor) -> Tensor:
    """Norms of the last axis of ``[n, B, m]``, float64 ``[n, B]``."""
    flat = vectors.reshape(-1, vectors.shape[2])
    return torch.unflatten(row_norms(flat).double(), 0, vectors.shape[:2])


def _squared_norms(dy: Tensor, x: Tensor) -> Tensor:
    """Squared norms of ``dy^T x`` ``[n, B, outputs, inputs]``, which is not stored where it is large.

    Args:
        dy: ``[n, B, pixels, outputs]``.
        x: ``[n, B, pixels, inputs]``.
    """
    pixels, outputs, inputs = dy.shape[2], dy.shape[3], x.shape[3]
    if pixels == 1:
        return (_norms(dy.flatten(2)) * _norms(x.flatten(2))).square_()
    if outputs * inputs <= 2 * pixels * pixels:
        return _norms((dy.mT @ x).flatten(2)).square_()
    # the sum has terms of both signs: in float32 it could come out too small
    dy, x = dy.double(), x.double()
    return ((dy @ dy.mT) * (x @ x.mT)).sum(dim=(2, 3)).clamp_(min=0.0)

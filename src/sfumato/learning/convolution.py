"""Convolutions of a chain of hand-written gradients as products of patches with kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sfumato.learning.layers import ParameterSlot, Product
from sfumato.learning.patches import ConvolutionSizes, Patches
from sfumato.learning.tape import Tape


class PatchConvolution:
    """A convolution, as a product of its input's patches with its kernels; see `layers.Layer`."""

    def __init__(self, sizes: ConvolutionSizes) -> None:
        self._sizes = sizes
        self._patches_of = Patches(sizes)
        self._product = Product(sizes.patch, sizes.outputs, has_bias=sizes.has_bias)
        self.size, self.blocks, self.out_shape = self._product.size, sizes.blocks, sizes.out_shape
        pixels = math.prod(sizes.pixels)
        padded = math.prod(sizes.padded) * sizes.channels
        self.floats = 2 * (padded + pixels * (sizes.patch + sizes.outputs))
        self._patches = torch.empty(0)

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record on ``tape`` the convolution of images; returns where its output will be.

        Args:
            x: ``[n, B, C, H, W]`` for the first layer, else channels-last ``[n, B, H, W, C]``.
            slot: parameters of the n devices.
            tape: gives scratch memory.

        Returns:
            Channels-last images ``[n, B, rows, columns, channels]``.
        """
        self._patches = self._patches_of.of(x, tape)
        y = self._product.forward(self._patches, slot, tape)
        return y.view(*x.shape[:2], *self._sizes.pixels, -1)

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record the gradients of kernels and bias and, if ``wants_dx``, the gradient at the input.

        Args:
            dy: where the gradient at the output will be, ``[n, B, rows, columns, channels]``; may be
                overwritten.
            slot: parameters, and where their gradients are added.
            tape: gives scratch memory.
            wants_dx: whether the gradient at the input is needed.

        Returns:
            Where the gradient at the input will be; not to be used without ``wants_dx``.
        """
        examples = dy.shape[1]
        dy = dx = dy.view(len(dy), -1, self._sizes.outputs)
        if wants_dx:
            at_patches = self._product.input_gradient(dy, self._patches, slot, tape)
            dx = self._patches_of.input_gradient(at_patches, examples, tape)
        self._product.add_gradients(dy, self._patches, slot, tape)
        return dx

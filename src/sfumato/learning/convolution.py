"""Convolutions of a chain of hand-written gradients."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from sfumato.learning.layers import ParameterSlot, Product, Shape, blocks_of, flat_batch
from sfumato.learning.tape import Constant, Tape


class Conv2dLayer:
    """A convolution, as a product of its input's patches with its kernels."""

    def __init__(self, module: nn.Conv2d, shape: Shape, *, channels_last: bool) -> None:
        channels, height, width = shape
        rows, columns = module.kernel_size
        self._channels, self._kernel, self._channels_last = channels, (rows, columns), channels_last
        self._stride, self._padding = module.stride[0], int(module.padding[0])
        self._padded = (height + 2 * self._padding, width + 2 * self._padding)
        self._pixels = (
            (self._padded[0] - rows) // self._stride + 1,
            (self._padded[1] - columns) // self._stride + 1,
        )
        self.out_shape = (module.out_channels, *self._pixels)
        patch = rows * columns * channels
        self._product = Product(patch, module.out_channels, has_bias=module.bias is not None)
        self.size = self._product.size
        order = (0, 2, 3, 1) if channels_last else (0, 1, 2, 3)
        self.blocks = blocks_of(tuple(module.weight.shape), order, has_bias=module.bias is not None)
        pixels = math.prod(self._pixels)
        self.floats = 2 * (math.prod(self._padded) * channels + pixels * (patch + module.out_channels))
        self._zeros = Constant(0.0)
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
        n, examples = x.shape[:2]
        patches = self._channels_last_patches if self._channels_last else self._channels_first_patches
        self._patches = patches(x, tape)
        y = self._product.forward(self._patches, slot, tape)
        return y.view(n, examples, *self._pixels, -1)

    def _channels_last_patches(self, x: Tensor, tape: Tape) -> Tensor:
        """Record the copy of images ``x`` ``[n, B, H, W, C]`` into their patches, which are returned.

        ``[n, B * pixels, patch]``.
        """
        padded = self._images(x, *self._padded, self._channels).view(-1, *self._padded, self._channels)
        tape.append(partial(self._inside(padded, 1).copy_, flat_batch(x)))
        windows = self._blocks_of(padded, 0, 0, *self._kernel)
        patches = tape.empty(x, *windows.shape)
        tape.append(partial(patches.copy_, windows))
        return patches.view(x.shape[0], x.shape[1] * math.prod(self._pixels), -1)

    def _channels_first_patches(self, x: Tensor, tape: Tape) -> Tensor:
        """Record the copy of images ``x`` ``[n, B, C, H, W]`` into their patches, which are returned.

        ``[n, B * pixels, patch]``.
        """
        # raw images have few channels: rows of pixels are then the longer runs to copy
        padded = self._images(x, self._channels, *self._padded)
        tape.append(partial(self._inside(padded, 3).copy_, x))
        device, example, channel, row, _ = padded.stride()
        windows = padded.as_strided(
            (x.shape[0], self._channels, *self._kernel, x.shape[1], *self._pixels),
            (device, channel, row, 1, example, self._stride * row, self._stride),
        )
        patches = tape.empty(x, *windows.shape)
        tape.append(partial(patches.copy_, windows))
        return patches.view(x.shape[0], -1, x.shape[1] * math.prod(self._pixels)).mT

    def _images(self, x: Tensor, *shape: int) -> Tensor:
        """Memory ``[n, B, *shape]`` for padded images, zero but where steps have written.

        It is shared by steps of all sizes, which write the insides only. ``x`` gives n, B and the device.
        """
        n, examples = x.shape[:2]
        return self._zeros.at_least(x, n * examples * math.prod(shape)).view(n, examples, *shape)

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
        n, examples = dy.shape[:2]
        dy = dy.view(n, examples * math.prod(self._pixels), -1)
        dx = self._input_gradient(dy, slot, tape, n, examples) if wants_dx else dy
        self._product.add_gradients(dy, self._patches, slot, tape)
        return dx

    def _input_gradient(self, dy: Tensor, slot: ParameterSlot, tape: Tape, n: int, examples: int) -> Tensor:
        """Record the gradient at the channels-last input, and return where it will be, ``[n, B, H, W, C]``.

        Args:
            dy: gradient at the output, ``[n, B * pixels, channels]``.
            slot: has the kernels.
            tape: gives scratch memory.
            n: devices.
            examples: B, of each device.
        """
        rows, columns = self._kernel
        patches = self._product.input_gradient(dy, self._patches, slot, tape)
        patches = patches.view(n * examples, *self._pixels, rows, columns * self._channels)
        padded = tape.empty(dy, n * examples, *self._padded, self._channels)
        tape.append(padded.zero_)
        # Windows overlap, but blocks of stride x stride of their pixels do not: one addition for each block.
        for top in range(0, rows, self._stride):
            height = min(self._stride, rows - top)
            for left in range(0, columns, self._stride):
                width = min(self._stride, columns - left)
                block = self._blocks_of(padded, top, left, height, width)
                part = patches[:, :, :, top : top + height]
                part = part[..., left * self._channels : (left + width) * self._channels]
                tape.append(partial(block.add_, part))
        inside = self._inside(padded, 1)
        dx = tape.empty(dy, *inside.shape)
        tape.append(partial(dx.copy_, inside))
        return torch.unflatten(dx, 0, (n, examples))

    def _inside(self, padded: Tensor, axis: int) -> Tensor:
        """A view of padded images without their padding; rows are axis ``axis``, columns the next."""
        for side, length in enumerate(self._padded):
            padded = padded.narrow(axis + side, self._padding, length - 2 * self._padding)
        return padded

    def _blocks_of(self, padded: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
        """A view of the block at (``top``, ``left``) of every window of padded images.

        ``padded``: channels-last ``[examples, H, W, C]``. The block is ``height`` by ``width``; the view is
        ``[examples, out height, out width, height, width * C]``.
        """
        example, row, pixel, _ = padded.stride()
        return padded.as_strided(
            (len(padded), *self._pixels, height, width * pixel),
            (example, self._stride * row, self._stride * pixel, row, 1),
            top * row + left * pixel,
        )

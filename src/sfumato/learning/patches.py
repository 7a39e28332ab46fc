"""Convolutions of a chain of hand-written gradients: their sizes, and the patches of their input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from sfumato.learning.layers import Block, Shape, blocks_of, flat_batch
from sfumato.learning.tape import Constant, Tape


@dataclass(frozen=True)
class ConvolutionSizes:
    """Sizes of a convolution of one group, without dilation, that pads with zeros.

    Attributes:
        channels: of the input.
        image: height and width of the input.
        outputs: channels of the output.
        kernel: rows and columns.
        stride: of both axes.
        padding: rows and columns of zeros on each side.
        has_bias: whether there is a bias.
        channels_last: whether the input is ``[n, B, H, W, C]``; else it is ``[n, B, C, H, W]``.
    """

    channels: int
    image: tuple[int, int]
    outputs: int
    kernel: tuple[int, int]
    stride: int
    padding: int
    has_bias: bool
    channels_last: bool

    @classmethod
    def of(cls, module: nn.Conv2d, shape: Shape, *, channels_last: bool) -> ConvolutionSizes:
        """The sizes of ``module`` for examples of ``shape`` ``(C, H, W)``."""
        channels, height, width = shape
        rows, columns = module.kernel_size
        return cls(
            channels,
            (height, width),
            module.out_channels,
            (rows, columns),
            module.stride[0],
            int(module.padding[0]),
            module.bias is not None,
            channels_last,
        )

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of the input with its padding."""
        height, width = self.image
        return height + 2 * self.padding, width + 2 * self.padding

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of the output."""
        (height, width), (rows, columns) = self.padded, self.kernel
        return (height - rows) // self.stride + 1, (width - columns) // self.stride + 1

    @property
    def patch(self) -> int:
        """Numbers of the input that a pixel of the output follows from."""
        return math.prod(self.kernel) * self.channels

    @property
    def out_shape(self) -> Shape:
        """``(C, H, W)`` of the output."""
        return self.outputs, *self.pixels

    @property
    def blocks(self) -> Sequence[Block]:
        """See `layers.Layer`: kernels are packed in the order of the input's axes."""
        order = (0, 2, 3, 1) if self.channels_last else (0, 1, 2, 3)
        return blocks_of((self.outputs, self.channels, *self.kernel), order, has_bias=self.has_bias)


class Patches:
    """Copies a convolution's input into patches: what each pixel of the output follows from."""

    def __init__(self, sizes: ConvolutionSizes) -> None:
        self._sizes = sizes
        self._zeros = Constant(0.0)

    def of(self, x: Tensor, tape: Tape) -> Tensor:
        """Record the copy of images ``x`` into their patches ``[n, B * pixels, patch]``, which are returned.

        ``x``: as the sizes say.
        """
        return self._channels_last(x, tape) if self._sizes.channels_last else self._channels_first(x, tape)

    def _channels_last(self, x: Tensor, tape: Tape) -> Tensor:
        """`of`, for images ``[n, B, H, W, C]``."""
        sizes = self._sizes
        padded = self._images(x, *sizes.padded, sizes.channels).view(-1, *sizes.padded, sizes.channels)
        tape.append(partial(self._inside(padded, 1).copy_, flat_batch(x)))
        windows = self._blocks_of(padded, 0, 0, *sizes.kernel)
        patches = tape.empty(x, *windows.shape)
        tape.append(partial(patches.copy_, windows))
        return patches.view(x.shape[0], x.shape[1] * math.prod(sizes.pixels), -1)

    def _channels_first(self, x: Tensor, tape: Tape) -> Tensor:
        """`of`, for images ``[n, B, C, H, W]``."""
        # raw images have few channels: rows of pixels are then the longer runs to copy
        sizes = self._sizes
        padded = self._images(x, sizes.channels, *sizes.padded)
        tape.append(partial(self._inside(padded, 3).copy_, x))
        device, example, channel, row, _ = padded.stride()
        windows = padded.as_strided(
            (x.shape[0], sizes.channels, *sizes.kernel, x.shape[1], *sizes.pixels),
            (device, channel, row, 1, example, sizes.stride * row, sizes.stride),
        )
        patches = tape.empty(x, *windows.shape)
        tape.append(partial(patches.copy_, windows))
        return patches.view(x.shape[0], -1, x.shape[1] * math.prod(sizes.pixels)).mT

    def _images(self, x: Tensor, *shape: int) -> Tensor:
        """Memory ``[n, B, *shape]`` for padded images, zero but where steps have written.

        It is shared by steps of all sizes, which write the insides only. ``x`` gives n, B and the device.
        """
        n, examples = x.shape[:2]
        return self._zeros.at_least(x, n * examples * math.prod(shape)).view(n, examples, *shape)

    def input_gradient(self, gradient: Tensor, examples: int, tape: Tape) -> Tensor:
        """Record the gradient at channels-last images; returns where it will be, ``[n, B, H, W, C]``.

        Args:
            gradient: at the patches, ``[n, B * pixels, patch]``.
            examples: B, of each device.
            tape: gives scratch memory.
        """
        sizes = self._sizes
        (rows, columns), channels, stride = sizes.kernel, sizes.channels, sizes.stride
        n = len(gradient)
        patches = gradient.view(n * examples, *sizes.pixels, rows, columns * channels)
        padded = tape.empty(gradient, n * examples, *sizes.padded, channels)
        tape.append(padded.zero_)
        # Windows overlap, but blocks of stride x stride of their pixels do not: one addition for each block.
        for top in range(0, rows, stride):
            height = min(stride, rows - top)
            for left in range(0, columns, stride):
                width = min(stride, columns - left)
                block = self._blocks_of(padded, top, left, height, width)
                part = patches[:, :, :, top : top + height]
                part = part[..., left * channels : (left + width) * channels]
                tape.append(partial(block.add_, part))
        inside = self._inside(padded, 1)
        dx = tape.empty(gradient, *inside.shape)
        tape.append(partial(dx.copy_, inside))
        return torch.unflatten(dx, 0, (n, examples))

    def _inside(self, padded: Tensor, axis: int) -> Tensor:
        """A view of padded images without their padding; rows are axis ``axis``, columns the next."""
        for side, length in enumerate(self._sizes.image):
            padded = padded.narrow(axis + side, self._sizes.padding, length)
        return padded

    def _blocks_of(self, padded: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
        """A view of the block at (``top``, ``left``) of every window of padded images.

        ``padded``: channels-last ``[examples, H, W, C]``. The block is ``height`` by ``width``; the view is
        ``[examples, out height, out width, height, width * C]``.
        """
        example, row, pixel, _ = padded.stride()
        stride = self._sizes.stride
        return padded.as_strided(
            (len(padded), *self._sizes.pixels, height, width * pixel),
            (example, stride * row, stride * pixel, row, 1),
            top * row + left * pixel,
        )

"""Convolutions of a chain of hand-written gradients, those of all devices as groups of one: for a CPU."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfumato.learning.layers import ParameterSlot, Product
from sfumato.learning.patches import ConvolutionSizes, Patches
from sfumato.learning.tape import Constant, Tape, add_scaled_

_backward = torch.ops.aten.convolution_backward


class GroupedConvolution:
    """A convolution, of n devices as n groups of one convolution by the library; see `layers.Layer`.

    On a CPU with AVX-512 this takes about half the time of products with patches: no patches are copied or
    added up, and oneDNN's convolutions are up to twice as fast as batched products. Its results are new
    memory, which is copied to that of the tape; a GPU takes `PatchConvolution`.

    *Input gradient.* With a stride of s the padded input is taken apart into s x s phases: pixels whose row
    and column have the same remainder by s. Phases are channels of an image that is s times smaller each way,
    and the convolution is one with stride 1 of that image, each tap of its kernel a block of s x s taps. The
    gradient is computed there, as oneDNN takes up to twice as long with a stride, and pixels then go back to
    their places.

    A clip of examples forms gradients of its own, for which the patches are copied.
    """

    def __init__(self, sizes: ConvolutionSizes) -> None:
        self._sizes = sizes
        self._phases = [_Phases(sizes, axis) for axis in (0, 1)]
        self._patches_of = Patches(sizes)
        self._product = Product(sizes.patch, sizes.outputs, has_bias=sizes.has_bias)
        self.size, self.blocks, self.out_shape = self._product.size, sizes.blocks, sizes.out_shape
        image, pixels = math.prod(sizes.image) * sizes.channels, math.prod(sizes.pixels) * sizes.outputs
        self.floats = 2 * (image + pixels)
        self.floats_of_clip = math.prod(sizes.pixels) * sizes.patch  # patches, where examples are clipped
        self._zeros = Constant(0.0)
        self._images = self._kernels = self._patches = torch.empty(0)

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
        sizes = self._sizes
        if slot.clip is not None:
            self._patches = self._patches_of.of(x, tape)
        self._images = _grouped(x if sizes.channels_last else x.movedim(2, -1), tape)
        weight = self._by_axis(self._product.weight(slot.parameters))
        self._kernels = tape.empty(x, *weight.shape)
        tape.append(partial(self._kernels.copy_, weight))
        y = tape.empty(x, n, examples, *sizes.pixels, sizes.outputs)
        bias = self._product.bias(slot.parameters) if sizes.has_bias else None
        tape.append(partial(self._convolve, self._images, self._kernels, bias, y))
        return y

    def _convolve(self, images: Tensor, kernels: Tensor, bias: Tensor | None, y: Tensor) -> None:
        """Write the convolution of grouped ``images`` to ``y`` ``[n, B, rows, columns, channels]``."""
        sizes = self._sizes
        found = torch.conv2d(
            images,
            _as_groups(kernels),
            None if bias is None else bias.flatten(),
            sizes.stride,
            sizes.padding,
            groups=len(kernels),
        )
        y.permute(1, 2, 3, 0, 4).copy_(torch.unflatten(found.movedim(1, -1), 3, (len(kernels), -1)))

    def _by_axis(self, weight: Tensor) -> Tensor:
        """A view of packed kernels ``[n, O, patch]`` as ``[n, O, rows, columns, C]``."""
        sizes = self._sizes
        if sizes.channels_last:
            return torch.unflatten(weight, 2, (*sizes.kernel, sizes.channels))
        return torch.unflatten(weight, 2, (sizes.channels, *sizes.kernel)).movedim(2, -1)

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
        n = len(dy)
        flat = dy.view(n, -1, self._sizes.outputs)
        dx = dy
        if wants_dx or slot.clip is None:
            grouped = _grouped(dy, tape)
        if wants_dx:
            dx = self._input_gradient(grouped, n, tape)
        if slot.clip is not None:
            self._product.add_gradients(flat, self._patches, slot, tape)
            return dx
        tape.append(partial(self._add_weight_gradient, grouped, self._images, self._kernels, slot))
        self._product.add_bias_gradient(flat, slot, tape)
        return dx

    def _add_weight_gradient(self, dy: Tensor, images: Tensor, kernels: Tensor, slot: ParameterSlot) -> None:
        """Add the gradient of the kernels to the slot's target; ``dy`` and ``images`` are grouped."""
        sizes = self._sizes
        _, found, _ = _backward(
            dy,
            images,
            _as_groups(kernels),
            None,
            (sizes.stride,) * 2,
            (sizes.padding,) * 2,
            (1, 1),
            False,
            (0, 0),
            len(kernels),
            (False, True, False),
        )
        gradient = torch.unflatten(found.movedim(1, -1), 0, kernels.shape[:2])
        add_scaled_(self._by_axis(self._product.weight(slot.target)), gradient, slot.keep, slot.scale)

    def _input_gradient(self, dy: Tensor, n: int, tape: Tape) -> Tensor:
        """Record the gradient at the channels-last input; returns where it will be, ``[n, B, H, W, C]``.

        ``dy``: at the output, grouped; ``n``: devices.
        """
        rows, columns = self._phases
        stride, channels = self._sizes.stride, self._sizes.channels
        kernels = self._phase_kernels(tape)
        whole = tape.empty(dy, n, len(dy), rows.count, stride, columns.count, stride, channels)
        tape.append(partial(self._convolve_back, dy, kernels, whole))
        image = whole.view(n, len(dy), rows.count * stride, columns.count * stride, channels)
        missing = (0, 0, *columns.missing, *rows.missing)
        if not any(missing):
            return image
        dx = tape.empty(dy, n, len(dy), *self._sizes.image, channels)
        tape.append(lambda: dx.copy_(pad(image, missing)))
        return dx

    def _phase_kernels(self, tape: Tape) -> Tensor:
        """Record the copy of the kernels to those of the convolution of phases, which are returned.

        ``[n, O, taps, taps, s, s, C]``, the last three of which are the channels of a phase image.
        """
        n, outputs, height, width, channels = self._kernels.shape
        rows, columns = self._phases
        stride = self._sizes.stride
        if stride == 1:
            return self._kernels
        # taps that a phase lacks are zero
        filled = (n, outputs, rows.taps * stride, columns.taps * stride, channels)
        blocks = self._zeros.at_least(self._kernels, math.prod(filled)).view(filled)
        tape.append(partial(blocks[:, :, :height, :width].copy_, self._kernels))
        blocks = blocks.view(n, outputs, rows.taps, stride, columns.taps, stride, channels).transpose(3, 4)
        kernels = tape.empty(self._kernels, *blocks.shape)
        tape.append(partial(kernels.copy_, blocks))
        return kernels

    def _convolve_back(self, dy: Tensor, kernels: Tensor, whole: Tensor) -> None:
        """Write the gradient at all phases to their places in images ``[n, B, rows, s, columns, s, C]``.

        ``dy``: at the output, grouped; ``kernels``: of the phases.
        """
        rows, columns = self._phases
        places = whole.permute(1, 2, 4, 0, 3, 5, 6)
        found, _, _ = _backward(
            dy,
            whole.view(len(dy), rows.count, columns.count, -1).movedim(-1, 1),  # only its shape matters
            _as_groups(kernels),
            None,
            (1, 1),
            (rows.cropped, columns.cropped),
            (1, 1),
            False,
            (0, 0),
            len(kernels),
            (True, False, False),
        )
        places.copy_(torch.unflatten(found.movedim(1, -1), 3, places.shape[3:]))


class _Phases:
    """The phases of a padded axis of k taps, P output pixels and stride s: phase f has pixels s q + f.

    Attributes:
        taps: of a phase, ⌈k/s⌉.
        cropped: pixels of a phase that are left out on each side, as they are padding.
        count: pixels of a phase that are left.
        missing: what is missing before and after the pixels of all phases together, to be the input; negative
            where some of them are padding.
    """

    def __init__(self, sizes: ConvolutionSizes, axis: int) -> None:
        stride, padding, length = sizes.stride, sizes.padding, sizes.image[axis]
        self.taps = -(-sizes.kernel[axis] // stride)
        last = sizes.pixels[axis] + self.taps - 2  # pixel of a phase that the output follows from
        first_wanted, last_wanted = padding // stride, min((padding + length - 1) // stride, last)
        self.cropped = min(first_wanted, last - last_wanted)
        self.count = last + 1 - 2 * self.cropped
        before = stride * self.cropped - padding
        self.missing = before, length - before - stride * self.count


def _grouped(images: Tensor, tape: Tape) -> Tensor:
    """Record the copy of ``[n, B, H, W, C]`` to grouped images, which are returned; perhaps a view will do.

    Grouped: the channels of all devices side by side, ``[B, n C, H, W]``, channels-last in memory.
    """
    grouped = images.permute(1, 2, 3, 0, 4)
    is_grouped = grouped.is_contiguous()  # as with one device; a tape asks for its tensors all the same
    memory = tape.empty(images, *(0 if is_grouped else side for side in grouped.shape))
    if not is_grouped:
        tape.append(partial(memory.copy_, grouped))
        grouped = memory
    return grouped.flatten(3).movedim(-1, 1)


def _as_groups(kernels: Tensor) -> Tensor:
    """A view of kernels ``[n, O, rows, columns, ...]`` as ``[n O, C, rows, columns]``, channels-last."""
    return kernels.flatten(4).flatten(0, 1).movedim(-1, 1)

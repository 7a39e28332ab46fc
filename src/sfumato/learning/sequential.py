"""Hand-written gradients for chains of simple layers, every device with weights of its own.

What makes them fast on a CPU: a step is a fixed list of batched matrix products and in-place passes over
scratch memory that is laid out once, so that little Python runs between them; the weights' gradients are
added straight into their target, so that plain SGD passes over the weights twice a step; and activations
lie channels-last, so that a convolution's patches are copied in long runs. On CUDA they run unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

Shape = tuple[int, ...]
Block = tuple[Shape, Shape]
Tape = list[Callable[[], object]]

_relu_backward = torch.ops.aten.threshold_backward.grad_input
_max_pool = torch.ops.aten.max_pool2d_with_indices.out
_max_pool_backward = torch.ops.aten.max_pool2d_with_indices_backward.grad_input


@dataclass(frozen=True)
class Slot:
    """A layer's parameters and where their gradients go: ``target <- keep target + scale gradient``."""

    parameters: Tensor
    target: Tensor
    keep: float
    scale: float


class Layer(Protocol):
    """One layer of a chain, for n devices and B examples of each.

    Attributes:
        size: parameters of one device.
        blocks: the flat order of the parameters, as ``(flat shape, permutation to packed order)``.
        floats: float32 scratch of one device and example.
    """

    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def blocks(self) -> Sequence[Block]: ...  # noqa: D102
    @property
    def floats(self) -> int: ...  # noqa: D102

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        """Record how to compute the output from what ``x`` ``[n, B, ...]`` will hold; may overwrite ``x``."""

    def backward(self, dy: Tensor, slot: Slot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record how to compute the gradients, given what ``dy`` will hold at the output; may overwrite it.

        Returns:
            Where the gradient at the input will be, if wanted.
        """


class SequentialStep:
    """One gradient step of n devices over fixed memory; see `gradients.Step`."""

    def __init__(self, features: Tensor, logits: Tensor, dy: Tensor, forward: Tape, backward: Tape) -> None:
        self.features = features
        self._logits, self._dy = logits, dy
        self._forward, self._backward = forward, backward
        self._minus_one = dy.new_full((), -1.0).expand(*dy.shape[:2], 1)

    def __call__(self, labels: Tensor, weights: Tensor) -> None:
        """Add the gradients at ``features`` for ``labels`` and ``weights``, both ``[n, B]``."""
        for operation in self._forward:
            operation()
        # The gradient of the weighted cross-entropy at the logits: weights * (softmax - one-hot).
        torch.softmax(self._logits, dim=2, out=self._dy)
        self._dy.scatter_add_(2, labels.unsqueeze(2), self._minus_one)
        self._dy.mul_(weights.unsqueeze(2))
        for operation in self._backward:
            operation()


class SequentialGradient:
    """Mean cross-entropy gradients of a chain of layers; see `gradients.StackedGradient`."""

    def __init__(self, layers: Sequence[Layer], shape: Shape) -> None:
        self._layers, self._shape = layers, shape
        self._example_floats = math.prod(shape) + sum(layer.floats for layer in layers)
        stops = [sum(layer.size for layer in layers[: i + 1]) for i in range(len(layers))]
        self._spans = list(pairwise([0, *stops]))
        self._first_trained = next(i for i, layer in enumerate(layers) if layer.size)

    def scratch_floats(self, batch: int) -> int:
        """About how many float32 entries one model's step takes, on batches this long."""
        return batch * self._example_floats

    def pack(self, flat: Tensor, out: Tensor) -> None:
        """Write flat vectors ``[n, M]`` as packed ones, whose images and kernels are channels-last."""
        for start, stop, shape, order in self._blocks():
            source = torch.unflatten(flat[:, start:stop], 1, shape).permute(0, *(axis + 1 for axis in order))
            out[:, start:stop].view(source.shape).copy_(source)

    def unpack(self, packed: Tensor, out: Tensor) -> None:
        """Write packed vectors ``[n, M]`` as flat ones."""
        for start, stop, shape, order in self._blocks():
            target = torch.unflatten(out[:, start:stop], 1, shape).permute(0, *(axis + 1 for axis in order))
            target.copy_(packed[:, start:stop].view(target.shape))

    def _blocks(self) -> list[tuple[int, int, Shape, Shape]]:
        blocks = [block for layer in self._layers for block in layer.blocks]
        stops = [sum(math.prod(shape) for shape, _ in blocks[: i + 1]) for i in range(len(blocks))]
        spans = pairwise([0, *stops])
        return [(*span, shape, order) for span, (shape, order) in zip(spans, blocks, strict=True)]

    def bind(
        self, models: Tensor, target: Tensor, batch: int, *, keep: float, scale: float
    ) -> SequentialStep:
        """A step ``target <- keep target + scale gradient``; see `gradients.StackedGradient`."""
        slots = [
            Slot(models[:, start:stop], target[:, start:stop], keep, scale) for start, stop in self._spans
        ]
        forward: Tape = []
        backward: Tape = []
        features = models.new_empty(len(models), batch, *self._shape)
        x = features
        for layer, slot in zip(self._layers, slots, strict=True):
            x = layer.forward(x, slot, forward)
        dy = at_logits = torch.empty_like(x)
        for i in range(len(self._layers) - 1, self._first_trained - 1, -1):
            dy = self._layers[i].backward(dy, slots[i], backward, wants_dx=i > self._first_trained)
        return SequentialStep(features, x, at_logits, forward, backward)


def as_layers(model: nn.Module, shape: Shape) -> list[Layer] | None:
    """A model as a chain of layers for examples of this shape, or ``None`` if it is not one."""
    if type(model) is not nn.Sequential or _shares_parameters(model):
        return None
    layers: list[Layer] = []
    channels_last = False
    image: Shape | None = None  # the (C, H, W) that a flattened channels-last image had
    for module in model:
        if _is_hooked(module) or not all(p.requires_grad for p in module.parameters()):
            return None
        if type(module) is nn.Flatten and module.start_dim == 1 and module.end_dim == -1:
            if channels_last and len(shape) == 3:
                image = shape
            layers.append(_Flatten())
            shape = (math.prod(shape),)
        elif type(module) is nn.Linear and shape == (module.in_features,):
            layers.append(_Linear(module, image))
            shape, image = (module.out_features,), None
        elif type(module) is nn.ReLU:
            layers.append(_ReLU())
        elif type(module) is nn.Conv2d and _is_plain(module) and len(shape) == 3:
            conv = _Conv2d(module, shape, channels_last=channels_last)
            layers.append(conv)
            shape, channels_last = conv.out_shape, True
        elif type(module) is nn.MaxPool2d and channels_last and len(shape) == 3 and not module.return_indices:
            pool = _MaxPool2d(module, shape)
            layers.append(pool)
            shape = pool.out_shape
        else:
            return None
    is_classifier = len(shape) == 1 and image is None
    return layers if is_classifier and any(layer.size for layer in layers) else None


def _shares_parameters(model: nn.Sequential) -> bool:
    parameters = [id(p) for module in model for p in module.parameters()]
    return len(parameters) != len(set(parameters))


def _is_hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._buffers)
    return any(hooks)


def _is_plain(conv: nn.Conv2d) -> bool:
    return (
        conv.groups == 1
        and conv.dilation == (1, 1)
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
        and len(set(conv.stride)) == len(set(conv.padding)) == 1
    )


class _Flatten:
    size = 0
    blocks: Sequence[Block] = ()
    floats = 0

    def __init__(self) -> None:
        self._shape: Shape = ()

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        self._shape = tuple(x.shape)
        return x.view(*x.shape[:2], -1)

    def backward(self, dy: Tensor, slot: Slot, tape: Tape, *, wants_dx: bool) -> Tensor:
        return dy.view(self._shape)


class _ReLU:
    size = 0
    blocks: Sequence[Block] = ()
    floats = 0

    def __init__(self) -> None:
        self._y = torch.empty(0)

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        self._y = x
        tape.append(partial(x.clamp_min_, 0))
        return x

    def backward(self, dy: Tensor, slot: Slot, tape: Tape, *, wants_dx: bool) -> Tensor:
        tape.append(partial(_relu_backward, dy, self._y, 0, grad_input=dy))
        return dy


class _Linear:
    def __init__(self, module: nn.Linear, image: Shape | None) -> None:
        self._product = _Product(module.in_features, module.out_features, has_bias=module.bias is not None)
        self.size = self._product.size
        weight = (module.out_features, *(image or (module.in_features,)))
        order = (0, 1) if image is None else (0, 2, 3, 1)
        self.blocks = _blocks(weight, order, has_bias=module.bias is not None)
        self.floats = module.out_features + module.in_features
        self._x = torch.empty(0)

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        self._x = x
        return self._product.forward(x, slot, tape)

    def backward(self, dy: Tensor, slot: Slot, tape: Tape, *, wants_dx: bool) -> Tensor:
        dx = self._product.input_gradient(dy, slot, tape) if wants_dx else dy
        self._product.add_gradients(dy, self._x, slot, tape)
        return dx


class _Conv2d:
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
        self._product = _Product(patch, module.out_channels, has_bias=module.bias is not None)
        self.size = self._product.size
        order = (0, 2, 3, 1) if channels_last else (0, 1, 2, 3)
        self.blocks = _blocks(tuple(module.weight.shape), order, has_bias=module.bias is not None)
        pixels = math.prod(self._pixels)
        self.floats = 2 * (math.prod(self._padded) * channels + pixels * (patch + module.out_channels))
        self._patches = torch.empty(0)

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        n, examples = x.shape[:2]
        patches = self._channels_last_patches if self._channels_last else self._channels_first_patches
        self._patches = patches(x, tape)
        y = self._product.forward(self._patches, slot, tape)
        return y.view(n, examples, *self._pixels, -1)

    def _channels_last_patches(self, x: Tensor, tape: Tape) -> Tensor:
        padded = x.new_zeros(x.shape[0] * x.shape[1], *self._padded, self._channels)
        tape.append(partial(self._inside(padded, 1).copy_, _merge(x)))
        windows = self._blocks_of(padded, 0, 0, *self._kernel)
        patches = torch.empty_like(windows, memory_format=torch.contiguous_format)
        tape.append(partial(patches.copy_, windows))
        return patches.view(x.shape[0], x.shape[1] * math.prod(self._pixels), -1)

    def _channels_first_patches(self, x: Tensor, tape: Tape) -> Tensor:
        """Of raw images, which have few channels: rows of pixels are then the longer runs to copy."""
        padded = x.new_zeros(*x.shape[:3], *self._padded)
        tape.append(partial(self._inside(padded, 3).copy_, x))
        device, example, channel, row, _ = padded.stride()
        windows = padded.as_strided(
            (x.shape[0], self._channels, *self._kernel, x.shape[1], *self._pixels),
            (device, channel, row, 1, example, self._stride * row, self._stride),
        )
        patches = torch.empty_like(windows, memory_format=torch.contiguous_format)
        tape.append(partial(patches.copy_, windows))
        return patches.view(x.shape[0], -1, x.shape[1] * math.prod(self._pixels)).mT

    def backward(self, dy: Tensor, slot: Slot, tape: Tape, *, wants_dx: bool) -> Tensor:
        n, examples = dy.shape[:2]
        dy = dy.view(n, examples * math.prod(self._pixels), -1)
        dx = self._input_gradient(dy, slot, tape, n, examples) if wants_dx else dy
        self._product.add_gradients(dy, self._patches, slot, tape)
        return dx

    def _input_gradient(self, dy: Tensor, slot: Slot, tape: Tape, n: int, examples: int) -> Tensor:
        """Of channels-last input: raw images need none."""
        rows, columns = self._kernel
        patches = self._product.input_gradient(dy, slot, tape)
        patches = patches.view(n * examples, *self._pixels, rows, columns * self._channels)
        padded = dy.new_empty(n * examples, *self._padded, self._channels)
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
        dx = torch.empty_like(inside, memory_format=torch.contiguous_format)
        tape.append(partial(dx.copy_, inside))
        return torch.unflatten(dx, 0, (n, examples))

    def _inside(self, padded: Tensor, axis: int) -> Tensor:
        """Images without their padding; their rows and columns are the axes from ``axis`` on."""
        for side, length in enumerate(self._padded):
            padded = padded.narrow(axis + side, self._padding, length - 2 * self._padding)
        return padded

    def _blocks_of(self, padded: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
        """The same block of every window: ``[examples, out height, out width, height, width * channels]``."""
        example, row, pixel, _ = padded.stride()
        return padded.as_strided(
            (len(padded), *self._pixels, height, width * pixel),
            (example, self._stride * row, self._stride * pixel, row, 1),
            top * row + left * pixel,
        )


class _MaxPool2d:
    size = 0
    blocks: Sequence[Block] = ()

    def __init__(self, module: nn.MaxPool2d, shape: Shape) -> None:
        sizes = (module.kernel_size, module.stride, module.padding, module.dilation)
        pairs = [[side, side] if isinstance(side, int) else list(side) for side in sizes]
        self._options: tuple[Any, ...] = (*pairs, module.ceil_mode)
        pooled = max_pool2d(torch.empty(1, *shape, device="meta"), *self._options)
        self.out_shape = tuple(pooled.shape[1:])
        self.floats = math.prod(shape) + 4 * math.prod(self.out_shape)
        self._x = self._where = torch.empty(0)

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        self._x = _merge(x).movedim(-1, 1)
        y = self._channels_last(x)
        self._where = torch.empty_like(y, dtype=torch.long)
        tape.append(partial(_max_pool, self._x, *self._options, out=y, indices=self._where))
        return torch.unflatten(y.movedim(1, -1), 0, x.shape[:2])

    def backward(self, dy: Tensor, slot: Slot, tape: Tape, *, wants_dx: bool) -> Tensor:
        dx = torch.empty_like(self._x)
        flat = _merge(dy).movedim(-1, 1)
        tape.append(partial(_max_pool_backward, flat, self._x, *self._options, self._where, grad_input=dx))
        return torch.unflatten(dx.movedim(1, -1), 0, dy.shape[:2])

    def _channels_last(self, x: Tensor) -> Tensor:
        shape = (x.shape[0] * x.shape[1], *self.out_shape)
        return torch.empty(shape, device=x.device, memory_format=torch.channels_last)


class _Product:
    """``y = x W^T + b`` for stacks of ``x`` ``[n, rows, inputs]``, and its gradients."""

    def __init__(self, inputs: int, outputs: int, *, has_bias: bool) -> None:
        self._inputs, self._outputs, self._has_bias = inputs, outputs, has_bias
        self.size = outputs * (inputs + has_bias)

    def _weight(self, vectors: Tensor) -> Tensor:
        return torch.unflatten(vectors[:, : self._outputs * self._inputs], 1, (self._outputs, self._inputs))

    def _bias(self, vectors: Tensor) -> Tensor:
        return vectors[:, None, self._outputs * self._inputs :]

    def forward(self, x: Tensor, slot: Slot, tape: Tape) -> Tensor:
        y = x.new_empty(*x.shape[:2], self._outputs)
        weight = self._weight(slot.parameters).mT
        if self._has_bias:
            tape.append(partial(torch.baddbmm, self._bias(slot.parameters), x, weight, out=y))
        else:
            tape.append(partial(torch.bmm, x, weight, out=y))
        return y

    def input_gradient(self, dy: Tensor, slot: Slot, tape: Tape) -> Tensor:
        """Recorded before `add_gradients`: the target may be the parameters themselves."""
        dx = dy.new_empty(*dy.shape[:2], self._inputs)
        tape.append(partial(torch.bmm, dy, self._weight(slot.parameters), out=dx))
        return dx

    def add_gradients(self, dy: Tensor, x: Tensor, slot: Slot, tape: Tape) -> None:
        options = {"beta": slot.keep, "alpha": slot.scale}
        tape.append(partial(self._weight(slot.target).baddbmm_, dy.mT, x, **options))
        if self._has_bias:
            ones = dy.new_ones(len(dy), 1, dy.shape[1])
            tape.append(partial(self._bias(slot.target).baddbmm_, ones, dy, **options))


def _merge(x: Tensor) -> Tensor:
    """A view with devices and examples as one axis: a copy would not see what later steps write."""
    return x.view(-1, *x.shape[2:])


def _blocks(weight: Shape, order: Shape, *, has_bias: bool) -> list[Block]:
    return [(weight, order), *([((weight[0],), (0,))] if has_bias else [])]

"""The layers that a chain of hand-written gradients can hold, but for convolutions.

Every layer appends operations over fixed memory to a tape; running the tape computes outputs or gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from sfumato.learning.dropout import DropoutCall
from sfumato.learning.example_clip import ExampleClip, ProductTarget
from sfumato.learning.tape import Constant, Tape, add_product_

Shape = tuple[int, ...]
Block = tuple[Shape, Shape]

_FEW_OUTPUTS = 12  # measured: from 16 on, products with their outputs in rows are the faster ones

_relu_backward = torch.ops.aten.threshold_backward.grad_input
_max_pool = torch.ops.aten.max_pool2d_with_indices.out
_max_pool_backward = torch.ops.aten.max_pool2d_with_indices_backward.grad_input


@dataclass(frozen=True)
class ParameterSlot:
    """A layer's parameters and where their gradients go: ``target <- keep target + scale gradient``.

    Attributes:
        parameters: packed ``[n, size]``.
        target: packed ``[n, size]``, perhaps the parameters themselves.
        keep: what the target is multiplied by.
        scale: what the gradient is multiplied by.
        clip: where every example's gradient is clipped; ``None`` where it is not.
    """

    parameters: Tensor
    target: Tensor
    keep: float
    scale: float
    clip: ExampleClip | None = None


class Layer(Protocol):
    """One layer of a chain, for n devices and B examples of each.

    Every operation that a layer records is done when the tape runs.
    """

    @property
    def size(self) -> int:
        """Number of the layer's parameters, of one device."""

    @property
    def blocks(self) -> Sequence[Block]:
        """The layer's parameters in flat order, as ``(flat shape, permutation to packed order)`` each."""

    @property
    def floats(self) -> int:
        """Float32 entries of scratch memory for one device and one example."""

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record on ``tape`` the computation of the output from ``x``; returns the memory it will be in.

        Args:
            x: the layer's input, ``[n, B, ...]`` for n devices; it may be overwritten.
            slot: parameters of the devices.
            tape: gives scratch memory.
        """

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record the computation of the gradients from ``dy``, the gradient at the output.

        With ``slot.clip`` the clip adds the parameters' gradients, once all norms are known.

        Args:
            dy: the gradient at the output, ``[n, B, ...]``; it may be overwritten.
            slot: parameters, and where their gradients are added.
            tape: gives scratch memory.
            wants_dx: whether the gradient at the input is needed.

        Returns:
            The memory that the gradient at the input will be in, if wanted.
        """


class FlattenLayer:
    """Flattens every example."""

    size = 0
    blocks: Sequence[Block] = ()
    floats = 0

    def __init__(self) -> None:
        self._shape: Shape = ()

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """A view of ``x`` ``[n, B, ...]`` as ``[n, B, inputs]``; nothing is recorded."""
        self._shape = tuple(x.shape)
        return x.view(*x.shape[:2], -1)

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """A view of ``dy`` in the shape of the input; nothing is recorded, and no other argument is used."""
        return dy.view(self._shape)


class ReLULayer:
    """max(x, 0), in place."""

    size = 0
    blocks: Sequence[Block] = ()
    floats = 0

    def __init__(self) -> None:
        self._y = torch.empty(0)

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record max(x, 0), in place, on ``tape``; returns ``x``. ``slot`` is not used."""
        self._y = x
        tape.append(partial(x.clamp_min_, 0))
        return x

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record on ``tape`` that ``dy`` becomes 0, in place, where the output is 0; returns ``dy``.

        ``slot`` and ``wants_dx`` are not used.
        """
        tape.append(partial(_relu_backward, dy, self._y, 0, grad_input=dy))
        return dy


class DropoutLayer:
    """Multiplies by masks, in place; what a layer before it keeps of its output is only which entries are 0.

    Args:
        call: of the layer.
        channels_last: whether the layer is applied to channels-last images.
        image: the ``(C, H, W)`` that a flattened channels-last image had.
    """

    size = 0
    blocks: Sequence[Block] = ()

    def __init__(self, call: DropoutCall, *, channels_last: bool, image: Shape | None) -> None:
        self.call = call
        self._moves, self._image = channels_last or image is not None, image
        self.floats = 2 * call.size
        self.uniforms = torch.empty(0)  # of a step, ``[n, B, call.size]``; given before its tape is run
        self._mask = torch.empty(0)

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record the product of ``x`` and the step's mask, in place, on ``tape``; returns ``x``."""
        self._mask = tape.empty_like(x) if x.ndim == 3 else tape.empty(x, *x.shape)
        tape.append(partial(self._fill, self._mask))
        tape.append(partial(x.mul_, self._mask))
        return x

    def _fill(self, mask: Tensor) -> None:
        """Write the mask that the step's uniform numbers give to ``mask``, in the input's layout."""
        found = self.call.mask(self.uniforms)
        if self._image is not None:
            found = torch.unflatten(found, 2, self._image)
        if self._moves:
            found = found.movedim(2, -1)
        mask.copy_(found if self._image is None else found.flatten(2))

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record the product of ``dy`` and the step's mask, in place, on ``tape``; returns ``dy``.

        ``slot`` and ``wants_dx`` are not used.
        """
        tape.append(partial(dy.mul_, self._mask))
        return dy


class LinearLayer:
    """A linear layer of every device."""

    def __init__(self, module: nn.Linear, image: Shape | None) -> None:
        self.inputs, self.outputs = module.in_features, module.out_features
        self.has_bias = module.bias is not None
        few = self.outputs <= _FEW_OUTPUTS
        self._product = Product(self.inputs, self.outputs, has_bias=self.has_bias, by_output=few)
        self.size = self._product.size
        weight = (module.out_features, *(image or (module.in_features,)))
        order = (0, 1) if image is None else (0, 2, 3, 1)
        self.blocks = blocks_of(weight, order, has_bias=module.bias is not None)
        self.floats = module.out_features + module.in_features
        self._x = torch.empty(0)

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record the product of ``x`` ``[n, B, inputs]`` and the weights; returns its ``[n, B, outputs]``."""
        self._x = x
        return self._product.forward(x, slot, tape)

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record the gradients of weight and bias from ``dy`` ``[n, B, outputs]``, at the output.

        Returns where the gradient at the input will be, ``[n, B, inputs]``, if ``wants_dx``.
        """
        dx = self._product.input_gradient(dy, self._x, slot, tape) if wants_dx else dy
        self._product.add_gradients(dy, self._x, slot, tape)
        return dx


class MaxPool2dLayer:
    """Max-pooling of channels-last images."""

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

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record max-pooling of channels-last images ``x`` ``[n, B, H, W, C]`` on ``tape``.

        Returns the pooled images, channels-last too; ``slot`` is not used, as the layer has no parameters.
        """
        self._x = flat_batch(x).movedim(-1, 1)
        _, rows, columns = self.out_shape
        shape = (len(self._x), rows, columns, x.shape[-1])
        y = tape.empty(x, *shape).movedim(-1, 1)
        self._where = tape.empty(x, *shape, dtype=torch.long).movedim(-1, 1)
        tape.append(partial(_max_pool, self._x, *self._options, out=y, indices=self._where))
        return torch.unflatten(y.movedim(1, -1), 0, x.shape[:2])

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record the gradient at the input, which is returned, from ``dy``, that at the output.

        Both are channels-last. It is recorded whatever ``wants_dx``; ``slot`` is not used.
        """
        dx = tape.empty(dy, *self._x.movedim(1, -1).shape).movedim(-1, 1)
        flat = flat_batch(dy).movedim(-1, 1)
        tape.append(partial(_max_pool_backward, flat, self._x, *self._options, self._where, grad_input=dx))
        return torch.unflatten(dx.movedim(1, -1), 0, dy.shape[:2])


class Product:
    """``y = x W^T + b`` for stacks of ``x`` ``[n, rows, inputs]``, and its gradients.

    Args:
        inputs: of a row.
        outputs: of a row.
        has_bias: whether there is a b.
        by_output: whether ``y`` lies in memory as ``[n, outputs, rows]``. A CPU computes a softmax over few
            outputs so up to ten times as fast, and their products up to twice; those of many outputs and few
            rows take twice as long.
    """

    def __init__(self, inputs: int, outputs: int, *, has_bias: bool, by_output: bool = False) -> None:
        self._inputs, self._outputs, self._has_bias = inputs, outputs, has_bias
        self._by_output = by_output
        self._ones = Constant(1.0)
        self.size = outputs * (inputs + has_bias)

    def weight(self, vectors: Tensor) -> Tensor:
        """The weights ``[n, outputs, inputs]`` in packed vectors ``[n, M]`` of the layer, as a view."""
        return torch.unflatten(vectors[:, : self._outputs * self._inputs], 1, (self._outputs, self._inputs))

    def bias(self, vectors: Tensor) -> Tensor:
        """The biases ``[n, 1, outputs]`` in packed vectors of the layer, as a view."""
        return vectors[:, None, self._outputs * self._inputs :]

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record ``y = x W^T + b`` on ``tape``; returns ``y`` ``[n, rows, outputs]``.

        ``x``: ``[n, rows, inputs]``; ``slot``: holds W and b of the n models.
        """
        n, rows = x.shape[:2]
        weight, bias = self.weight(slot.parameters), self.bias(slot.parameters)
        if self._by_output:
            y = tape.empty(x, n, self._outputs, rows)
            factors, bias = (weight, x.mT), bias.mT
        else:
            y = tape.empty(x, n, rows, self._outputs)
            factors = (x, weight.mT)
        if self._has_bias:
            tape.append(partial(torch.baddbmm, bias, *factors, out=y))
        else:
            tape.append(partial(torch.bmm, *factors, out=y))
        return y.mT if self._by_output else y

    def input_gradient(self, dy: Tensor, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record the gradient at the input, ``dy W``; returns the memory ``[n, rows, inputs]`` it will be in.

        The memory is laid out as that of ``x``. Record it before `add_gradients`, as the target of these may
        be the parameters themselves.
        """
        dx, weight = tape.empty_like(x), self.weight(slot.parameters)
        if dx.is_contiguous():
            tape.append(partial(torch.bmm, dy, weight, out=dx))
        else:
            tape.append(partial(torch.bmm, weight.mT, dy.mT, out=dx.mT))
        return dx

    def add_gradients(self, dy: Tensor, x: Tensor, slot: ParameterSlot, tape: Tape) -> None:
        """Record how gradients of weight and bias are added to ``slot.target`` or handed to ``slot.clip``.

        ``dy`` is the gradient at the output ``[n, rows, outputs]``, ``x`` the input ``[n, rows, inputs]``.
        """
        weight = self.weight(slot.target)
        if slot.clip is not None:
            bias = self.bias(slot.target) if self._has_bias else None
            slot.clip.watch(dy, x, ProductTarget(weight, bias, slot.keep, slot.scale), tape)
            return
        tape.append(partial(add_product_, weight, dy.mT, x, slot.keep, slot.scale))
        self.add_bias_gradient(dy, slot, tape)

    def add_bias_gradient(self, dy: Tensor, slot: ParameterSlot, tape: Tape) -> None:
        """Record how the gradient of the bias, if there is one, is added to ``slot.target`` without a clip.

        ``dy``: the gradient at the output ``[n, rows, outputs]``.
        """
        if self._has_bias:
            ones = self._ones.at_least(dy, len(dy) * dy.shape[1]).view(len(dy), 1, -1)
            tape.append(partial(add_product_, self.bias(slot.target), ones, dy, slot.keep, slot.scale))


def flat_batch(x: Tensor) -> Tensor:
    """A view of ``x`` ``[n, B, ...]`` with devices and examples as one axis, ``[n B, ...]``.

    It is never a copy, so that it shows what later steps write to ``x``.
    """
    return x.view(-1, *x.shape[2:])


def blocks_of(weight: Shape, order: Shape, *, has_bias: bool) -> list[Block]:
    """The blocks of a layer's parameters in flat order: its weight and, if ``has_bias``, its bias after it.

    Each is (flat shape, permutation of its axes to packed order); for the weight these are ``weight`` and
    ``order``.
    """
    return [(weight, order), *([((weight[0],), (0,))] if has_bias else [])]

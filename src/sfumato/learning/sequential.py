"""Hand-written gradients for chains of simple layers, every device with weights of its own.

What makes them fast on a CPU: a step is a fixed list of batched matrix products, convolutions and in-place
passes over scratch memory that is laid out once, so that little Python runs between them; the weights'
gradients are added straight into their target, so that plain SGD passes over the weights twice a step; and
activations lie channels-last, so that images and their patches are copied in long runs. On CUDA the list is
captured as a graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sfumato.learning.captured_step import StepGraphs
from sfumato.learning.convolution import PatchConvolution
from sfumato.learning.dropout import DropoutCall, SeededDropout
from sfumato.learning.example_clip import ExampleClip
from sfumato.learning.grouped_convolution import GroupedConvolution
from sfumato.learning.layers import (
    DropoutLayer,
    FlattenLayer,
    Layer,
    LinearLayer,
    MaxPool2dLayer,
    ParameterSlot,
    ReLULayer,
    Shape,
)
from sfumato.learning.losses import WriteGradient
from sfumato.learning.patches import ConvolutionSizes
from sfumato.learning.tape import Memory, Tape

if TYPE_CHECKING:
    from sfumato.learning.gradients import GradientStep

_MANY_IN_PATCHES = 4096  # numbers in the patches of an example; measured at 1 to 32 examples, 2 and 8 devices


class SequentialStep:
    """One gradient step of n devices over fixed memory; see `gradients.GradientStep`."""

    def __init__(
        self,
        outputs: Tensor,
        dy: Tensor,
        forward: Tape,
        backward: Tape,
        clip: ExampleClip | None,
        write_gradient: WriteGradient,
        dropout: Sequence[DropoutLayer],
    ) -> None:
        self._outputs, self._dy = outputs, dy
        self._forward, self._backward = forward, backward
        self._clip = clip
        self._write_gradient, self._dropout = write_gradient, dropout

    def __call__(self, labels: Tensor, weights: Tensor, uniforms: Tensor | None = None) -> Tensor | None:
        """Do the step on the features that it was bound to.

        Args:
            labels: int64 ``[n, B]``, or the targets that the loss takes ``[n, B, ...]``.
            weights: float32 ``[n, B]``, what each example's gradient is multiplied by, once it is clipped.
            uniforms: float32 ``[n, B, F]``, from which masks of dropout follow; ``None`` without dropout.

        Returns:
            Which examples were clipped, bool ``[n, B]``; ``None`` without a clip of examples.
        """
        if uniforms is not None:
            sizes = [layer.call.size for layer in self._dropout]
            for layer, part in zip(self._dropout, uniforms.split_with_sizes(sizes, dim=2), strict=True):
                layer.uniforms = part
        for operation in self._forward:
            operation()
        self._write_gradient(self._outputs, labels, self._dy)
        clip = self._clip
        if clip is None:
            self._dy.mul_(weights.unsqueeze(2))
        for operation in self._backward:
            operation()
        return None if clip is None else clip.add_clipped_(weights)


class SequentialGradient:
    """Gradients of a chain of layers; see `gradients.StackedGradient`.

    Args:
        layers: of the chain.
        shape: of one example.
        write_gradient: of the loss.
    """

    def __init__(self, layers: Sequence[Layer], shape: Shape, write_gradient: WriteGradient) -> None:
        self._layers, self._shape, self._write_gradient = layers, shape, write_gradient
        self._forward_memory, self._backward_memory = Memory(), Memory()
        self._example_floats = math.prod(shape) + sum(layer.floats for layer in layers)
        groups = [layer for layer in layers if isinstance(layer, GroupedConvolution)]
        self._clip_floats = sum(layer.floats_of_clip for layer in groups)
        stops = [sum(layer.size for layer in layers[: i + 1]) for i in range(len(layers))]
        self._spans = list(pairwise([0, *stops]))
        self._dropout = [layer for layer in layers if isinstance(layer, DropoutLayer)]
        self._first_trained = next(i for i, layer in enumerate(layers) if layer.size)
        self._graphs = StepGraphs()

    @property
    def dropout_floats(self) -> int:
        """Number of uniform numbers that an example needs for its dropout masks; 0 without dropout."""
        return sum(layer.call.size for layer in self._dropout)

    def scratch_floats(self, batch: int, *, clips_examples: bool = False) -> int:
        """An estimate of the float32 entries of memory that one model's step takes on ``batch`` examples.

        ``clips_examples``: whether the gradient of each is clipped.
        """
        return batch * (self._example_floats + clips_examples * self._clip_floats)

    def pack(self, flat: Tensor, out: Tensor) -> None:
        """Write flat vectors ``[n, M]`` to ``out`` in packed order (images and kernels channels-last)."""
        for start, stop, shape, order in self._blocks():
            source = torch.unflatten(flat[:, start:stop], 1, shape).permute(0, *(axis + 1 for axis in order))
            out[:, start:stop].view(source.shape).copy_(source)

    def unpack(self, packed: Tensor, out: Tensor) -> None:
        """Write packed vectors ``[n, M]`` (images and kernels channels-last) to ``out`` in flat order."""
        for start, stop, shape, order in self._blocks():
            target = torch.unflatten(out[:, start:stop], 1, shape).permute(0, *(axis + 1 for axis in order))
            target.copy_(packed[:, start:stop].view(target.shape))

    def _blocks(self) -> list[tuple[int, int, Shape, Shape]]:
        """Where each parameter is in the flat vector, and in which order of axes it is packed.

        Returns:
            For each parameter: start, stop, flat shape, and the permutation of its axes to the packed order.
        """
        blocks = [block for layer in self._layers for block in layer.blocks]
        stops = [sum(math.prod(shape) for shape, _ in blocks[: i + 1]) for i in range(len(blocks))]
        spans = pairwise([0, *stops])
        return [(*span, shape, order) for span, (shape, order) in zip(spans, blocks, strict=True)]

    def bind(
        self,
        models: Tensor,
        target: Tensor,
        features: Tensor,
        *,
        keep: float,
        scale: float,
        example_clip: float | None = None,
    ) -> GradientStep:
        """Make a step that does ``target <- keep target + scale gradient``, in place, each time it is called.

        Args:
            models: packed float32 ``[n, M]``, read anew at every step.
            target: packed float32 ``[n, M]``, perhaps ``models`` itself; ignored when ``keep`` is 0.
            features: ``[n, B, ...]``, which will hold one batch a model; overwritten.
            keep: what the target is multiplied by.
            scale: what the gradient is multiplied by.
            example_clip: l2 bound of every example's gradient; ``None`` for none.
        """
        clip = None if example_clip is None else ExampleClip(example_clip, features.shape[1])
        slots = [
            ParameterSlot(models[:, start:stop], target[:, start:stop], keep, scale, clip)
            for start, stop in self._spans
        ]
        forward, backward = Tape(self._forward_memory), Tape(self._backward_memory)
        x = features
        for layer, slot in zip(self._layers, slots, strict=True):
            x = layer.forward(x, slot, forward)
        dy = at_outputs = backward.empty_like(x)
        for i in range(len(self._layers) - 1, self._first_trained - 1, -1):
            dy = self._layers[i].backward(dy, slots[i], backward, wants_dx=i > self._first_trained)
        write = self._write_gradient
        step = SequentialStep(x, at_outputs, forward, backward, clip, write, self._dropout)
        return self._graphs.captured(step, models)


def as_layers(model: nn.Module, shape: Shape) -> list[Layer] | None:
    """The chain of hand-written layers that computes what ``model`` does; ``None`` if there is none.

    ``shape``: of one example. A chain is an `nn.Sequential` of known layers that ends in one vector of
    outputs.
    """
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
            layers.append(FlattenLayer())
            shape = (math.prod(shape),)
        elif type(module) is nn.Linear and shape == (module.in_features,):
            layers.append(LinearLayer(module, image))
            shape, image = (module.out_features,), None
        elif type(module) is nn.ReLU:
            layers.append(ReLULayer())
        elif type(module) is nn.Conv2d and _is_plain(module) and len(shape) == 3:
            conv = _convolution(module, ConvolutionSizes.of(module, shape, channels_last=channels_last))
            layers.append(conv)
            shape, channels_last = conv.out_shape, True
        elif type(module) is nn.MaxPool2d and channels_last and len(shape) == 3 and not module.return_indices:
            pool = MaxPool2dLayer(module, shape)
            layers.append(pool)
            shape = pool.out_shape
        elif type(module) is SeededDropout:
            call = DropoutCall(module.p, module.mask_shape((1, *shape))[1:], 0)
            as_image = channels_last and len(shape) == 3
            layers.append(DropoutLayer(call, channels_last=as_image, image=image))
        else:
            return None
    is_classifier = len(shape) == 1 and image is None
    return layers if is_classifier and any(layer.size for layer in layers) else None


def _convolution(module: nn.Conv2d, sizes: ConvolutionSizes) -> PatchConvolution | GroupedConvolution:
    """The form of a convolution that is the fastest for its sizes and the device that ``module`` is on.

    On a CPU it is groups of one convolution (see `GroupedConvolution`). They take some microseconds more for
    each call and each device's kernels, so products stay where an example has few patches; and where windows
    do not overlap, as torch would ask oneDNN for a convolution of single pixels or not by the number of
    threads, and bits could change with them. A GPU takes products: they are few operations, all over memory
    that a captured graph can read again.
    """
    overlap = max(sizes.kernel) > sizes.stride
    many = math.prod(sizes.pixels) * sizes.patch >= _MANY_IN_PATCHES
    has_onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled  # type: ignore[no-untyped-call]
    if many and overlap and has_onednn and not module.weight.is_cuda:
        return GroupedConvolution(sizes)
    return PatchConvolution(sizes)


def _shares_parameters(model: nn.Sequential) -> bool:
    """Whether two layers hold the same parameter."""
    parameters = [id(p) for module in model for p in module.parameters()]
    return len(parameters) != len(set(parameters))


def _is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks or buffers, which hand-written gradients would not follow."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._buffers)
    return any(hooks)


def _is_plain(conv: nn.Conv2d) -> bool:
    """Whether a convolution has one group, no dilation, zero padding, and equal strides and paddings."""
    return (
        conv.groups == 1
        and conv.dilation == (1, 1)
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
        and len(set(conv.stride)) == len(set(conv.padding)) == 1
    )

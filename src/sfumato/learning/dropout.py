"""Dropout whose masks are drawn from the run's seed, for every device, local step and example by itself.

The dropout layers of a model are exchanged for layers that change nothing, unless a training step gives them
masks. So a model is evaluated and attacked without dropout whatever its mode, and who trains it says what is
dropped. An example has masks of its own: what a clipped example adds to a step depends on no other example.
Masks depend on no data, so a guarantee that holds for every choice of masks holds for masks that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from sfumato.errors import SpecError

DrawUniforms: TypeAlias = Callable[[int, tuple[int, int, int]], Tensor]
"""Gives uniform numbers from 0 to below 1 for a step, from 0: float32 ``[n, B, F]``, on the CPU."""

_RANKS: dict[type[nn.Module], int | None] = {  # of the inputs; whole channels are dropped where one is given
    nn.Dropout: None,
    nn.Dropout1d: 3,
    nn.Dropout2d: 4,
    nn.Dropout3d: 5,
}
_PLACE = "model.kind"


class Masks:
    """What the dropout layers of one model multiply by at present; a copy of a model has its own."""

    def __init__(self) -> None:
        self._given: Iterator[Tensor] | None = None
        self._asked: list[tuple[SeededDropout, tuple[int, ...]]] | None = None

    @contextmanager
    def using(self, masks: Sequence[Tensor]) -> Iterator[None]:
        """Context in which one forward pass multiplies by ``masks``, in the order of its dropout calls."""
        self._given = iter(masks)
        try:
            yield
        finally:
            self._given = None

    @contextmanager
    def recording_calls(self) -> Iterator[list[tuple[SeededDropout, tuple[int, ...]]]]:
        """Context that collects which dropout layers forward passes call, with the shapes of their masks.

        Yields:
            A list, filled in the order of calls, of pairs (layer, shape of the mask for the whole batch).
        """
        self._asked = []
        try:
            yield self._asked
        finally:
            self._asked = None

    def apply(self, layer: SeededDropout, x: Tensor) -> Tensor:
        """``x`` times the next mask, in place if ``layer`` works in place; outside `using`, ``x`` itself.

        Raises:
            SpecError: there is no further mask, or it has another shape.
        """
        if self._asked is not None:
            self._asked.append((layer, layer.mask_shape(tuple(x.shape))))
        if self._given is None:
            return x
        mask = next(self._given, None)
        if mask is None or mask.shape != layer.mask_shape(tuple(x.shape)):
            raise SpecError(
                _PLACE,
                None,
                "the model calls its dropout layers otherwise than for examples of zeros; how often they are "
                "called, and with which shapes, must not depend on the data",
            )
        return x.mul_(mask) if layer.inplace else x * mask


class SeededDropout(nn.Module):
    """Stands for a dropout layer of a user's model: the identity, unless masks are given.

    Args:
        layer: that it stands for.
        masks: of the model.
    """

    def __init__(self, layer: _DropoutNd, masks: Masks) -> None:
        super().__init__()
        self.p, self.inplace = layer.p, layer.inplace
        self.masks = masks
        self._rank = _RANKS[type(layer)]
        self._layer = (layer,)  # in a tuple it is no part of the model

    @property
    def layer(self) -> nn.Module:
        """The dropout layer of the model that this one replaces."""
        return self._layer[0]

    def forward(self, x: Tensor) -> Tensor:
        """``x`` times the mask that is in use; ``x`` itself where none is in use."""
        return self.masks.apply(self, x)

    def mask_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the mask for an input of ``shape``: the same, or one number a channel of each example.

        Raises:
            ValueError: channels are dropped, and the input is no batch of examples with channels.
        """
        if self._rank is None:
            return shape
        if len(shape) != self._rank:
            name = type(self.layer).__name__
            raise ValueError(f"{name} needs inputs of {self._rank} dimensions here, not of {len(shape)}")
        return (*shape[:2], *[1] * (len(shape) - 2))


def with_seeded_dropout(model: nn.Module) -> nn.Module:
    """Replace the dropout layers of ``model``, in place, by `SeededDropout`; returns the model.

    Layers with p = 0, layers with hooks and layers that are not torch's own stay.
    """
    masks, made = Masks(), dict[int, SeededDropout]()
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):
            if isinstance(layer, _DropoutNd) and _is_exchanged(layer):
                parent._modules[name] = made.setdefault(id(layer), SeededDropout(layer, masks))
    return model


def _is_exchanged(layer: _DropoutNd) -> bool:
    """Whether `with_seeded_dropout` replaces a layer."""
    return type(layer) in _RANKS and layer.p > 0 and not (layer._forward_hooks or layer._forward_pre_hooks)


def with_own_dropout(model: nn.Module) -> nn.Module:
    """Put back the dropout layers that ``model`` was written with, in place, and switch it to eval mode."""
    for parent in list(model.modules()):
        for name, layer in list(parent._modules.items()):
            if isinstance(layer, SeededDropout):
                parent._modules[name] = layer.layer
    return model.eval()


def masks_of(model: nn.Module) -> Masks | None:
    """The `Masks` that all dropout layers of ``model`` share; ``None`` if it has no `SeededDropout`."""
    return next((layer.masks for layer in model.modules() if isinstance(layer, SeededDropout)), None)


@contextmanager
def applied_masks(model: nn.Module, masks: Sequence[Tensor]) -> Iterator[None]:
    """Context in which one forward pass of ``model`` uses ``masks``, one for each call of a dropout layer.

    Without masks, or where ``model`` has no such layer, nothing is multiplied.
    """
    found = masks_of(model) if masks else None
    if found is None:
        yield
        return
    with found.using(masks):
        yield


@dataclass(frozen=True)
class DropoutCall:
    """One call of a dropout layer in a forward pass.

    Attributes:
        p: probability that an entry is dropped.
        shape: of the mask of one example.
        axis: where examples are counted in the input of the layer.
    """

    p: float
    shape: tuple[int, ...]
    axis: int

    @property
    def size(self) -> int:
        """Number of entries of the mask of one example."""
        return int(np.prod(self.shape, dtype=np.int64))

    def mask(self, uniforms: Tensor) -> Tensor:
        """Masks of 0 or 1/(1-p), with mean 1, from ``uniforms``, numbers ``[..., B, size]`` in [0, 1).

        Their shape is ``[..., *shape]`` with B inserted at ``axis`` of the shape. With p = 1 all are 0.
        """
        kept = (uniforms >= self.p).float()
        if self.p < 1:
            kept /= 1 - self.p
        batch = uniforms.ndim - 2
        return kept.reshape(*uniforms.shape[:-1], *self.shape).movedim(batch, batch + self.axis)


@dataclass(frozen=True)
class DropoutLayout:
    """The calls of dropout layers in a forward pass of a model, in order; none without such layers."""

    calls: tuple[DropoutCall, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, example: Tensor) -> DropoutLayout:
        """Find a model's dropout calls for examples like ``example`` ``[1, ...]``, by passes of a copy.

        Raises:
            SpecError: a layer is applied to something that does not hold every example once.
        """
        if masks_of(model) is None:
            return cls()
        two, three = (_calls(model, example, count) for count in (2, 3))
        if len(two) != len(three):
            raise SpecError(_PLACE, None, "how often the model calls dropout layers depends on the batch")
        return cls(tuple(_call(layer, a, b) for (layer, a), (_, b) in zip(two, three, strict=True)))

    @property
    def floats(self) -> int:
        """F, the number of uniform numbers that an example needs for all its masks."""
        return sum(call.size for call in self.calls)

    def masks(self, uniforms: Tensor) -> tuple[Tensor, ...]:
        """A tuple with the mask of every call, in order, from ``uniforms`` ``[..., B, F]`` in [0, 1).

        F is `floats`. A mask has the axis B where the call's input has it.
        """
        stops = np.cumsum([0, *(call.size for call in self.calls)]).tolist()
        spans = zip(self.calls, pairwise(stops), strict=True)
        return tuple(call.mask(uniforms[..., start:stop]) for call, (start, stop) in spans)


def _calls(model: nn.Module, example: Tensor, count: int) -> list[tuple[SeededDropout, tuple[int, ...]]]:
    """The dropout layers in a forward pass of ``count`` examples, as called, and their masks' shapes.

    ``example``: ``[1, ...]``, repeated ``count`` times.
    """
    own = deepcopy(model)
    masks = masks_of(own)
    assert masks is not None  # the caller asked
    with torch.no_grad(), masks.recording_calls() as calls:
        own(example.repeat(count, *[1] * (example.ndim - 1)))
    return calls


def _call(layer: SeededDropout, of_two: tuple[int, ...], of_three: tuple[int, ...]) -> DropoutCall:
    """Make the `DropoutCall` of a layer from the shapes of its mask for a batch of two and of three examples.

    Args:
        layer: that calls.
        of_two: shape of the mask for two examples.
        of_three: for three; what differs is the size of the batch.

    Raises:
        SpecError: not exactly one axis counts the examples.
    """
    axes = [i for i, sizes in enumerate(zip(of_two, of_three, strict=False)) if sizes == (2, 3)]
    if len(axes) == 1:
        axis = axes[0]
        if of_two[:axis] + of_two[axis + 1 :] == of_three[:axis] + of_three[axis + 1 :]:
            return DropoutCall(layer.p, of_two[:axis] + of_two[axis + 1 :], axis)
    raise SpecError(
        _PLACE,
        None,
        f"{type(layer.layer).__name__} is applied to a tensor of shape {list(of_two)} for a batch of 2; one "
        "axis must count the examples, so that every example has masks of its own",
    )


@dataclass(frozen=True)
class DropoutDraws:
    """The random numbers behind the masks of every device and local step.

    Attributes:
        generator_of: gives a fresh generator for a device, by its number among those that train, and a step,
            from 0 for the first step of this piece of local work. Each is used for nothing else.
    """

    generator_of: Callable[[int, int], np.random.Generator]

    def of(self, devices: list[int]) -> DrawUniforms:
        """A function that draws uniform numbers ``[len(devices), B, F]`` for the devices of these indices.

        An example's numbers do not depend on how many examples follow it in the batch.
        """

        def draw(step: int, shape: tuple[int, int, int]) -> Tensor:
            """Uniform numbers in [0, 1) for ``step`` (from 0), float32 of ``shape`` ``(devices, B, F)``."""
            found = np.empty(shape, np.float32)
            for row in range(shape[0]):
                self.generator_of(devices[row], step).random(out=found[row], dtype=np.float32)
            return torch.from_numpy(found)

        return draw

"""A model's parameters as one flat vector."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor, nn

from sfumato.errors import SpecError


@dataclass(frozen=True)
class ParameterLayout:
    """Where each trainable parameter lies in the flat vector, in the module's own order.

    Attributes:
        names: as in ``module.named_parameters()``; frozen and tied parameters appear once or not at all.
        shapes: the parameters' shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, module: nn.Module) -> ParameterLayout:
        """The layout of a module's trainable parameters.

        Raises:
            SpecError: the module has nothing to train.
        """
        trainable = [(name, tuple(p.shape)) for name, p in module.named_parameters() if p.requires_grad]
        if not trainable:
            raise SpecError("model.kind", type(module).__name__, "the model has no trainable parameters")
        return cls(tuple(name for name, _ in trainable), tuple(shape for _, shape in trainable))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each trainable parameter."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def total(self) -> int:
        """M, the length of the flat vector."""
        return sum(self.sizes)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """``(start, stop)`` of each parameter in the flat vector."""
        stops = list(accumulate(self.sizes))
        return tuple(zip([0, *stops[:-1]], stops, strict=True))

    @property
    def layer_spans(self) -> tuple[tuple[int, int], ...]:
        """``(start, stop)`` of each layer: a layer's weight and bias, which share a prefix, lie together."""
        layers: list[tuple[str, int, int]] = []
        for name, (start, stop) in zip(self.names, self.spans, strict=True):
            prefix = name.rpartition(".")[0]
            if layers and layers[-1][0] == prefix:
                layers[-1] = (prefix, layers[-1][1], stop)
            else:
                layers.append((prefix, start, stop))
        return tuple((start, stop) for _, start, stop in layers)

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """The flat vector ``[M]`` of parameters ``named`` by name, e.g. a ``state_dict``; a detached copy."""
        return torch.cat([named[name].detach().reshape(-1) for name in self.names])

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector ``[..., M]`` by name, each ``[..., *shape]``.

        Raises:
            SpecError: the last axis is not M long.
        """
        if flat.shape[-1] != self.total:
            raise SpecError("parameters", tuple(flat.shape), f"the last axis must be {self.total} long")
        return {
            name: torch.unflatten(flat[..., start:stop], -1, shape) if shape else flat[..., start]
            for name, shape, (start, stop) in zip(self.names, self.shapes, self.spans, strict=True)
        }

    def read(self, module: nn.Module) -> Tensor:
        """The flat vector ``[M]`` of the parameters of ``module``, which has this layout; a copy."""
        return self.flatten(dict(module.named_parameters()))

    def write(self, flat: Tensor, module: nn.Module) -> None:
        """Copy a flat vector ``[M]`` into the parameters of ``module``, which has this layout, in place."""
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.unflatten(flat).items():
                parameters[name].copy_(value)

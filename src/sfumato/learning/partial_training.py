"""Training a part of a model: its head, or low-rank adapters beside frozen layers.

The frozen part is the same on every device and never sent. Messages, clips, noise and costs are of the
trained parameters only, so there are fewer coordinates to noise.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from sfumato.errors import SpecError

PLACE = "model.trained"
Trained = Literal["all", "head", "adapters"]


class LowRankAdapter(nn.Module):
    """A frozen linear layer with a trained addition of low rank (Hu et al. 2021, LoRA): ``W x + B A x``.

    ``A`` is drawn as a linear layer's weights are and ``B`` begins at 0, so training starts from the frozen
    layer.

    Args:
        frozen: the layer.
        rank: of the addition.
    """

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Parameter(torch.empty(rank, frozen.in_features))
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output ``[..., out]`` for ``x`` ``[..., in]``."""
        changed: Tensor = self.frozen(x) + x @ self.down.mT @ self.up.mT
        return changed


def partly_trained(model: nn.Module, trained: Trained, rank: int) -> nn.Module:
    """Freeze the parameters of ``model`` that are not to be trained, in place, and add adapters; returns it.

    Args:
        model: of one device.
        trained: ``all`` of it, the last layer with parameters (``head``), or that and ``adapters`` beside all
            other linear layers.
        rank: of the adapters.

    Raises:
        SpecError: there is no layer with parameters, or there are no linear layers to adapt but the head.
    """
    if trained == "all":
        return model
    layers = [name for name, module in model.named_modules() if list(module.parameters(recurse=False))]
    if not layers:
        raise SpecError(PLACE, trained, "must be all: the model has no layers with parameters")
    head = layers[-1]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for parameter in model.get_submodule(head).parameters(recurse=False):
        parameter.requires_grad_(True)
    if trained == "head":
        return model
    linear = [name for name in layers[:-1] if type(model.get_submodule(name)) is nn.Linear]
    if not linear:
        raise SpecError(PLACE, trained, "must be all or head: no linear layer is before the last one")
    for name in linear:
        parent, _, own = name.rpartition(".")
        frozen = model.get_submodule(name)
        assert isinstance(frozen, nn.Linear)
        setattr(model.get_submodule(parent), own, LowRankAdapter(frozen, rank))
    return model

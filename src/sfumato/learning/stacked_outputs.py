"""What several models of one architecture predict for the same examples."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sfumato.learning.layers import DropoutLayer, FlattenLayer, LinearLayer, ReLULayer
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.sequential import as_layers

_STACK_FLOATS = 1 << 24  # float32 entries of what the models of a stack compute, 64 MiB


def stacks_of(model: nn.Module, count: int, features: Tensor) -> list[slice]:
    """Divide ``count`` models into slices, each to be computed in one call for ``features`` ``[B, ...]``.

    A slice takes about 64 MiB at most, or is one model; a model that is no chain of linear layers is always
    by itself. The slices depend on the architecture and on the number of examples alone.
    """
    a_model = _floats_of_chain(model, features)
    at_once = 1 if a_model is None else max(1, _STACK_FLOATS // (ParameterLayout.of(model).total + a_model))
    return [slice(first, min(first + at_once, count)) for first in range(0, count, at_once)]


def outputs_of(model: nn.Module, models: Tensor, features: Tensor) -> Tensor:
    """The outputs ``[B, c, ...]`` of c models for every example, without dropout.

    Chains of linear layers are computed by products over all models of the stack. The first layer is one
    product for all of them, as their inputs are the same. Any other module is called for one model after the
    other (measured: convolutions of several models in one call take longer), each time as a copy, so that
    what a module keeps beside its parameters reaches no other model and no other examples.

    Args:
        model: the architecture; its own parameters are neither read nor changed.
        models: float32 ``[c, P]``, one of the stacks that `stacks_of` gives.
        features: ``[B, ...]``, on the models' device.
    """
    layout = ParameterLayout.of(model)
    if _floats_of_chain(model, features) is not None:
        return _outputs_of_chain(model, layout.unflatten(models), features)
    every = []
    for one in torch.split(models, 1):
        own = {name: value[0] for name, value in layout.unflatten(one).items()}
        module = deepcopy(model).to(features.device)
        every.append(functional_call(module, own, (features,)))
    return torch.stack(every, dim=1)


def _floats_of_chain(model: nn.Module, features: Tensor) -> int | None:
    """About how many entries one model of a chain of linear layers computes for ``features`` ``[B, ...]``.

    ``None`` if the model is no such chain, or features are no floats.
    """
    layers = as_layers(model, tuple(features.shape[1:])) if features.is_floating_point() else None
    known = (FlattenLayer, LinearLayer, ReLULayer, DropoutLayer)
    if layers is None or not all(isinstance(layer, known) for layer in layers):
        return None
    return len(features) * sum(
        2 * module.out_features for module in model.children() if isinstance(module, nn.Linear)
    )


def _outputs_of_chain(model: nn.Module, named: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Outputs ``[B, c, K]`` of c models, each a chain of linear layers, for the same features ``[B, ...]``.

    ``named``: parameters of the models by name, ``[c, *shape]``; ``model``: one such chain, for its layers.
    """
    shared, x = True, features
    for name, module in model.named_children():
        if isinstance(module, nn.Linear):
            weight, bias = named[f"{name}.weight"], named.get(f"{name}.bias")
            if shared:
                # outputs in rows: a CPU multiplies up to a third faster where they are few
                factors = weight.flatten(0, 1), x.mT
                every = (
                    factors[0] @ factors[1] if bias is None else torch.addmm(bias.reshape(-1, 1), *factors)
                )
                x, shared = every.view(len(weight), -1, len(features)).mT, False
            elif bias is None:
                x = torch.bmm(x, weight.mT)
            else:
                x = torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
        elif isinstance(module, nn.ReLU):
            x = x.relu()
        elif isinstance(module, nn.Flatten) and shared:
            x = x.flatten(1)
    return x.transpose(0, 1).contiguous()

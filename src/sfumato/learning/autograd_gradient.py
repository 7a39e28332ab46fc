"""The gradient of one model after another by plain autograd: for modules that ``torch.func`` cannot batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from sfumato.learning.parameters import ParameterLayout


class AutogradGradient:
    """Cross-entropy gradients, one model at a time; see `gradients.StackedGradient`.

    A module sees the examples of a batch only, not the rows that fill it up: its result may depend on them.

    Args:
        model: of one device; its buffers, and whatever else it keeps, change as in ordinary training.
        shape: of one example.
    """

    def __init__(self, model: nn.Module, shape: tuple[int, ...]) -> None:
        self._model, self._shape = model, shape
        self._layout = ParameterLayout.of(model)

    def scratch_floats(self, batch: int) -> int:
        """What a step takes beside the parameters: the gradient."""
        return self._layout.total

    def pack(self, flat: Tensor, out: Tensor) -> None:
        """Write flat vectors ``[n, M]`` as packed ones: the same here."""
        out.copy_(flat)

    def unpack(self, packed: Tensor, out: Tensor) -> None:
        """Write packed vectors ``[n, M]`` as flat ones: the same here."""
        out.copy_(packed)

    def bind(self, models: Tensor, target: Tensor, batch: int, *, keep: float, scale: float) -> _AutogradStep:
        """A step ``target <- keep target + scale gradient``; see `gradients.StackedGradient`."""
        features = models.new_empty(len(models), batch, *self._shape)
        return _AutogradStep(features, self._model, self._layout, models, target, keep, scale)


@dataclass(frozen=True, eq=False)
class _AutogradStep:
    features: Tensor
    model: nn.Module
    layout: ParameterLayout
    models: Tensor
    target: Tensor
    keep: float
    scale: float

    def __call__(self, labels: Tensor, weights: Tensor) -> None:
        for row in range(len(self.models)):
            valid = int((weights[row] > 0).sum())  # the first ones
            gradient = self._gradient(row, labels[row, :valid], weights[row, :valid])
            if self.keep == 0.0:
                self.target[row] = self.scale * gradient
            else:
                self.target[row].mul_(self.keep).add_(gradient, alpha=self.scale)

    def _gradient(self, row: int, labels: Tensor, weights: Tensor) -> Tensor:
        """The gradient of the weighted loss at one model's parameters, flat ``[M]``; 0 where none is used."""
        if not len(labels):  # not every module takes an empty batch
            return torch.zeros_like(self.models[row])
        with torch.enable_grad():
            flat = self.models[row].detach().clone().requires_grad_()
            parameters = self.layout.unflatten(flat)
            logits = functional_call(self.model, parameters, (self.features[row, : len(labels)],))
            loss = (cross_entropy(logits, labels, reduction="none") * weights).sum()
            (gradient,) = torch.autograd.grad(loss, flat, materialize_grads=True)
        return gradient

"""The gradient of one model after another by plain autograd: for modules that ``torch.func`` cannot batch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sfumato.learning.dropout import DropoutLayout, applied_masks
from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.norms import add_clipped_
from sfumato.learning.parameters import ParameterLayout


class AutogradGradient:
    """Gradients of one loss, one model at a time; see `gradients.StackedGradient`.

    A module sees the examples of a batch only, not the rows that fill it up: its result may depend on them.

    Args:
        model: of one device; its buffers, and whatever else it keeps, change as in ordinary training.
        loss: of every example.
        dropout: the calls of its dropout layers.
    """

    def __init__(
        self, model: nn.Module, loss: Loss = CROSS_ENTROPY, dropout: DropoutLayout | None = None
    ) -> None:
        self._model, self._loss = model, loss
        self._layout, self._dropout = ParameterLayout.of(model), dropout or DropoutLayout()

    @property
    def dropout_floats(self) -> int:
        """Number of uniform numbers that an example needs for its dropout masks; 0 without dropout."""
        return self._dropout.floats

    def scratch_floats(self, batch: int, *, clips_examples: bool = False) -> int:
        """Float32 entries of memory that one model's step takes: one gradient, whatever the arguments."""
        return self._layout.total

    def pack(self, flat: Tensor, out: Tensor) -> None:
        """Copy ``flat``, vectors ``[n, M]``, to ``out``: here the packed order is the flat one."""
        out.copy_(flat)

    def unpack(self, packed: Tensor, out: Tensor) -> None:
        """Overwrite ``out`` with ``packed``, both n vectors of M parameters, ``[n, M]``.

        With this gradient the packed order is the flat one.
        """
        out.copy_(packed)

    def bind(
        self,
        models: Tensor,
        target: Tensor,
        features: Tensor,
        *,
        keep: float,
        scale: float,
        example_clip: float | None = None,
    ) -> _AutogradStep:
        """Make a step that does ``target <- keep target + scale gradient``, in place, each time it is called.

        Args:
            models: flat float32 ``[n, M]``, read anew at every step.
            target: float32 ``[n, M]``, perhaps ``models`` itself; ignored when ``keep`` is 0.
            features: ``[n, B, ...]``, which will hold one batch a model.
            keep: what the target is multiplied by.
            scale: what the gradient is multiplied by.
            example_clip: l2 bound of every example's gradient; ``None`` for none.
        """
        return _AutogradStep(
            features,
            self._model,
            self._loss,
            self._layout,
            self._dropout,
            models,
            target,
            keep,
            scale,
            example_clip,
        )


@dataclass(frozen=True, eq=False)
class _AutogradStep:
    features: Tensor
    model: nn.Module
    loss: Loss
    layout: ParameterLayout
    dropout: DropoutLayout
    models: Tensor
    target: Tensor
    keep: float
    scale: float
    example_clip: float | None

    def __call__(self, labels: Tensor, weights: Tensor, uniforms: Tensor | None = None) -> Tensor | None:
        """Do the step, one model after the other.

        Args:
            labels: int64 ``[n, B]``, or the targets that the loss takes ``[n, B, ...]``.
            weights: float32 ``[n, B]``, of the examples' gradients; 0 only for the rows that fill a batch up,
                at its end.
            uniforms: float32 ``[n, B, F]``, from which masks of dropout follow; ``None`` without dropout.

        Returns:
            Which examples were clipped, bool ``[n, B]``; ``None`` without a clip of examples.
        """
        clipped = torch.zeros_like(weights, dtype=torch.bool)
        drawn = weights.new_empty(*weights.shape, 0) if uniforms is None else uniforms
        for row in range(len(self.models)):
            valid = int((weights[row] > 0).sum())  # the first ones
            if self.example_clip is None:
                gradient = self._gradient(self.model, row, slice(0, valid), labels, weights, drawn)
            else:
                gradient = self._clipped(row, labels, weights, drawn, clipped, self.example_clip, valid)
            if self.keep == 0.0:
                self.target[row] = self.scale * gradient
            else:
                self.target[row].mul_(self.keep).add_(gradient, alpha=self.scale)
        return None if self.example_clip is None else clipped

    def _clipped(
        self,
        row: int,
        labels: Tensor,
        weights: Tensor,
        uniforms: Tensor,
        clipped: Tensor,
        bound: float,
        valid: int,
    ) -> Tensor:
        """Add up the clipped and weighted gradients of model ``row``, example by example: float64 ``[M]``.

        Each example meets a module as it was at first: what a module keeps of one example must not reach the
        gradient of another, or the clip would not bound what an example changes.

        Args:
            row: of the model.
            labels: of all models' examples, ``[n, B, ...]``.
            weights: of all models' examples, ``[n, B]``.
            uniforms: for masks of dropout, ``[n, B, F]``.
            clipped: bool ``[n, B]``, filled with which examples were clipped.
            bound: l2 norm that an example's gradient may have.
            valid: number of examples, the first ones.
        """
        total = torch.zeros_like(self.models[row : row + 1], dtype=torch.float64)
        for place in range(valid):
            one = slice(place, place + 1)
            module = deepcopy(self.model)
            gradient = self._gradient(module, row, one, labels, torch.ones_like(weights), uniforms)[None]
            clipped[row, one] = add_clipped_(total, gradient, bound, weights[row, one])
        return total[0]

    def _gradient(
        self, module: nn.Module, row: int, some: slice, labels: Tensor, weights: Tensor, uniforms: Tensor
    ) -> Tensor:
        """Compute the gradient ``[M]`` of the weighted loss of some examples at model ``row``'s parameters.

        Args:
            module: the architecture, which its forward pass may change.
            row: of the model.
            some: which of its examples.
            labels: of all models' examples, ``[n, B, ...]``.
            weights: of all models' examples, ``[n, B]``.
            uniforms: for masks of dropout, ``[n, B, F]``.
        """
        labels, weights = labels[row, some], weights[row, some]
        if not len(labels):  # not every module takes an empty batch
            return torch.zeros_like(self.models[row])
        masks = self.dropout.masks(uniforms[row, some])
        with torch.enable_grad(), applied_masks(module, masks):
            flat = self.models[row].detach().clone().requires_grad_()
            parameters = self.layout.unflatten(flat)
            outputs = functional_call(module, parameters, (self.features[row, some],))
            loss = (self.loss.of_examples(outputs, labels) * weights).sum()
            (gradient,) = torch.autograd.grad(loss, flat, materialize_grads=True)
        return gradient

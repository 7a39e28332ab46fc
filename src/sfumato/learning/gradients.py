"""The gradient of every device's mini-batch loss, all devices of a stack at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfumato.errors import first_line
from sfumato.learning.captured_step import StepGraphs
from sfumato.learning.dropout import DropoutLayout, applied_masks
from sfumato.learning.layers import Layer
from sfumato.learning.losses import CROSS_ENTROPY, Loss
from sfumato.learning.norms import add_clipped_
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.sequential import SequentialGradient, as_layers


class GradientStep(Protocol):
    """One gradient step of n models over fixed memory."""

    def __call__(self, labels: Tensor, weights: Tensor, uniforms: Tensor | None = None) -> Tensor | None:
        """Do the step with the features that `StackedGradient.bind` was given, which it may overwrite.

        Args:
            labels: int64 ``[n, B]``, or the targets that the loss takes ``[n, B, ...]``.
            weights: float32 ``[n, B]``, what each example's gradient is multiplied by, once it is clipped.
            uniforms: float32 ``[n, B, F]``, from which masks of dropout follow; needed where F is above 0.

        Returns:
            Which examples were clipped, bool ``[n, B]``; ``None`` without a clip of examples.
        """


class StackedGradient(Protocol):
    """Gradients of one loss for stacks of models of one architecture.

    "Packed" vectors are a reordering of the flat vector that suits the implementation; norms, sums and
    scalings need not know which. Not to be shared between threads.
    """

    @property
    def dropout_floats(self) -> int:
        """F, the number of uniform numbers that an example needs for its dropout masks; 0 without dropout."""

    def scratch_floats(self, batch: int, *, clips_examples: bool = False) -> int:
        """An estimate of the float32 entries of memory that one model's step takes on ``batch`` examples.

        ``clips_examples``: whether the gradient of each is clipped.
        """

    def pack(self, flat: Tensor, out: Tensor) -> None:
        """Write flat vectors ``[n, M]`` to ``out`` in the packed order, in which steps keep parameters."""

    def unpack(self, packed: Tensor, out: Tensor) -> None:
        """Write packed vectors ``[n, M]`` to ``out`` in the flat order: the inverse of `pack`."""

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
            target: packed float32 ``[n, M]``, perhaps ``models`` itself; ignored, even if not finite, when
                ``keep`` is 0.
            features: ``[n, B, ...]``, which will hold one batch a model; steps may share its memory.
            keep: what the target is multiplied by.
            scale: what the gradient is multiplied by.
            example_clip: l2 bound of every example's gradient; ``None`` for none.
        """


def stacked_gradient(model: nn.Module, features: Tensor, loss: Loss = CROSS_ENTROPY) -> StackedGradient:
    """Choose the fastest way to compute gradients of many models for examples like ``features``.

    Hand-written for chains of linear, convolution, ReLU, max-pooling and flatten layers with a built-in loss
    (their parameters change in the same pass that forms the gradient), ``torch.func`` for any other module.

    Args:
        model: the architecture.
        features: ``[N, ...]``, for the shape and type of an example.
        loss: of every example.
    """
    shape = tuple(features.shape[1:])
    layers = _layers(model, features, loss)
    if layers is None or loss.write_gradient is None:
        return FunctionalGradient(model, features, loss)
    return SequentialGradient(layers, shape, loss.write_gradient)


def _layers(model: nn.Module, features: Tensor, loss: Loss) -> list[Layer] | None:
    """Turn the model into layers with hand-written gradients; ``None`` if it, its loss or its input has none.

    ``features`` ``[N, ...]`` gives the shape and type of an example.
    """
    if loss.write_gradient is None or not features.is_floating_point():
        return None
    return as_layers(model, tuple(features.shape[1:]))


def why_not_batched(
    model: nn.Module,
    features: Tensor,
    targets: Tensor,
    loss: Loss = CROSS_ENTROPY,
    device: str = "cpu",
) -> str | None:
    """The reason why gradients of several models cannot be computed at once; ``None`` where they can.

    Where a layer has no hand-written gradient, tries one step of two models on ``device``: GRUs can be
    batched on a CPU and not on a GPU. An operation that ``torch.func.vmap`` follows by a slow loop of its own
    counts as one that it cannot follow. Only the shapes and types of features and targets matter.
    """
    if _layers(model, features, loss) is not None:
        return None
    own = deepcopy(model).to(device)
    models = ParameterLayout.of(own).read(own).repeat(2, 1)
    examples = torch.zeros(2, 3, *features.shape[1:], dtype=features.dtype, device=device)
    wanted = torch.zeros(2, 3, *targets.shape[1:], dtype=targets.dtype, device=device)
    weights = torch.ones(2, 3, device=device)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule", category=UserWarning)
        try:
            gradient = FunctionalGradient(own, examples[0], loss)
            step = gradient.bind(models, torch.empty_like(models), examples, keep=0.0, scale=1.0)
            step(wanted, weights, torch.ones(2, 3, gradient.dropout_floats, device=device))
        except (RuntimeError, UserWarning) as error:
            return first_line(error)
    return None


class FunctionalGradient:
    """The gradient by ``torch.func``, for any module without randomness or batch statistics."""

    def __init__(self, model: nn.Module, features: Tensor, loss: Loss = CROSS_ENTROPY) -> None:
        self._model, self._example = model, features.new_zeros(1, *features.shape[1:])
        self._layout, self._dropout = ParameterLayout.of(model), DropoutLayout.of(model, self._example)
        constants = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
        constants |= dict(model.named_buffers())

        def weighted(
            parameters: dict[str, Tensor],
            features: Tensor,
            labels: Tensor,
            weights: Tensor,
            masks: tuple[Tensor, ...],
        ) -> Tensor:
            with applied_masks(model, masks):
                outputs = functional_call(model, (parameters, constants), (features,))
            return (loss.of_examples(outputs, labels) * weights).sum()

        self._gradient = vmap(grad(weighted))
        self._graphs = StepGraphs()

    @property
    def dropout_floats(self) -> int:
        """Number of uniform numbers that an example needs for its dropout masks; 0 without dropout."""
        return self._dropout.floats

    def scratch_floats(self, batch: int, *, clips_examples: bool = False) -> int:
        """An estimate of the float32 entries of memory that one model's step takes on ``batch`` examples.

        They are its gradient and what autograd saves, with and without clips of examples; with dropout,
        uniform numbers, masks, and the inputs and masks that autograd saves too.
        """
        saved = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal saved
            saved += tensor.numel()
            return tensor

        device = next(self._model.parameters()).device
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            self._model(self._example.to(device).repeat(batch, *[1] * (self._example.ndim - 1)))
        return 2 * self._layout.total + 2 * saved + 4 * batch * self._dropout.floats

    def pack(self, flat: Tensor, out: Tensor) -> None:
        """Copy ``flat``, vectors ``[n, M]``, to ``out``: here the packed order is the flat one."""
        out.copy_(flat)

    def unpack(self, packed: Tensor, out: Tensor) -> None:
        """Copy ``packed``, vectors ``[n, M]``, to ``out``: here the packed order is the flat one."""
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
    ) -> GradientStep:
        """Make a step that does ``target <- keep target + scale gradient``, in place, each time it is called.

        Args:
            models: flat float32 ``[n, M]``, read anew at every step.
            target: float32 ``[n, M]``, perhaps ``models`` itself; ignored when ``keep`` is 0.
            features: ``[n, B, ...]``, which will hold one batch a model.
            keep: what the target is multiplied by.
            scale: what the gradient is multiplied by.
            example_clip: l2 bound of every example's gradient; ``None`` for none.
        """
        parameters, targets = self._layout.unflatten(models), self._layout.unflatten(target)
        summed = (
            partial(self._add, parameters, target, targets, keep, scale)
            if example_clip is None
            else partial(self._add_clipped, parameters, target, keep, scale, example_clip)
        )
        return self._graphs.captured(_FunctionalStep(features, summed), models)

    def _add(
        self,
        parameters: dict[str, Tensor],
        target: Tensor,
        targets: dict[str, Tensor],
        keep: float,
        scale: float,
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        uniforms: Tensor,
    ) -> None:
        """Do ``target <- keep target + scale gradient`` for a batch of every model.

        Args:
            parameters: views of the models by name, each ``[n, *shape]``.
            target: ``[n, M]``.
            targets: views of ``target`` by name.
            keep: what the target is multiplied by.
            scale: what the gradient is multiplied by.
            features: ``[n, B, ...]``.
            labels: ``[n, B, ...]``.
            weights: of the examples' gradients, ``[n, B]``.
            uniforms: for masks of dropout, ``[n, B, F]``.
        """
        gradients = self._gradient(parameters, features, labels, weights, self._dropout.masks(uniforms))
        _shrink_(target, keep)
        for name, view in targets.items():
            view.add_(gradients[name], alpha=scale)

    def _add_clipped(
        self,
        parameters: dict[str, Tensor],
        target: Tensor,
        keep: float,
        scale: float,
        bound: float,
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        uniforms: Tensor,
    ) -> Tensor:
        """Do ``target <- keep target + scale gradient`` with every example's gradient clipped, then weighted.

        One example of every model at a time: no more gradients are stored than there are models.

        Args:
            parameters: views of the models by name, each ``[n, *shape]``.
            target: ``[n, M]``.
            keep: what the target is multiplied by.
            scale: what the gradient is multiplied by.
            bound: l2 norm that an example's gradient may have.
            features: ``[n, B, ...]``.
            labels: ``[n, B, ...]``.
            weights: of the examples' gradients, ``[n, B]``.
            uniforms: for masks of dropout, ``[n, B, F]``.

        Returns:
            Which examples were clipped, bool ``[n, B]``.
        """
        clipped = torch.zeros_like(weights, dtype=torch.bool)
        total = torch.zeros_like(target, dtype=torch.float64)
        for place in range(weights.shape[1]):
            one = slice(place, place + 1)
            used = (weights[:, one] > 0).float()
            masks = self._dropout.masks(uniforms[:, one])
            named = self._gradient(parameters, features[:, one], labels[:, one], used, masks)
            gradients = torch.cat([named[name].flatten(1) for name in self._layout.names], dim=1)
            clipped[:, place] = add_clipped_(total, gradients, bound, weights[:, place])
        _shrink_(target, keep)
        target.add_(total, alpha=scale)
        return clipped


def _shrink_(target: Tensor, keep: float) -> None:
    """Multiply ``target`` by ``keep``, in place; with 0 it becomes 0 even where it is not finite."""
    if keep == 0.0:
        target.zero_()
    elif keep != 1.0:
        target.mul_(keep)


@dataclass(frozen=True)
class _FunctionalStep:
    features: Tensor
    add: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor | None]

    def __call__(self, labels: Tensor, weights: Tensor, uniforms: Tensor | None = None) -> Tensor | None:
        """Do the step on the features that it was bound to.

        Args:
            labels: int64 ``[n, B]``, or the targets that the loss takes ``[n, B, ...]``.
            weights: float32 ``[n, B]``, what each example's gradient is multiplied by, once it is clipped.
            uniforms: float32 ``[n, B, F]``, from which masks of dropout follow; ``None`` without dropout.

        Returns:
            Which examples were clipped, bool ``[n, B]``; ``None`` without a clip of examples.
        """
        drawn = weights.new_empty(*weights.shape, 0) if uniforms is None else uniforms
        return self.add(self.features, labels, weights, drawn)

"""Gradient matching: images whose simulated updates are close to the observed one.

DLG (Zhu et al. 2019): squared distance, L-BFGS, images and soft labels. iDLG (Zhao et al. 2020): the same
with recovered labels. Cosine (Geiping et al. 2020): 1 - cosine similarity plus total variation, Adam on the
signs of the gradient, steps reduced at 3/8, 5/8 and 7/8, images kept within their range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import one_hot

from sfumato.learning.local_training import LocalSGD
from sfumato.learning.parameters import ParameterLayout

_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Simulation:
    """Devices' local training as a differentiable function of their data.

    Attributes:
        model: the architecture.
        start: parameters from which every device starts, ``[M]``.
        sgd: settings of the optimizer.
        clip: l2 norm to which each whole update is clipped; ``None`` without clipping.
        slots: index of the unknown example in each place of each batch, int64 ``[n, S, B]``.
        weights: of each place in the mean of its batch, 0 if it is empty, ``[n, S, B]``.
        shares: weight of each device's update in the sum, ``[n]``.
    """

    model: nn.Module
    start: Tensor
    sgd: LocalSGD
    clip: float | None
    slots: Tensor
    weights: Tensor
    shares: Tensor

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """The sum of updates ``[M]`` of features ``[U, ...]`` with label probabilities ``[U, classes]``."""
        features, targets = images[self.slots], labels[self.slots]
        if len(self.slots) == 1:
            return self._update(features[0], targets[0], self.weights[0]) * self.shares[0]
        return self.shares @ vmap(self._update)(features, targets, self.weights)

    def _update(self, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The update ``[M]`` after all steps on the given examples, clipped if the device clips."""
        flat = self.start
        velocity = torch.zeros_like(flat)
        for step in range(len(features)):
            slope = grad(self._loss)(flat, features[step], targets[step], weights[step])
            if self.sgd.step_clip is not None:
                slope = _clipped_to_norm(slope, self.sgd.step_clip)
            velocity = self.sgd.momentum * velocity + slope
            trains = (weights[step].sum() > 0).to(flat.dtype)  # devices take unequal numbers of steps
            flat = flat - self.sgd.learning_rate * trains * velocity
        update = flat - self.start
        return update if self.clip is None else _clipped_to_norm(update, self.clip)

    def _loss(self, flat: Tensor, features: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Weighted cross-entropy of the model ``flat`` ``[M]``; ``targets``: probabilities of labels."""
        parameters = ParameterLayout.of(self.model).unflatten(flat)
        logits = functional_call(self.model, parameters, (features,))
        losses: Tensor = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)
        return (losses * weights).sum()


def _clipped_to_norm(vector: Tensor, norm: float) -> Tensor:
    """``vector`` ``[M]``, shortened to l2 length ``norm`` where it is longer; differentiable."""
    return vector * (norm / torch.sqrt(vector.square().sum() + _TINY)).clamp(max=1.0)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A reconstruction.

    Attributes:
        images: features ``[U, ...]``.
        labels: int64 ``[U]``.
        mismatch: 1 - cosine similarity between its update and the observed one; an attacker can compute it.
    """

    images: Tensor
    labels: Tensor
    mismatch: float


@dataclass(frozen=True)
class FeatureBounds:
    """The range of features, which is public.

    Attributes:
        low: smallest, broadcastable to ``[U, C, H, W]``.
        high: largest.
    """

    low: Tensor
    high: Tensor

    def clamp(self, images: Tensor) -> Tensor:
        """``images`` with every value clamped to the range [low, high]."""
        return torch.minimum(torch.maximum(images, self.low), self.high)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        """A float32 tensor of this ``shape`` with uniform values within the range."""
        return self.low + (self.high - self.low) * torch.from_numpy(rng.random(shape, np.float32))


def mismatch(update: Tensor, seen: Tensor) -> Tensor:
    """One minus the cosine similarity of ``update`` (simulated) and ``seen``, ``[M]`` each; a scalar."""
    similarity: Tensor = (update @ seen) / (update.norm() * seen.norm() + _TINY)
    return 1 - similarity


def invert_by_cosine(
    simulate: Simulation,
    seen: Tensor,
    labels: Tensor,
    classes: int,
    bounds: FeatureBounds,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    iterations: int,
    variation: float,
    rate: float = 0.1,
) -> Reconstruction:
    """Reconstruct images by matching the direction of the update (Geiping et al. 2020, eq. 4).

    Args:
        simulate: computes the update of given data.
        seen: the observed update ``[M]``.
        labels: of the unknown examples ``[U]``.
        classes: number of classes.
        bounds: the range of features.
        shape: ``[U, C, H, W]``.
        rng: draws the initial images.
        iterations: steps of Adam.
        variation: weight of the total variation.
        rate: first step size, in units of the features.
    """
    targets = one_hot(labels, classes).float()
    images = bounds.sample(shape, rng).requires_grad_()
    adam = torch.optim.Adam([images], lr=rate)
    steps = [iterations * k // 8 for k in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(adam, steps, gamma=0.1)
    best, least = images.detach().clone(), float("inf")
    for _ in range(iterations):
        loss = mismatch(simulate(images, targets), seen) + variation * _total_variation(images)
        (slope,) = torch.autograd.grad(loss, images)
        if loss.item() < least:
            best, least = images.detach().clone(), loss.item()
        images.grad = slope.sign()
        adam.step()
        schedule.step()
        with torch.no_grad():
            images.copy_(bounds.clamp(images))
    return Reconstruction(best, labels, float(mismatch(simulate(best, targets), seen)))


def _total_variation(images: Tensor) -> Tensor:
    """The mean absolute difference between adjacent pixels of ``[U, C, H, W]``; scalar."""
    return (images.diff(dim=-1).abs().mean() + images.diff(dim=-2).abs().mean()) / 2


def invert_by_distance(
    simulate: Simulation,
    seen: Tensor,
    labels: Tensor | None,
    classes: int,
    bounds: FeatureBounds,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    iterations: int,
) -> Reconstruction:
    """Reconstruct images (and labels) by matching the update: DLG, or with ``labels`` iDLG.

    L-BFGS on the squared l2 distance of the updates over the squared norm of the observed one.

    Args:
        simulate: computes the update of given data.
        seen: the observed update ``[M]``.
        labels: of the unknown examples ``[U]``; ``None``: soft labels are optimised as well.
        classes: number of classes.
        bounds: the range of features.
        shape: ``[U, C, H, W]``.
        rng: draws the initial images and soft labels.
        iterations: the most steps of L-BFGS.
    """
    images = bounds.sample(shape, rng).requires_grad_()
    logits = torch.from_numpy(rng.standard_normal((shape[0], classes), np.float32)).requires_grad_()
    scale = seen.square().sum() + _TINY
    known = None if labels is None else one_hot(labels, classes).float()
    unknowns = [images] if known is not None else [images, logits]
    solver = torch.optim.LBFGS(unknowns, max_iter=iterations, history_size=50, line_search_fn="strong_wolfe")

    def targets() -> Tensor:
        return logits.softmax(dim=-1) if known is None else known

    def objective() -> Tensor:
        loss = (simulate(images, targets()) - seen).square().sum() / scale
        for unknown, slope in zip(unknowns, torch.autograd.grad(loss, unknowns), strict=True):
            unknown.grad = slope
        return loss.detach()

    solver.step(objective)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        final = bounds.clamp(images.detach().nan_to_num())
        chosen = targets().argmax(dim=-1)
        found = simulate(final, one_hot(chosen, classes).float())
    return Reconstruction(final, chosen, float(mismatch(found, seen)))

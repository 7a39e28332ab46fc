"""Local SGD of a stack of devices, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.gradients import StackedGradient
from sfumato.learning.norms import drop_non_finite_, row_norms, scale_factors
from sfumato.learning.training_memory import StepSettings, TrainingMemory


@dataclass(frozen=True)
class LocalSGD:
    """What every device does with its batches.

    Attributes:
        learning_rate: step size.
        momentum: of SGD as in ``torch.optim``; its buffer starts at zero at every call.
        step_clip: l2 bound of each mini-batch mean gradient, before momentum; ``None`` for none.
        example_clip: l2 bound of each example's gradient, before they are added up; ``None`` for none.
        proximal: weight mu of the proximal term ``mu/2 |w - w_0|^2`` about the model w_0 that training starts
            from (FedProx). After a step to w the model becomes ``w_0 + (w - w_0) / (1 + learning_rate mu)``,
            the proximal step, which lengthens no distance; momentum does not see it.

    Raises:
        SpecError: a value out of range.
    """

    learning_rate: float
    momentum: float = 0.0
    step_clip: float | None = None
    example_clip: float | None = None
    proximal: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise SpecError("training.learning_rate", self.learning_rate, "must be a positive finite number")
        if not (math.isfinite(self.proximal) and self.proximal >= 0):
            allowed = "must be a finite number, 0 or more"
            raise SpecError("training.drift_correction.mu", self.proximal, allowed)
        if not 0 <= self.momentum < 1:
            raise SpecError("training.momentum", self.momentum, "must lie in [0, 1)")
        for bound in (self.step_clip, self.example_clip):
            if bound is not None and not (math.isfinite(bound) and bound > 0):
                raise SpecError("privacy.clip.norm", bound, "must be a positive finite number")


AddNoise: TypeAlias = Callable[[Tensor, int, int], None]
"""Adds noise to flat gradients ``[n, M]``, in place; told the step, from 0, and what they were divided by."""


def train_stack(
    memory: TrainingMemory,
    batches: BatchPlan,
    features: Tensor,
    labels: Tensor,
    sgd: LocalSGD,
    noise: AddNoise | None = None,
    corrections: Tensor | None = None,
) -> Tensor:
    """Train the models of n devices in place, each on its own batches.

    Args:
        memory: with room reserved for the devices and their widest batch; holds the models, packed.
        batches: of these n devices, on the models' device, sorted by falling number of steps.
        features: ``[N, ...]``, the data set.
        labels: int64 ``[N]``, or the targets that the loss takes ``[N, ...]``.
        sgd: what to do.
        noise: added at every step, before momentum; ``None`` for none.
        corrections: added to the gradient of every step of a device, after clips and momentum, packed
            ``[n, M]``; ``None`` for nothing.

    Returns:
        How many of a device's gradients were clipped ``[n]``; of examples, the shares of all steps added up.
    """
    models = memory.reserve(batches.devices, batches.width)
    clipped = torch.zeros(len(models), device=models.device)
    began = models.clone() if sgd.proximal else None
    apart = sgd.step_clip is not None or noise is not None
    if apart:
        settings = StepSettings(keep=0.0, scale=1.0, example_clip=sgd.example_clip)
    elif sgd.momentum:
        settings = StepSettings(keep=sgd.momentum, scale=1.0, example_clip=sgd.example_clip)
    else:  # one pass does it all
        settings = StepSettings(1.0, -sgd.learning_rate, onto_models=True, example_clip=sgd.example_clip)
    slope = models if settings.onto_models else memory.slopes(len(models))
    velocity = torch.empty_like(models) if apart and sgd.momentum else slope
    if sgd.momentum:
        velocity.zero_()
    for number, (n, width, rows, targets, weights) in enumerate(_by_step(batches, labels)):
        if n == 0:
            break
        used, step = memory.step(n, width, settings)
        torch.index_select(features, 0, rows[:n, :width].reshape(-1), out=used)
        cut = step(targets[:n, :width], weights[:n, :width])
        if cut is not None:
            clipped[:n] += cut.sum(dim=1) / (weights[:n] > 0).sum(dim=1).clamp(min=1)
        if noise is not None:
            slope[:n] += _noise_like(slope[:n], memory.gradient, noise, number, batches.divisor or 1)
        if apart:
            clipped[:n] += _descend_(models[:n], velocity[:n], slope[:n], sgd)
        elif sgd.momentum:
            models[:n].add_(velocity[:n], alpha=-sgd.learning_rate)
        if corrections is not None:
            models[:n].add_(corrections[:n], alpha=-sgd.learning_rate)
        if began is not None:
            pull = sgd.learning_rate * sgd.proximal
            models[:n].lerp_(began[:n], pull / (1 + pull))
    return clipped


def _noise_like(
    slope: Tensor, gradient: StackedGradient, noise: AddNoise, number: int, divisor: int
) -> Tensor:
    """Packed noise of step ``number`` for gradients that were divided by ``divisor``, ``[n, M]``."""
    flat, packed = torch.zeros_like(slope), torch.empty_like(slope)
    noise(flat, number, divisor)
    gradient.pack(flat, packed)
    return packed


def _descend_(models: Tensor, velocity: Tensor, slope: Tensor, sgd: LocalSGD) -> Tensor:
    """Take one step of SGD down ``slope``, in place; returns whose slope was clipped ``[n]``."""
    clipped, factors = slope.new_zeros(len(slope)), slope.new_ones(len(slope))
    if sgd.step_clip is not None:
        norms = row_norms(slope)
        drop_non_finite_(slope, norms)
        factors = scale_factors(norms, sgd.step_clip)
        clipped = (~(norms <= sgd.step_clip)).float()
    if sgd.momentum:
        velocity.mul_(sgd.momentum).addcmul_(slope, factors[:, None])
        models.add_(velocity, alpha=-sgd.learning_rate)
    else:
        models.addcmul_(slope, factors[:, None], value=-sgd.learning_rate)
    return clipped


def _by_step(batches: BatchPlan, labels: Tensor) -> Iterable[tuple[int, int, Tensor, Tensor, Tensor]]:
    """For each step: how many devices still train, how wide a batch is; rows, labels, weights ``[n, B]``."""
    steps = torch.arange(batches.rows.shape[1], device=batches.rows.device)
    active = (batches.steps[:, None] > steps).sum(dim=0).tolist()
    widths = [batches.width] * len(active) if batches.divisor is None else _widths(batches.counts)
    rows = batches.rows.transpose(0, 1).contiguous()
    counts = batches.counts.t()[:, :, None]
    filled = torch.arange(batches.width, device=rows.device) < counts
    weights = filled.float().div_(counts.clamp(min=1) if batches.divisor is None else batches.divisor)
    return zip(active, widths, rows, labels[rows.long()], weights, strict=True)


def _widths(counts: Tensor) -> list[int]:
    """How wide the batches of each step have to be, where widths are drawn and the widest is rare.

    In parts of 32 of the widest, since steps are kept by their width.
    """
    widest = int(counts.max())
    part = max(1, -(-widest // 32))
    return [max(1, min(-(-width // part) * part, widest)) for width in counts.amax(dim=0).tolist()]

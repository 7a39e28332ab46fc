"""Local SGD of a stack of devices, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.gradients import GradientStep, StackedGradient
from sfumato.learning.norms import drop_non_finite_, row_norms, scale_factors


@dataclass(frozen=True)
class LocalSGD:
    """What every device does with its batches.

    Attributes:
        learning_rate: step size.
        momentum: of SGD as in ``torch.optim``; its buffer starts at zero at every call.
        step_clip: l2 bound of each mini-batch mean gradient, before momentum; ``None`` for none.

    Raises:
        SpecError: a value out of range.
    """

    learning_rate: float
    momentum: float = 0.0
    step_clip: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise SpecError("training.learning_rate", self.learning_rate, "must be a positive finite number")
        if not 0 <= self.momentum < 1:
            raise SpecError("training.momentum", self.momentum, "must lie in [0, 1)")
        if self.step_clip is not None and not (math.isfinite(self.step_clip) and self.step_clip > 0):
            raise SpecError("privacy.clip.norm", self.step_clip, "must be a positive finite number")


def train_stack(
    gradient: StackedGradient,
    models: Tensor,
    batches: BatchPlan,
    features: Tensor,
    labels: Tensor,
    sgd: LocalSGD,
) -> Tensor:
    """Train a stack of models in place, each on its own batches.

    Args:
        gradient: of the architecture, with scratch memory that no other thread uses.
        models: packed float32 ``[n, M]``.
        batches: of these n devices, on the models' device, sorted by falling number of steps.
        features: float32 ``[N, ...]``, the data set.
        labels: int64 ``[N]``.
        sgd: what to do.

    Returns:
        How many of its gradients were clipped, for each device: float32 ``[n]``.
    """
    clipped = torch.zeros(len(models), device=models.device)
    velocity = torch.zeros_like(models) if sgd.momentum else models
    slope = velocity if sgd.step_clip is None else torch.empty_like(models)
    if sgd.step_clip is not None:
        keep, scale = 0.0, 1.0
    elif sgd.momentum:
        keep, scale = sgd.momentum, 1.0
    else:
        keep, scale = 1.0, -sgd.learning_rate  # the slope is then the models: one pass does it all

    by_step = _by_step(batches, labels)
    n = 0
    bound: dict[int, GradientStep] = {}  # by the width of a batch
    for active, width, rows, targets, weights in by_step:
        if active == 0:
            break
        if active != n:
            n, bound = active, {}
        if width not in bound:
            bound[width] = gradient.bind(models[:n], slope[:n], width, keep=keep, scale=scale)
        step = bound[width]
        into = step.features.flatten(0, 1)
        torch.index_select(features, 0, rows[:n, :width].reshape(-1), out=into)
        step(targets[:n, :width], weights[:n, :width])
        if sgd.step_clip is not None:
            norms = row_norms(slope[:n])
            drop_non_finite_(slope[:n], norms)
            factors = scale_factors(norms, sgd.step_clip)
            clipped[:n] += ~(norms <= sgd.step_clip)
            if sgd.momentum:
                velocity[:n].mul_(sgd.momentum).addcmul_(slope[:n], factors[:, None])
            else:
                models[:n].addcmul_(slope[:n], factors[:, None], value=-sgd.learning_rate)
        if sgd.momentum:
            models[:n].add_(velocity[:n], alpha=-sgd.learning_rate)
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

    In eighths of the widest, as memory is laid out for every width that there is.
    """
    widest = int(counts.max())
    eighth = max(1, -(-widest // 8))
    return [max(1, min(-(-width // eighth) * eighth, widest)) for width in counts.amax(dim=0).tolist()]

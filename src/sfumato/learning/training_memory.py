"""The memory that a stack of devices trains in, and the gradient steps that are laid out over it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.learning.gradients import GradientStep, StackedGradient

# Each is some tens of small objects.
_MOST_STEPS = 256


@dataclass(frozen=True)
class StepSettings:
    """What a gradient step adds to what: ``target <- keep target + scale gradient``.

    Attributes:
        keep: what the target is multiplied by.
        scale: what the gradient is multiplied by.
        onto_models: whether the target is the models themselves, or where examples are clipped how far they
            moved; a memory of its own otherwise.
        example_clip: l2 bound of every example's gradient; ``None`` for none.
    """

    keep: float
    scale: float
    onto_models: bool = False
    example_clip: float | None = None


class TrainingMemory:
    """Models, slopes and features of the devices that train together, for one stack after the other.

    To lay out a step takes as long as to do it, so steps are kept, by the number of devices and the length of
    a batch. Not to be shared between threads.

    Args:
        gradient: of the architecture.
        size: parameters of a model.
        features: the data set ``[N, ...]``, for the shape of an example and the device.
    """

    def __init__(self, gradient: StackedGradient, size: int, features: Tensor) -> None:
        self.gradient = gradient
        self._size = size
        self._models = self._slopes = self._drifts = torch.empty(0, size, device=features.device)
        self._features = features.new_empty(0, *features.shape[1:])
        self._largest = 0, 0
        self._steps: dict[tuple[int, int, StepSettings], tuple[Tensor, GradientStep]] = {}

    def reserve(self, devices: int, width: int) -> Tensor:
        """Make room for that many devices and batches that long; gives their packed models ``[devices, M]``.

        The models, and what lies beside them, hold what was left there.
        """
        if len(self._models) < devices:
            self._models = self._models.new_empty(devices, self._size)
            self._steps.clear()
        if len(self._features) < devices * width:
            self._features = self._features.new_empty(devices * width, *self._features.shape[1:])
            self._largest = devices, width
            self._steps.clear()
        return self._models[:devices]

    def slopes(self, devices: int) -> Tensor:
        """A packed vector beside each of the models, ``[devices, M]``."""
        if len(self._slopes) < len(self._models):
            self._slopes = torch.empty_like(self._models)
            self._steps.clear()
        return self._slopes[:devices]

    def drifts(self, devices: int) -> Tensor:
        """How far each of the models has moved, packed ``[devices, M]``."""
        if len(self._drifts) < len(self._models):
            self._drifts = torch.empty_like(self._models)
            self._steps.clear()
        return self._drifts[:devices]

    def step(self, devices: int, width: int, settings: StepSettings) -> tuple[Tensor, GradientStep]:
        """Where the features of a step go, ``[devices * width, ...]``, and the step; room was made before."""
        if len(self._steps) == _MOST_STEPS:
            self._steps.clear()
        if not self._steps and self._largest != (devices, width):
            # The memory between layers is then as large as any step needs it, and all steps share it.
            self._lay_out(*self._largest, settings)
        if (devices, width, settings) not in self._steps:
            self._lay_out(devices, width, settings)
        return self._steps[devices, width, settings]

    def _lay_out(self, devices: int, width: int, settings: StepSettings) -> None:
        models, features = self._models[:devices], self._features[: devices * width]
        target = self.slopes(devices)
        if settings.onto_models:
            target = models if settings.example_clip is None else self.drifts(devices)
        step = self.gradient.bind(
            models,
            target,
            torch.unflatten(features, 0, (devices, width)),
            keep=settings.keep,
            scale=settings.scale,
            example_clip=settings.example_clip,
        )
        self._steps[devices, width, settings] = features, step

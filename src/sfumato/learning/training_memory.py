"""The memory that a stack of devices trains in, and the gradient steps that are laid out over it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.learning.gradients import GradientStep, StackedGradient

# Each is some tens of small objects.
_MOST_STEPS = 256

# Rows begin at multiples of so many numbers, 64 bytes: what a library makes of a product depends on it.
_ALIGNMENT = 16

# Numbers in a run of models that are worth an operation of their own.
_LONG_RUN = 1 << 16


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


@dataclass(frozen=True)
class StartModels:
    """What the models of a stack of n devices start from.

    Attributes:
        models: ``[G, M]``.
        pieces: one after the other, which rows of ``models`` the next devices start from, and where these
            devices end; one row stands for all devices of its piece.
    """

    models: Tensor
    pieces: Sequence[tuple[slice, int]]

    @classmethod
    def of(cls, models: Tensor, group_of: Tensor) -> StartModels:
        """The start models of n devices, device p from ``models[group_of[p]]``.

        Neighbours that start from one model share its row, where they are many.

        Args:
            models: ``[G, M]``.
            group_of: int64 ``[n]``.
        """
        groups, counts = torch.unique_consecutive(group_of, return_counts=True)
        if len(groups) * _LONG_RUN > len(group_of) * models.shape[1]:
            return cls(models[group_of], [(slice(0, len(group_of)), len(group_of))])
        rows = [slice(row, row + 1) for row in range(len(groups))]
        return cls(models[groups], list(zip(rows, counts.cumsum(0).tolist(), strict=True)))

    def with_rows_of(self, *stacks: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Yield start models with the rows of other stacks that are of the same devices, in pieces.

        Args:
            stacks: one or more, each ``[n, M]``, a row for each of the first n devices.

        Yields:
            The start models ``[1 or k, M]`` of the next k devices (1 if they share it), then the k rows of
            every stack ``[k, M]``.
        """
        begin = 0
        for rows, end in self.pieces:
            parts = [stack[begin:end] for stack in stacks]
            found = self.models[rows]
            yield found[: len(parts[0])], *parts
            begin = end
            if begin >= len(stacks[0]):
                return


def _stack_of(devices: int, size: int, device: torch.device) -> Tensor:
    """Memory, not initialised, for a float32 vector of each device, ``[devices, size]``, every one aligned.

    ``device``: that holds it.
    """
    return torch.empty(devices, -(-size // _ALIGNMENT) * _ALIGNMENT, device=device)[:, :size]


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
        self._models = _stack_of(0, size, features.device)
        self._stacks: dict[str, Tensor] = {}
        self._features = features.new_empty(0, *features.shape[1:])
        self._largest = 0, 0
        self._steps: dict[tuple[int, int, StepSettings], tuple[Tensor, GradientStep]] = {}

    def reserve(self, devices: int, width: int) -> Tensor:
        """Make room for ``devices`` models and for batches of ``width`` examples of each.

        Returns:
            The packed models ``[devices, M]``, not initialised, as slopes, drifts and features are not.
        """
        if len(self._models) < devices:
            self._models = _stack_of(devices, self._size, self._models.device)
            self._steps.clear()
        if len(self._features) < devices * width:
            self._features = self._features.new_empty(devices * width, *self._features.shape[1:])
            self._largest = devices, width
            self._steps.clear()
        return self._models[:devices]

    def slopes(self, devices: int) -> Tensor:
        """Memory for the gradient of each of the models, packed ``[devices, M]``, not initialised."""
        return self._beside("slopes", devices)

    def drifts(self, devices: int) -> Tensor:
        """Memory for how far each of the models has moved, packed ``[devices, M]``, not initialised."""
        return self._beside("drifts", devices)

    def _beside(self, what: str, devices: int) -> Tensor:
        """The stack of vectors called ``what``, ``[devices, M]``, which is not initialised.

        Where it is made anew, as it is too small, bound steps are forgotten.
        """
        if what not in self._stacks or len(self._stacks[what]) < len(self._models):
            self._stacks[what] = _stack_of(len(self._models), self._size, self._models.device)
            self._steps.clear()
        return self._stacks[what][:devices]

    def step(self, devices: int, width: int, settings: StepSettings) -> tuple[Tensor, GradientStep]:
        """Memory for the batches' features, ``[devices * width, ...]``, and the gradient step that reads it.

        The same arguments give the same step again. `reserve` must have made room before.

        Args:
            devices: n, that take the step.
            width: examples of the widest batch.
            settings: factors of target and gradient, and clip.
        """
        if len(self._steps) == _MOST_STEPS:
            self._steps.clear()
        if not self._steps and self._largest != (devices, width):
            # The memory between layers is then as large as any step needs it, and all steps share it.
            self._lay_out(*self._largest, settings)
        if (devices, width, settings) not in self._steps:
            self._lay_out(devices, width, settings)
        return self._steps[devices, width, settings]

    def _lay_out(self, devices: int, width: int, settings: StepSettings) -> None:
        """Bind a step for ``devices`` batches of ``width`` examples, and keep it with its features.

        The gradient is added to the models where ``settings`` say so; with a clip of examples, to drifts.
        """
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

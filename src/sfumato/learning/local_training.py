"""Local steps of a stack of devices: SGD or Adam, one step after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from sfumato.errors import SpecError
from sfumato.learning.batches import BatchPlan
from sfumato.learning.dropout import DrawUniforms
from sfumato.learning.gradients import StackedGradient
from sfumato.learning.norms import clip_factors
from sfumato.learning.training_memory import StartModels, StepSettings, TrainingMemory


@dataclass(frozen=True)
class AdamMoments:
    """Adam (Kingma and Ba 2015, algorithm 1), as in ``torch.optim``: steps by moments of the gradients.

    Attributes:
        beta1: what is kept of the mean of gradients at a step.
        beta2: what is kept of the mean of their squares at a step.
        epsilon: added to the root of the mean of squares.

    Raises:
        SpecError: a value out of range.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        for name, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= value < 1:
                raise SpecError(f"training.optimizer.{name}", value, "must lie in [0, 1)")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise SpecError("training.optimizer.epsilon", self.epsilon, "must be a positive finite number")

    def step_(
        self, models: Tensor, moments: tuple[Tensor, Tensor], slope: Tensor, number: int, rate: float
    ) -> None:
        """Take one step of Adam; ``models`` and ``moments`` change in place.

        Args:
            models: ``[n, M]``.
            moments: means of gradients and of their squares, each ``[n, M]``, 0 before the first step.
            slope: the gradient, ``[n, M]``.
            number: of the step, from 0, for the bias correction.
            rate: the step size.
        """
        first, second = moments
        first.lerp_(slope, 1 - self.beta1)
        second.mul_(self.beta2).addcmul_(slope, slope, value=1 - self.beta2)
        # moments start at zero: both are divided by the share of the weights that gradients have so far
        root = (second / (1 - self.beta2 ** (number + 1))).sqrt_().add_(self.epsilon)
        models.addcdiv_(first, root, value=-rate / (1 - self.beta1 ** (number + 1)))


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
        weight_decay: lambda, decoupled (Loshchilov and Hutter 2019): every step first multiplies the model,
            at which its gradient was taken, by ``1 - learning_rate lambda``. Moments do not see it.
        adam: of Adam; ``None`` for SGD. Its moments start at zero at every call.

    Raises:
        SpecError: a value out of range.
    """

    learning_rate: float
    momentum: float = 0.0
    step_clip: float | None = None
    example_clip: float | None = None
    proximal: float = 0.0
    weight_decay: float = 0.0
    adam: AdamMoments | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise SpecError("training.learning_rate", self.learning_rate, "must be a positive finite number")
        if not (math.isfinite(self.proximal) and self.proximal >= 0):
            allowed = "must be a finite number, 0 or more"
            raise SpecError("training.drift_correction.mu", self.proximal, allowed)
        if not 0 <= self.momentum < 1:
            raise SpecError("training.momentum", self.momentum, "must lie in [0, 1)")
        if not 0 <= self.learning_rate * self.weight_decay <= 1:
            allowed = f"must lie in [0, 1 / learning_rate], 1 / learning_rate is {1 / self.learning_rate:g}"
            raise SpecError("training.weight_decay", self.weight_decay, allowed)
        if self.adam is not None and (self.momentum or self.step_clip is not None):
            raise SpecError("training.optimizer", "adam", "goes without momentum and clips of steps")
        for bound in (self.step_clip, self.example_clip):
            if bound is not None and not (math.isfinite(bound) and bound > 0):
                raise SpecError("privacy.clip.norm", bound, "must be a positive finite number")

    @property
    def clips_gradients(self) -> bool:
        """Whether gradients are clipped, of steps or of examples."""
        return self.step_clip is not None or self.example_clip is not None

    @property
    def decay_factor(self) -> float:
        """1 − learning rate · weight decay: what every step first multiplies the model by."""
        return 1.0 - self.learning_rate * self.weight_decay


AddNoise: TypeAlias = Callable[[Tensor, int, int], None]
"""Adds noise to flat gradients ``[n, M]``, in place; told the step, from 0, and what they were divided by."""


def train_stack(
    memory: TrainingMemory,
    starts: StartModels,
    batches: BatchPlan,
    features: Tensor,
    labels: Tensor,
    sgd: LocalSGD,
    noise: AddNoise | None = None,
    corrections: Tensor | None = None,
    dropout: DrawUniforms | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Train the models of n devices in place, each on its own batches.

    Where gradients are clipped, what the steps add up to is kept by itself, the *drift*, and gradients are
    taken at the first model plus the drift. The end minus the start would have the rounding of the weights in
    it, which no clip bounds (docs/accounting.md, *Rounding*).

    Args:
        memory: holds the models, packed.
        starts: what they start from, packed.
        batches: of these n devices, on the models' device, sorted by falling number of steps.
        features: ``[N, ...]``, the data set.
        labels: int64 ``[N]``, or the targets that the loss takes ``[N, ...]``.
        sgd: what to do.
        noise: added at every step, before momentum or moments; ``None`` for none.
        corrections: added to the gradient of every step of a device, after clips and momentum, packed
            ``[n, M]``; ``None`` for nothing.
        dropout: draws what masks of dropout follow from; needed by models with dropout layers.

    Returns:
        How many of a device's gradients were clipped ``[n]``; of examples, the shares of all steps added up.
        The drifts, packed ``[n, M]``; ``None`` where nothing clips gradients.
    """
    models = memory.reserve(batches.devices, batches.width)
    for start, own in starts.with_rows_of(models):
        own.copy_(start)
    clipped = torch.zeros(len(models), device=models.device)
    descent = _Descent.of(memory, models, starts, sgd, corrections, noisy=noise is not None)
    slope = descent.slope
    for number, (n, width, rows, targets, weights, counts) in enumerate(_by_step(batches, labels)):
        if n == 0:
            break
        if number:
            descent.follow_drifts_(n)
        used, step = memory.step(n, width, descent.settings)
        torch.index_select(features, 0, rows[:n, :width].reshape(-1), out=used)
        uniforms = _uniforms(memory.gradient, dropout, number, n, width)
        cut = step(
            targets[:n, :width], weights[:n, :width], None if uniforms is None else uniforms.to(used.device)
        )
        if cut is not None:
            clipped[:n] += cut.sum(dim=1) / counts[:n]
        if noise is not None:
            slope[:n] += _noise_like(slope[:n], memory.gradient, noise, number, batches.divisor or 1)
        descent.step_(clipped[:n], number)
    return clipped, descent.drift


def _uniforms(
    gradient: StackedGradient, dropout: DrawUniforms | None, number: int, n: int, width: int
) -> Tensor | None:
    """Draw numbers for the dropout masks of step ``number``, ``[n, width, F]``; ``None`` without dropout.

    Raises:
        ValueError: the model has dropout layers, and there are no draws (``dropout`` is ``None``).
    """
    if not gradient.dropout_floats:
        return None
    if dropout is None:
        raise ValueError("a model with dropout layers needs draws for their masks")
    return dropout(number, (n, width, gradient.dropout_floats))


def _noise_like(
    slope: Tensor, gradient: StackedGradient, noise: AddNoise, number: int, divisor: int
) -> Tensor:
    """Packed noise of step ``number``, shaped as ``slope`` ``[n, M]``.

    ``divisor``: what the gradients that it is added to were divided by.
    """
    flat, packed = torch.zeros_like(slope), torch.empty_like(slope)
    noise(flat, number, divisor)
    gradient.pack(flat, packed)
    return packed


@dataclass(frozen=True, eq=False)
class _Descent:
    """How the models of a stack move once the gradients of a step are known.

    Attributes:
        sgd: what to do.
        settings: of the gradient step that comes before.
        models: packed ``[n, M]``.
        slope: where the gradient step puts what it adds up, packed ``[n, M]``: the gradient, with momentum
            perhaps the velocity; the models or drifts, if it moves them at once.
        state: what is kept from step to step, packed ``[n, M]`` each: a velocity, or both moments of Adam.
        starts: the models before the first step.
        drift: how far the models moved, packed ``[n, M]``; ``None``: the models themselves are moved.
        corrections: added to every step's gradient, packed ``[n, M]``; ``None`` for nothing.
    """

    sgd: LocalSGD
    settings: StepSettings
    models: Tensor
    slope: Tensor
    state: tuple[Tensor, ...]
    starts: StartModels
    drift: Tensor | None
    corrections: Tensor | None

    @classmethod
    def of(
        cls,
        memory: TrainingMemory,
        models: Tensor,
        starts: StartModels,
        sgd: LocalSGD,
        corrections: Tensor | None,
        *,
        noisy: bool,
    ) -> _Descent:
        """Prepare the first step: choose what the gradient step adds up to; drifts and moments are 0.

        Args:
            memory: that the stack trains in.
            models: packed ``[n, M]``, already set to the starts.
            starts: the models before the first step.
            sgd: what to do.
            corrections: added to every step's gradient, packed ``[n, M]``; ``None`` for nothing.
            noisy: whether noise is added to gradients before a step is taken.
        """
        state: tuple[Tensor, ...] = ()
        if sgd.adam is not None:
            state = (torch.zeros_like(models), torch.zeros_like(models))
        if noisy or sgd.step_clip is not None or sgd.adam is not None:
            settings = StepSettings(keep=0.0, scale=1.0, example_clip=sgd.example_clip)
            if sgd.momentum:
                state = (torch.zeros_like(models),)
        elif sgd.momentum:  # the gradient step adds up the velocity itself
            settings = StepSettings(keep=sgd.momentum, scale=1.0, example_clip=sgd.example_clip)
        else:  # and here takes the whole step
            settings = StepSettings(
                sgd.decay_factor, -sgd.learning_rate, onto_models=True, example_clip=sgd.example_clip
            )
        drift = memory.drifts(len(models)).zero_() if sgd.clips_gradients else None
        moved = models if drift is None else drift
        slope = moved if settings.onto_models else memory.slopes(len(models))
        if settings.keep and not settings.onto_models:
            slope.zero_()
        return cls(sgd, settings, models, slope, state, starts, drift, corrections)

    def step_(self, clipped: Tensor, number: int) -> None:
        """Move the first n models, or their drifts, in place, once step ``number``'s gradients are known.

        Args:
            clipped: ``[n]``; 1 is added for each model whose step was clipped.
            number: of the step, from 0.
        """
        sgd, n = self.sgd, len(clipped)
        models, slope, rate = self.models[:n], self.slope[:n], sgd.learning_rate
        moved = models if self.drift is None else self.drift[:n]
        if not self.settings.onto_models:
            if sgd.weight_decay:
                moved.mul_(sgd.decay_factor)
            if sgd.adam is not None:
                first, second = self.state
                sgd.adam.step_(moved, (first[:n], second[:n]), slope, number, rate)
            else:
                self._descend_(moved, slope, clipped)
        if self.corrections is not None:
            moved.add_(self.corrections[:n], alpha=-rate)
        pull = rate * sgd.proximal
        if self.drift is None:
            if pull:
                for start, own in self.starts.with_rows_of(models):
                    own.lerp_(start.expand_as(own), pull / (1 + pull))
            return
        if sgd.weight_decay:  # the drift has decayed, and not the model that it is added to
            for start, own in self.starts.with_rows_of(moved):
                own.add_(start, alpha=-rate * sgd.weight_decay)
        if pull:
            moved.mul_(1 / (1 + pull))

    def follow_drifts_(self, n: int) -> None:
        """Set the first n models to start + drift, in place; does nothing where models move themselves."""
        if self.drift is not None:
            for start, drift, model in self.starts.with_rows_of(self.drift[:n], self.models[:n]):
                torch.add(start, drift, out=model)

    def _descend_(self, moved: Tensor, slope: Tensor, clipped: Tensor) -> None:
        """Take one step of SGD from ``moved`` ``[n, M]`` down ``slope`` ``[n, M]``, in place.

        It is clipped if ``sgd`` says so.

        Adds 1 to ``clipped`` ``[n]`` for each model whose step was clipped.
        """
        sgd, rate = self.sgd, self.sgd.learning_rate
        if self.settings.keep:
            moved.add_(slope, alpha=-rate)
            return
        if sgd.step_clip is None:
            factors = slope.new_ones(len(slope))
        else:
            norms, factors = clip_factors(slope, sgd.step_clip)
            clipped += ~(norms <= sgd.step_clip)
        if sgd.momentum:
            velocity = self.state[0][: len(slope)]
            velocity.mul_(sgd.momentum).addcmul_(slope, factors[:, None])
            moved.add_(velocity, alpha=-rate)
        else:
            moved.addcmul_(slope, factors[:, None], value=-rate)


def _by_step(batches: BatchPlan, labels: Tensor) -> Iterable[tuple[int, int, Tensor, Tensor, Tensor, Tensor]]:
    """Yield what each step needs, one tuple a step.

    Yields:
        How many devices still train; how wide the batch is; rows of the data set ``[n, B]``; labels ``[n, B,
        ...]``; weights of examples ``[n, B]``; and the number of examples of each device ``[n]``, 1 for none.
    """
    steps = torch.arange(batches.rows.shape[1], device=batches.rows.device)
    active = (batches.steps[:, None] > steps).sum(dim=0).tolist()
    widths = [batches.width] * len(active) if batches.divisor is None else _widths(batches.counts)
    rows = batches.rows.transpose(0, 1).contiguous()
    counts = batches.counts.t()[:, :, None]
    filled, counts = torch.arange(batches.width, device=rows.device) < counts, counts.clamp(min=1)
    weights = filled.float().div_(counts if batches.divisor is None else batches.divisor)
    return zip(active, widths, rows, labels[rows.long()], weights, counts[:, :, 0], strict=True)


def _widths(counts: Tensor) -> list[int]:
    """The width to use for each step's batches: at least the largest drawn of ``counts`` ``[P, steps]``.

    In parts of 1/32 of the widest, since steps are kept by their width; at least 1.
    """
    widest = int(counts.max())
    part = max(1, -(-widest // 32))
    return [max(1, min(-(-width // part) * part, widest)) for width in counts.amax(dim=0).tolist()]

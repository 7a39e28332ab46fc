"""One inversion: what an attacker knows about a target, and all attacks that solve for its images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import one_hot

from sfumato.attacks.closed_form import (
    first_layer_gradients,
    first_linear,
    invert_one_example,
    is_softmax_regression,
    mean_image_of_each_label,
    rescale_rows,
)
from sfumato.attacks.gradient_matching import (
    FeatureBounds,
    Reconstruction,
    Simulation,
    invert_by_cosine,
    invert_by_distance,
    mismatch,
)
from sfumato.attacks.inversion_targets import InversionTarget
from sfumato.attacks.label_recovery import label_signal, recover_labels
from sfumato.engine.base import LocalTask
from sfumato.learning.parameters import ParameterLayout
from sfumato.mechanisms.clipping import FlatClip

MOST_UNKNOWN = 64
_FEW = 8  # DLG and iDLG are for small batches
_LBFGS_ITERATIONS = 150
_VARIATION = 0.01
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class AttackerKnowledge:
    """Public knowledge, and the attacker's own data from the devices' distribution.

    Attributes:
        model: the architecture.
        classes: number of labels.
        features: of the attacker's own data, ``[N, C, H, W]``.
        labels: of the attacker's own data, int64 ``[N]``.
        mean: features are (pixels - mean) / std with pixels from 0 to 1; ``[C, 1, 1]``.
        std: ``[C, 1, 1]``.
    """

    model: nn.Module
    classes: int
    features: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor

    @property
    def feature_bounds(self) -> FeatureBounds:
        """The range of standardised features: those of pixels 0 and 1."""
        return FeatureBounds((0 - self.mean) / self.std, (1 - self.mean) / self.std)

    def pixels(self, features: Tensor) -> Tensor:
        """Standardised ``features`` as pixels, clamped to [0, 1], of the same shape."""
        return (features * self.std + self.mean).clamp(0.0, 1.0)

    def predictions(self, parameters: Tensor) -> Tensor:
        """Mean probabilities ``[classes]`` that a model ``[M]`` predicts on the attacker's own data."""
        named = ParameterLayout.of(self.model).unflatten(parameters)
        with torch.no_grad():
            logits: Tensor = functional_call(self.model, named, (self.features,))
            return logits.softmax(dim=1).mean(dim=0)


@dataclass(frozen=True, eq=False)
class InversionProblem:
    """A target with all that the attacker may use. The target's training rows are not used.

    Attributes:
        knowledge: of the attacker.
        target: the sum of updates.
        task: the devices' local training, clipping included.
    """

    knowledge: AttackerKnowledge
    target: InversionTarget
    task: LocalTask

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many different examples each device of the target used; the attacker knows it."""
        batches = self.target.batches
        return tuple(
            len(torch.unique(rows[valid])) for rows, valid in zip(batches.rows, self._valid, strict=True)
        )

    @property
    def image_count(self) -> int:
        """U, the number of images to solve for: all examples used, at most `MOST_UNKNOWN`."""
        return min(sum(self.sizes), MOST_UNKNOWN)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the images to solve for, ``(U, C, H, W)``."""
        return (self.image_count, *self.knowledge.features.shape[1:])

    @cached_property
    def _valid(self) -> Tensor:
        """Whether each place of each batch holds an example, ``[n, S, B]`` for n devices and S steps."""
        batches = self.target.batches
        used = torch.arange(batches.rows.shape[1]) < batches.steps[:, None]
        return (torch.arange(batches.width) < batches.counts[:, :, None]) & used[:, :, None]

    @cached_property
    def simulate(self) -> Simulation:
        """The function that computes the devices' summed update ``[M]`` for given images.

        Each device is assumed to use its examples in order.
        """
        valid = self._valid
        places = (valid.flatten(1).cumsum(dim=1) - 1).clamp(min=0).view(valid.shape)
        sizes = torch.tensor(self.sizes)
        first = (sizes.cumsum(dim=0) - sizes)[:, None, None]
        slots = (first + places % sizes[:, None, None]) % self.image_count
        weights = valid.float() / valid.sum(dim=2, keepdim=True).clamp(min=1)
        clip = self.task.update_clip
        norm = clip.norm * self.target.message_count if isinstance(clip, FlatClip) else None
        shares = self.target.shares
        return Simulation(
            self.knowledge.model, self.target.start, self.task.sgd, norm, slots, weights, shares
        )

    @cached_property
    def gradient(self) -> Tensor:
        """The mean mini-batch gradient ``[M]`` behind the observed update; clipping is undone by estimate."""
        sgd, steps = self.task.sgd, self.target.batches.steps
        weight = 0.0
        for share, count in zip(self.target.shares.tolist(), steps.tolist(), strict=True):
            # with momentum a gradient also contributes to all later steps
            moved = sum(sgd.momentum**later * (count - later) for later in range(count))
            weight += share * sgd.learning_rate * moved
        gradient = -self.target.update / max(weight, _LEAST)
        if self.task.update_clip is None and self.task.layer_norms is None and sgd.step_clip is None:
            return gradient
        # for a label that no example has, the signal equals the prediction; this gives the clipping factor
        signal = self._label_signal(gradient)
        above = signal > _LEAST
        factor = (self.expected[above] / signal[above]).min() if above.any() else torch.tensor(1.0)
        return gradient * factor.clamp(min=1.0)

    @cached_property
    def expected(self) -> Tensor:
        """Mean probabilities ``[classes]`` by the model that devices start from, on the attacker's data."""
        return self.knowledge.predictions(self.target.start)

    def _label_signal(self, gradient: Tensor) -> Tensor:
        """Compute the mean of p - y (predictions less labels), ``[classes]``, from a flat gradient ``[M]``.

        Only up to a factor where the last layer has no bias.
        """
        return label_signal(gradient, self.knowledge.model, self.knowledge.classes)

    @cached_property
    def labels(self) -> Tensor:
        """The labels of the U unknown examples, recovered from `gradient`, ascending ``[U]``."""
        return recover_labels(self._label_signal(self.gradient), self.image_count, self.expected)

    def reconstructions(self, rng: np.random.Generator) -> Iterator[tuple[str, Reconstruction]]:
        """Yield (name of the attack, its reconstruction) for every attack that the model and U allow.

        ``rng``: draws initial images.
        """
        simulate, seen, classes = self.simulate, self.target.update, self.knowledge.classes
        bounds, shape = self.knowledge.feature_bounds, self.shape
        closed = self.closed_form()
        if closed is not None:
            yield "closed form", closed
        yield (
            "cosine",
            invert_by_cosine(
                simulate,
                seen,
                self.labels,
                classes,
                bounds,
                shape,
                rng,
                iterations=self.iterations,
                variation=_VARIATION,
            ),
        )
        if self.image_count <= _FEW:
            for name, labels in (("DLG", None), ("iDLG", self.labels)):
                yield (
                    name,
                    invert_by_distance(
                        simulate, seen, labels, classes, bounds, shape, rng, iterations=_LBFGS_ITERATIONS
                    ),
                )

    @property
    def iterations(self) -> int:
        """Number of steps of Adam, 150 to 600: fewer for larger batches."""
        return max(150, min(600, 6000 // self.simulate.slots.numel()))

    def closed_form(self) -> Reconstruction | None:
        """The reconstruction from the first layer's gradient; ``None`` where the model does not allow it.

        It needs a linear first layer; for more than one image the model must be a softmax regression.
        """
        public = self.knowledge
        if first_linear(public.model) is None or (
            self.image_count > 1 and not is_softmax_regression(public.model)
        ):
            return None
        weight, bias = first_layer_gradients(self.gradient, public.model)
        if bias is None and not is_softmax_regression(public.model):
            return None
        if bias is None:
            images = rescale_rows(-weight[self.labels]).view(self.shape)
        elif self.image_count == 1:
            images = public.pixels(invert_one_example(weight, bias).view(self.shape))
        else:
            size = self.shape[1:]
            images = mean_image_of_each_label(
                weight * self.image_count,
                bias * self.image_count,
                self.expected,
                self.labels,
                public.mean.expand(size).flatten(),
                public.std.expand(size).flatten(),
            ).view(self.shape)
        features = (images - public.mean) / public.std
        with torch.no_grad():
            update = self.simulate(features, one_hot(self.labels, public.classes).float())
        return Reconstruction(features, self.labels, float(mismatch(update, self.target.update)))

"""Local SGD with the weights of a linear first layer kept in their dual form.

A step adds to these weights a sum of products of a gradient at the layer's output with an example. So after
any number of steps from W_0 they are ``W_0 + A^T X``: X ``[K, D]`` holds the K examples that the device
uses, and A ``[K, H]`` is 0 at first. The layer's output for these examples is ``X W_0^T + (X X^T) A``, of
which both products of X are computed once for all steps. A step works on H K numbers in place of H D: it
adds the gradient at the output of example k to row k of A. In exact arithmetic the update is the same;
rounding differs.

Only the way to the update is another one: the update is clipped, and noise is added, as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from sfumato.learning.batches import BatchPlan
from sfumato.learning.gradients import StackedGradient
from sfumato.learning.layers import Block, FlattenLayer, LinearLayer, ParameterSlot, Shape
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.losses import Loss
from sfumato.learning.sequential import SequentialGradient, as_layers
from sfumato.learning.tape import Constant, Tape, add_product_
from sfumato.learning.training_memory import StartModels

# The dual form is chosen where it takes at most this share of the multiplications, and for layers of at
# least so many weights. Measured: the share of the time is 1 to 1.5 times that of the multiplications, up
# to 2 times in layers of few weights.
_SHARE, _FEWEST_WEIGHTS = 0.7, 1 << 13

# Devices that train together have room for as many examples as one of them uses: a few that use far more than
# the others would take away what is saved.
_MOST_OF_MEAN = 4


@dataclass(frozen=True)
class DualForm:
    """The dual form of a model's first layer, a linear one.

    Attributes:
        model: the architecture.
        loss: of every example.
        shape: of an example, of D numbers in all.
        inputs: D.
        outputs: H, of the first layer.
    """

    model: nn.Module
    loss: Loss
    shape: Shape
    inputs: int
    outputs: int

    @classmethod
    def of(cls, model: nn.Module, features: Tensor, loss: Loss) -> DualForm | None:
        """The dual form of ``model`` for examples like ``features`` ``[N, ...]``.

        ``None`` where there is none: the model is no chain with hand-written gradients, its first layer is
        not linear, or the layer has few weights.
        """
        shape = tuple(features.shape[1:])
        if loss.write_gradient is None or not features.is_floating_point():
            return None
        linear = _first_linear(as_layers(model, shape) or [])
        if linear is None or linear.inputs * linear.outputs < _FEWEST_WEIGHTS:
            return None
        return cls(model, loss, shape, linear.inputs, linear.outputs)

    def saves(self, sgd: LocalSGD, batches: BatchPlan) -> bool:
        """Whether to train the devices of ``batches`` in this form; it depends on nothing else.

        Steps of ``sgd`` must be combinations of plain gradients: without clips of their own, Adam and weight
        decay. Noise on gradients and corrections of them rule the form out, too, which the caller knows.
        """
        if sgd.clips_gradients or sgd.adam is not None or sgd.weight_decay:
            return False
        examples, draws = batches.distinct.double(), batches.used.sum(dim=(1, 2)).double()
        plain = 2 * self.inputs * self.outputs * draws
        dual = examples * self.inputs * (examples + 2 * self.outputs) + 2 * self.outputs * examples * draws
        few = examples.amax() <= _MOST_OF_MEAN * examples.mean()
        return bool(few and dual.sum() < _SHARE * plain.sum())

    def gradient(self, examples: int) -> StackedGradient:
        """Gradients of the models in this form, where every device uses up to ``examples`` examples."""
        layers = as_layers(self.model, self.shape)
        assert layers is not None
        linear = _first_linear(layers)
        assert linear is not None
        assert self.loss.write_gradient is not None
        first = DualLayer(examples, linear.outputs, has_bias=linear.has_bias)
        rest = layers[layers.index(linear) + 1 :]
        return SequentialGradient([first, *rest], (first.inputs,), self.loss.write_gradient)

    def inputs_of(self, examples: int) -> int:
        """Numbers that come into the first layer for one example; ``examples`` as in `gradient`."""
        return 2 * examples + self.outputs

    def parameters(self, size: int, examples: int) -> int:
        """Parameters of a model in this form, of a model of ``size`` parameters; ``examples`` as above."""
        return size + self.outputs * (examples - self.inputs)


def _first_linear(layers: Sequence[object]) -> LinearLayer | None:
    """The linear layer that a chain begins with, perhaps after a flattening one; ``None`` if it does not."""
    for layer in layers:
        if not isinstance(layer, FlattenLayer):
            return layer if isinstance(layer, LinearLayer) else None
    return None


class DualLayer:
    """A linear layer in its dual form; see the module.

    What comes in for an example is its row of ``X X^T``, its row of ``X W_0^T``, and 1 at its own place among
    the K examples, 0 at the others.

    Args:
        examples: K.
        outputs: H.
        has_bias: whether the layer has a bias.
    """

    def __init__(self, examples: int, outputs: int, *, has_bias: bool) -> None:
        self._examples, self._outputs, self._has_bias = examples, outputs, has_bias
        self.inputs = 2 * examples + outputs
        self.size = (examples + has_bias) * outputs
        weight: Block = ((examples, outputs), (0, 1))
        self.blocks: Sequence[Block] = [weight, *([((outputs,), (0,))] if has_bias else [])]
        self.floats = self.inputs + outputs
        self._which = torch.empty(0)
        self._ones = Constant(1.0)

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record on ``tape`` the output for ``x`` ``[n, B, 2 K + H]``; returns its ``[n, B, H]``.

        ``slot``: holds A and the bias of the n models.
        """
        products, outputs, self._which = x.split_with_sizes(
            [self._examples, self._outputs, self._examples], dim=2
        )
        y = tape.empty(x, *x.shape[:2], self._outputs)
        if self._has_bias:
            tape.append(partial(torch.add, outputs, self._bias(slot.parameters), out=y))
        else:
            tape.append(partial(y.copy_, outputs))
        tape.append(partial(y.baddbmm_, products, self._coefficients(slot.parameters)))
        return y

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record that ``dy`` ``[n, B, H]``, the gradient at the output, is added to the rows of A.

        And to the bias. It is the first layer of a chain: returns ``dy``, whatever ``wants_dx``.
        """
        target = self._coefficients(slot.target)
        tape.append(partial(add_product_, target, self._which.mT, dy, slot.keep, slot.scale))
        if self._has_bias:
            ones = self._ones.at_least(dy, len(dy) * dy.shape[1]).view(len(dy), 1, -1)
            tape.append(partial(add_product_, self._bias(slot.target), ones, dy, slot.keep, slot.scale))
        return dy

    def _coefficients(self, vectors: Tensor) -> Tensor:
        """A ``[n, K, H]`` in packed vectors ``[n, M]`` of the layer, as a view."""
        return torch.unflatten(
            vectors[:, : self._examples * self._outputs], 1, (self._examples, self._outputs)
        )

    def _bias(self, vectors: Tensor) -> Tensor:
        """The biases ``[n, 1, H]`` in packed vectors of the layer, as a view."""
        return vectors[:, None, self._examples * self._outputs :]


@dataclass(frozen=True, eq=False)
class DualTile:
    """The training of n devices in the dual form, as one of models and examples of its own.

    Attributes:
        form: of the model.
        starts: flat models to start from, in the dual form: A is 0.
        batches: rows are those of `features`.
        features: what comes into a `DualLayer`, float32 ``[n K, 2 K + H]``.
        targets: of these examples, ``[n K, ...]``; 0 past those that a device uses.
    """

    form: DualForm
    starts: StartModels
    batches: BatchPlan
    features: Tensor
    targets: Tensor
    _examples: Tensor  # X, [n, K, D]; 0 past those that a device uses

    @classmethod
    def of(
        cls, form: DualForm, starts: StartModels, batches: BatchPlan, features: Tensor, targets: Tensor
    ) -> DualTile:
        """Prepare the training.

        Args:
            form: of the model.
            starts: flat models to start from, not in the dual form.
            batches: of the n devices, with rows of ``features``.
            features: float32 ``[N, ...]``.
            targets: labels ``[N]``, or what the loss takes ``[N, ...]``.
        """
        n, of_weight, used = batches.devices, form.inputs * form.outputs, batches.used
        device = torch.arange(n, device=used.device)[:, None, None].expand_as(used)[used]
        numbers, which = torch.unique(device * len(features) + batches.rows[used], return_inverse=True)
        device = numbers // len(features)
        counts = torch.bincount(device, minlength=n)
        most = padded_examples(int(counts.max()))
        places = device * most + torch.arange(len(device), device=device.device)
        places -= (counts.cumsum(0) - counts)[device]
        # rows that only fill a batch up are the device's own, too
        first_rows = torch.arange(n, device=used.device, dtype=batches.rows.dtype) * most
        rows = first_rows[:, None, None].expand_as(used).clone()
        rows[used] = places[which].to(rows.dtype)
        held = numbers.new_zeros(n * most)
        held[places] = numbers % len(features)
        filled_up = (torch.arange(most, device=counts.device) >= counts[:, None]).flatten()
        examples, own_targets = features[held].flatten(1), targets[held]
        examples[filled_up], own_targets[filled_up] = 0, 0
        examples = examples.view(n, most, form.inputs)
        outputs = examples.new_empty(n, most, form.outputs)
        for start, own, result in starts.with_rows_of(examples, outputs):
            weights = start[:, :of_weight].view(-1, form.outputs, form.inputs).mT
            torch.matmul(own, weights[0] if len(weights) == 1 else weights, out=result)
        which_one = torch.eye(most, device=examples.device).expand(n, most, most)
        begun = torch.cat(
            [starts.models.new_zeros(len(starts.models), most * form.outputs), starts.models[:, of_weight:]],
            1,
        )
        return cls(
            form,
            replace(starts, models=begun),
            replace(batches, rows=rows),
            torch.cat([examples @ examples.mT, outputs, which_one], dim=2).flatten(0, 1),
            own_targets,
            examples,
        )

    @property
    def examples(self) -> int:
        """K, of every device, those that only fill up included."""
        return self._examples.shape[1]

    def write_update(self, trained: Tensor, update: Tensor) -> None:
        """Write how far the models moved, flat ``[n, M]``, to ``update``.

        ``trained``: their ends in the dual form, flat.
        """
        form, coefficients = self.form, self.examples * self.form.outputs
        of_weight = form.inputs * form.outputs
        weights = torch.unflatten(update[:, :of_weight], 1, (form.outputs, form.inputs))
        sums = torch.unflatten(trained[:, :coefficients], 1, (self.examples, form.outputs))
        weights.baddbmm_(sums.mT, self._examples, beta=0.0)
        rest = update[:, of_weight:]
        for start, end, moved in self.starts.with_rows_of(trained, rest):
            torch.sub(end[:, coefficients:], start[:, coefficients:], out=moved)


def padded_examples(count: int) -> int:
    """The number K of examples that a dual form for ``count`` of them has room for: 16, 24, 32, 48, 64, ...

    Examples of zeros fill up. Memory for training is kept for every K, so there are few of them.
    """
    power = 16
    while power < count:
        if 3 * power // 2 >= count:
            return 3 * power // 2
        power *= 2
    return power

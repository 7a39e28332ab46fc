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
from sfumato.learning.layers import (
    Block,
    FlattenLayer,
    LinearLayer,
    ParameterSlot,
    Product,
    Shape,
    blocks_of,
)
from sfumato.learning.local_training import LocalSGD
from sfumato.learning.losses import Loss, WriteGradient
from sfumato.learning.sequential import SequentialGradient, as_layers
from sfumato.learning.tape import Tape
from sfumato.learning.training_memory import StartModels

# A device is trained in the dual form where that takes less than this share of the multiplications, and for
# layers of at least so many weights. Measured on a CPU: the share of the time is 1 to 1.5 times that of the
# multiplications, up to 2 times in layers of few weights.
_SHARE, _FEWEST_WEIGHTS = 0.7, 1 << 13

_ROOMS = torch.tensor([factor << power for power in range(3, 40) for factor in (2, 3)])


@dataclass(frozen=True)
class DualForm:
    """The dual form of a model's first layer, a linear one.

    Attributes:
        model: the architecture.
        write_gradient: of the loss.
        shape: of an example, of D numbers in all.
        inputs: D.
        outputs: H, of the first layer.
        has_bias: whether that layer has a bias.
    """

    model: nn.Module
    write_gradient: WriteGradient
    shape: Shape
    inputs: int
    outputs: int
    has_bias: bool

    @classmethod
    def of(cls, model: nn.Module, features: Tensor, loss: Loss) -> DualForm | None:
        """The dual form of ``model`` for examples like ``features`` ``[N, ...]``.

        ``None`` where there is none: the model is no chain with hand-written gradients, its first layer is
        not linear, or the layer has few weights; and on a GPU, where it was not measured.
        """
        shape = tuple(features.shape[1:])
        if loss.write_gradient is None or not features.is_floating_point() or features.is_cuda:
            return None
        linear = _first_linear(as_layers(model, shape) or [])
        if linear is None or linear.inputs * linear.outputs < _FEWEST_WEIGHTS:
            return None
        return cls(model, loss.write_gradient, shape, linear.inputs, linear.outputs, linear.has_bias)

    def rooms(self, sgd: LocalSGD, batches: BatchPlan) -> Tensor:
        """For how many examples the dual form of each device has room, int64 ``[P]``; 0: it is not in one.

        A device's own batches decide, and no other device's: nobody's data change how others are trained.
        Steps of ``sgd`` must be combinations of plain gradients: without clips of their own, Adam and weight
        decay. Noise on gradients and corrections of them rule the form out, too, which the caller knows.
        """
        draws = batches.draws
        if sgd.clips_gradients or sgd.adam is not None or sgd.weight_decay:
            return torch.zeros_like(draws)
        rooms = padded_examples(batches.distinct)
        plain = 2 * self.inputs * self.outputs * draws
        dual = rooms * self.inputs * (rooms + 2 * self.outputs) + 2 * self.outputs * rooms * draws
        return torch.where(dual < _SHARE * plain, rooms, 0)

    def gradient(self, room: int) -> StackedGradient:
        """Gradients of the models of devices whose dual form has room for ``room`` examples."""
        layers = as_layers(self.model, self.shape) or []
        number = next(i for i, layer in enumerate(layers) if isinstance(layer, LinearLayer))
        first = DualLayer(room, self.outputs, has_bias=self.has_bias)
        return SequentialGradient(
            [first, *layers[number + 1 :]], (self.inputs_of(room),), self.write_gradient
        )

    def inputs_of(self, room: int) -> int:
        """Numbers that come into the first layer for one example; ``room`` as in `gradient`."""
        return 2 * room + self.outputs

    def parameters(self, size: int, room: int) -> int:
        """Parameters, in this form, of a model that has ``size``; ``room`` as in `gradient`."""
        return size + self.outputs * (room - self.inputs)


def _first_linear(layers: Sequence[object]) -> LinearLayer | None:
    """The linear layer that a chain begins with, perhaps after a flattening one; ``None`` if it does not."""
    for layer in layers:
        if not isinstance(layer, FlattenLayer):
            return layer if isinstance(layer, LinearLayer) else None
    return None


class DualLayer:
    """A linear layer in its dual form; see the module. Its weights are A^T ``[H, K]``.

    What comes in for an example is its row of ``X X^T``, its row of ``X W_0^T``, and 1 at its own place among
    the K examples, 0 at the others.

    Args:
        room: K.
        outputs: H.
        has_bias: whether the layer has a bias.
    """

    def __init__(self, room: int, outputs: int, *, has_bias: bool) -> None:
        self._parts = [room, outputs, room]
        self._product = Product(room, outputs, has_bias=has_bias)
        self.size, self.floats = self._product.size, outputs
        self.blocks: Sequence[Block] = blocks_of((outputs, room), (0, 1), has_bias=has_bias)
        self._which = torch.empty(0)

    def forward(self, x: Tensor, slot: ParameterSlot, tape: Tape) -> Tensor:
        """Record on ``tape`` the output for ``x`` ``[n, B, 2 K + H]``; returns its ``[n, B, H]``.

        ``slot``: holds A and the bias of the n models.
        """
        products, at_start, self._which = x.split_with_sizes(self._parts, dim=2)
        y = self._product.forward(products, slot, tape)
        tape.append(partial(y.add_, at_start))
        return y

    def backward(self, dy: Tensor, slot: ParameterSlot, tape: Tape, *, wants_dx: bool) -> Tensor:
        """Record that ``dy`` ``[n, B, H]``, the gradient at the output, is added to the rows of A.

        And to the bias. It is the first layer of a chain: returns ``dy``, whatever ``wants_dx``.
        """
        self._product.add_gradients(dy, self._which, slot, tape)
        return dy


@dataclass(frozen=True, eq=False)
class DualTile:
    """The training of n devices in the dual form, as one of models and examples of its own.

    Attributes:
        form: of the model.
        room: K, for the examples of each device; 0 fills up.
        starts: flat models to start from, in the dual form: A is 0.
        batches: rows are those of `features`.
        features: what comes into a `DualLayer`, float32 ``[n K, 2 K + H]``.
        targets: of these examples, ``[n K, ...]``.
    """

    form: DualForm
    room: int
    starts: StartModels
    batches: BatchPlan
    features: Tensor
    targets: Tensor
    _inputs: Tensor  # X, [n, K, D]

    @classmethod
    def of(
        cls,
        form: DualForm,
        room: int,
        starts: StartModels,
        batches: BatchPlan,
        features: Tensor,
        targets: Tensor,
    ) -> DualTile:
        """Prepare the training.

        Args:
            form: of the model.
            room: K, no less than the examples that any of the n devices uses.
            starts: flat models to start from, not in the dual form.
            batches: of the n devices, with rows of ``features``.
            features: float32 ``[N, ...]``.
            targets: labels ``[N]``, or what the loss takes ``[N, ...]``.
        """
        n, of_weight, used = batches.devices, form.inputs * form.outputs, batches.used
        device = torch.arange(n)[:, None, None].expand_as(used)[used]
        numbers, which = torch.unique(device * len(features) + batches.rows[used], return_inverse=True)
        device = numbers // len(features)
        counts = torch.bincount(device, minlength=n)
        places = device * room + torch.arange(len(device)) - (counts.cumsum(0) - counts)[device]
        # rows that only fill a batch up are the device's own, too
        first_rows = torch.arange(n, dtype=batches.rows.dtype) * room
        rows = first_rows[:, None, None].expand_as(used).clone()
        rows[used] = places[which].to(rows.dtype)
        held = numbers.new_zeros(n * room)
        held[places] = numbers % len(features)
        is_empty = (torch.arange(room) >= counts[:, None]).flatten()
        inputs, own_targets = features[held].flatten(1), targets[held]
        inputs[is_empty], own_targets[is_empty] = 0, 0
        inputs = inputs.view(n, room, form.inputs)
        outputs = inputs.new_empty(n, room, form.outputs)
        for start, own, result in starts.with_rows_of(inputs, outputs):
            weights = start[:, :of_weight].view(-1, form.outputs, form.inputs).mT
            torch.matmul(own, weights[0] if len(weights) == 1 else weights, out=result)
        which_one = torch.eye(room).expand(n, room, room)
        coefficients = starts.models.new_zeros(len(starts.models), room * form.outputs)
        return cls(
            form,
            room,
            replace(starts, models=torch.cat([coefficients, starts.models[:, of_weight:]], dim=1)),
            replace(batches, rows=rows),
            torch.cat([inputs @ inputs.mT, outputs, which_one], dim=2).flatten(0, 1),
            own_targets,
            inputs,
        )

    def write_update(self, trained: Tensor, update: Tensor) -> None:
        """Write how far the models moved, flat ``[n, M]``, to ``update``.

        ``trained``: their ends in the dual form, flat.
        """
        inputs, outputs, of_sums = self.form.inputs, self.form.outputs, self.room * self.form.outputs
        weights = torch.unflatten(update[:, : inputs * outputs], 1, (outputs, inputs))
        sums = torch.unflatten(trained[:, :of_sums], 1, (outputs, self.room))
        weights.baddbmm_(sums, self._inputs, beta=0.0)
        rest = update[:, inputs * outputs :]
        for start, end, moved in self.starts.with_rows_of(trained, rest):
            torch.sub(end[:, of_sums:], start[:, of_sums:], out=moved)


def padded_examples(counts: Tensor) -> Tensor:
    """The least of 16, 24, 32, 48, 64, 96, ... that are not below ``counts``, int64 both.

    Devices whose dual forms have room for as many examples train together, so there are few such numbers.
    """
    return _ROOMS[torch.searchsorted(_ROOMS, counts)]

"""The grid on which messages are added up: whole steps of a power of two, modulo another.

One type for all sums (`Grid`). Messages that are sent in the open are rounded to it towards zero, as is told
here; for secure aggregation devices round at random and the grid follows from the ring (`integer_grid`). What
parties send each other then are these very integers, so a simulated round and a deployed one add up the same
ones.

*The step* for messages in the open that have a bound. Rounding towards zero makes no message longer: a clip
of whole messages holds as it is. Where what is charged is how far one or two gradients move a message, the
rounding of both worlds adds up to one step a coordinate, ``sqrt(M)`` steps in all. That is at most 2^-21 of
the shortest move that is charged: `ROUNDINGS` is what the margin of the clip (`learning.rounding_margin`) has
room for. A step is also at most 2^-24 of the quietest noise that is declared, as rounding towards zero takes
up to 0.4 steps of its standard deviation, and 2^-48 of the largest sum that is, so that a loose clip does not
make it coarse. It is the largest power of two within these three. Only public figures decide.

*The room* for them. Sums are of 64 bits. Of the messages that one may hold, none may have a coordinate of
more than 2^62 steps over their number. All that a plan declares fits, noise and its tail included, or it is
refused; what comes up all the same is refused when it is added (`protocols.sums`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.tree import TreePlan

FloatArray = npt.NDArray[np.float64]
AnyFloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]

WIDEST = 64
"""Bits of a sum in memory."""

_OF_A_MOVE, _OF_THE_NOISE, _OF_THE_LARGEST = 2.0**-21, 2.0**-24, 2.0**-48
ROUNDINGS = _OF_A_MOVE * 2.0**24
"""What rounding to the grid moves a message by at most: so many times 2^-24 of the shortest charged move."""

_TAIL = 9.5  # standard deviations: no normal is farther from 0 (`mechanisms.gaussian`)
_LEAST = -149  # of a float32
_SMALL = -120  # float32 holds 2^120
_FLOAT_SLACK = 1e-3  # of the length of a sum of clipped gradients in single precision


@dataclass(frozen=True)
class Grid:
    """The multiples of a power of two.

    Attributes:
        exponent: the step is 2 to that power.
        bits: of a sum, a whole number of steps in two's complement: 32 or 64.
    """

    exponent: int
    bits: int

    @property
    def step(self) -> float:
        """The distance between neighbouring points of the grid."""
        return math.ldexp(1.0, self.exponent)

    @property
    def scale(self) -> float:
        """The number of steps in 1: the inverse of `step`."""
        return math.ldexp(1.0, -self.exponent)

    def whole(self, values: AnyFloatArray) -> AnyFloatArray:
        """``values`` in grid steps, rounded towards zero to whole numbers, as floats of the same shape.

        Exact for float32 values; infinite where a float32 cannot hold so many steps. They are floats because
        they may not fit an integer of `bits` bits.
        """
        kind = np.float32 if values.dtype == np.float32 and self.exponent >= _SMALL else np.float64
        with np.errstate(over="ignore"):
            found = np.multiply(values, kind(self.scale), dtype=kind)
        return np.trunc(found, out=found)

    def wrapped(self, sums: IntArray) -> IntArray:
        """``sums`` modulo 2^bits, as the numbers from -2^(bits - 1) to 2^(bits - 1) - 1.

        int64 of the same shape; ``sums`` itself where `bits` is 64.
        """
        if self.bits == WIDEST:
            return sums
        return sums.astype(f"<i{self.bits // 8}").astype(np.int64)


@dataclass(frozen=True)
class MessageGrid(Grid):
    """The grid of messages that have a bound.

    Attributes:
        messages: at most so many are in a sum.
    """

    messages: int

    @property
    def limit(self) -> float:
        """Largest coordinate of a message, in grid steps; `messages` of them sum to at most 2^(bits - 2)."""
        return float(2 ** (self.bits - 2) // self.messages)

    @classmethod
    def of(
        cls, moves: FloatArray, noises: FloatArray, *, largest: float, messages: int, length: int
    ) -> MessageGrid:
        """The coarsest grid with steps of a power of two within the limits of this module.

        A step is at most 2^-21 of the shortest move over the root of ``length``, 2^-24 of the quietest noise
        and 2^-48 of the largest sum.

        Args:
            moves: l2 distances by which what is charged moves each message; those of 0 are ignored.
            noises: standard deviations of all noise that is declared; those of 0 are ignored.
            largest: coordinate that a message may have.
            messages: in a sum at most.
            length: coordinates of a message.

        Raises:
            SpecError: a sum may be too large for 64 bits.
        """
        fine = _OF_A_MOVE * float(moves[moves > 0].min(initial=math.inf)) / math.sqrt(length)
        fine = min(fine, _OF_THE_NOISE * float(noises[noises > 0].min(initial=math.inf)))
        fine = min(fine, _OF_THE_LARGEST * largest * messages) if largest else 2.0**_LEAST
        grid = cls(max(math.frexp(fine)[1] - 1, _LEAST), WIDEST, max(1, messages))
        if not largest <= grid.limit * grid.step:
            allowed = (
                f"is too loud beside the shortest move or the quietest noise: {messages:,} messages with "
                f"coordinates up to {largest:.3g} do not fit sums of 64 bits in steps of {grid.step:.3g}"
            )
            raise SpecError("privacy.noise", None, allowed)
        return grid


def message_lengths(plan: TreePlan, index: int, devices: IntArray, dimension: int) -> FloatArray:
    """Upper bounds on the l2 length of the message of each of ``devices`` in aggregation ``index``, ``[P]``.

    In declared units. Where gradients of examples are clipped, a batch may hold all records of a device, and
    local steps may have noise. That noise is longer with probability below 1e-17; then the message is
    clipped. ``dimension``: coordinates of a message.
    """
    bounds = plan.example_bounds_of(index, devices) * (1 + _FLOAT_SLACK * moves_by_gradient(plan))
    if not plan.spec.privacy.clips_examples:
        return bounds
    rates, batch_size = plan.releases.batches.rates, plan.spec.training.batch_size
    assert rates is not None  # what is refused sees to it
    assert batch_size != "all"  # the spec's own checks do
    with np.errstate(divide="ignore"):
        records = np.where(rates > 0, np.ceil(batch_size / rates * (1 - 1e-9)), 1.0)[devices]
    noise = plan.spec.privacy.step_noise * (math.sqrt(dimension) + 9.0)
    lengths: FloatArray = bounds * (records + noise)
    return lengths


def moves_by_gradient(plan: TreePlan) -> bool:
    """Whether a record is drawn into mini-batches, and so moves a message by single clipped gradients."""
    clip = plan.spec.privacy.clip
    return clip is not None and clip.kind != "update" and plan.releases.batches.rates is not None


def tree_grid(plan: TreePlan, number: int, index: int, length: int) -> MessageGrid | None:
    """Choose the grid of messages of one aggregation of a tree; ``None`` where none is needed.

    That is so where nothing is clipped, or noise is not added to messages or sums.

    Args:
        plan: resolved.
        number: of the round, from 0.
        index: of the aggregation in the round.
        length: of a message.
    """
    clip, tree, unit = plan.spec.privacy.clip, plan.tree, plan.message_scale(number)
    noisy = plan.noise.device.any() or any(std.any() for std in plan.noise.node)
    if clip is None or not _needs_grid(plan, noisy=bool(noisy) or plan.spec.sends_over_the_air):
        return None
    devices = plan.device_of_each_class
    if plan.spec.privacy.clips_examples:  # how many a device has is not of its class
        devices = np.arange(tree.device_count, dtype=np.int64)
    stds, bounds = plan.device_stds_of(index, devices), plan.example_bounds_of(index, devices)
    lengths = bounds
    if not plan.spec.privacy.clips_examples or plan.releases.batches.rates is not None:
        lengths = message_lengths(plan, index, devices, length)
    moves = bounds if clip.kind == "update" else plan.weights_of(devices)
    above = plan.releases.steps[index].node_std[-1] * plan.participants.count
    return MessageGrid.of(
        moves * unit,
        np.concatenate([stds, above]) * unit,
        largest=float((lengths + _TAIL * stds).max(initial=0.0)) * unit,
        messages=int(tree.devices.max(initial=1)),
        length=length,
    )


def group_grid(plan: GroupPlan, number: int, length: int) -> MessageGrid | None:
    """Choose the grid of messages of one round of groups; ``None`` where none is needed.

    That is so where a group's messages have no bound, or noise is not added to messages or sums.

    Args:
        plan: resolved.
        number: of the round, from 0.
        length: of a message.
    """
    bounds, training, clip = plan.bounds, plan.spec.training, plan.spec.privacy.clip
    if clip is None or not (plan.spec.privacy.clips_examples or np.isfinite(bounds).all()):
        return None
    stds, moves, largest = plan.noise_std(number), bounds, bounds
    if not _needs_grid(plan, noisy=bool(stds.any())):
        return None
    if plan.spec.privacy.clips_examples:
        moves = np.full(1, plan.gradient_bound(number))
        largest = np.full(1, plan.example_bound(number) * float(training.batch_size))
    return MessageGrid.of(
        moves,
        stds,
        largest=float((largest + _TAIL * stds).max(initial=0.0)),
        messages=int(plan.groups.sizes.max(initial=1)),
        length=length,
    )


def _needs_grid(plan: TreePlan | GroupPlan, *, noisy: bool) -> bool:
    """Whether sums must be formed on a grid: noise is added to messages or sums (``noisy``).

    Not where it is added at the local steps to gradients of clipped examples: what follows is post-processing
    then, and messages may be longer than any stated length (Adam). Without noise nothing is promised.
    """
    return noisy and not (plan.spec.privacy.clips_examples and plan.spec.privacy.step_noise)


def steps_in_tree(plan: TreePlan, length: int) -> list[float | None]:
    """The grid step, in model units, of each aggregation of the first round; ``None`` where it has no grid.

    There is none without a bound on messages, without noise, or under secure aggregation.

    Args:
        plan: resolved.
        length: number of the model's parameters.
    """
    count = len(plan.releases.steps)
    if "secure-aggregation" in plan.spec.transport.values():
        return [None] * count
    return [_step_of(tree_grid(plan, 0, index, length)) for index in range(count)]


def steps_in_groups(plan: GroupPlan, length: int) -> list[float | None]:
    """The grid step, in model units, of the first release, as a list of one; ``[None]`` without such a grid.

    ``length``: number of the model's parameters.
    """
    return [_step_of(group_grid(plan, 0, length))]


def _step_of(grid: MessageGrid | None) -> float | None:
    """The step of ``grid``, in the unit of messages; ``None`` where there is no grid."""
    return None if grid is None else grid.step

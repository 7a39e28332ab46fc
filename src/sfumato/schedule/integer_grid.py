"""One grid of integers for all messages of an aggregation, where any hop is secure aggregation.

A device quantises its share of the global average: its message times the weight of its leaf's average, over
the public denominator. So sums are exact at every tier, an average is a sum read in other units, and rounding
happens in one place, before any noise. Devices and nodes add discrete Gaussians on the grid.

Two things cost, and a little more noise pays for both, so that every multiplier is at least the declared one:
rounding makes a message, or what a record moves it by, longer (`IntegerGrid.inflation`), and discrete
Gaussians of `FEWEST_STEPS` steps and more are roundings of slightly smaller Gaussians (`HEADROOM`). Where a
record moves a message by single gradients, a message is never clipped and never rounded again: there is room
for all. Derivations: docs/hdp.md, "Integers".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from sfumato.errors import SpecError
from sfumato.network.tree import Tree, star
from sfumato.radio.secagg_traffic import RING_BITS
from sfumato.schedule.groups import GroupPlan
from sfumato.schedule.message_grid import WIDEST, Grid, message_lengths, moves_by_gradient
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.quantisation import MOST_WRAPPING, QuantisationPlan, wrapping
from sfumato.wire.errors import QuantisationError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

HEADROOM = 1e-6
FEWEST_STEPS = 3000.0


@dataclass(frozen=True, eq=False)
class IntegerGrid:
    """The grid of one aggregation.

    Attributes:
        tree: who is under whom.
        secure: for every tier, whether its nodes receive under masks: modulo 2^32.
        shares: what a message of each leaf is multiplied by: its share of the global average, ``[leaves]``.
        grid: of the shares that devices send, in units of the global average.
        inflation: noise to add over noise in the declaration.
        unit: of the declared figures, in this round.
        dimension: coordinates.
        room: steps that are added to the length of a message, so that rounding always keeps within it.
    """

    tree: Tree
    secure: tuple[bool, ...]
    shares: FloatArray
    grid: Grid
    inflation: float
    unit: float
    dimension: int
    room: float = 0.0

    @cached_property
    def weights(self) -> tuple[FloatArray, ...]:
        """For every tier, the weight of each of its nodes' averages in the global average, ``[nodes]``."""
        return average_weights(self.tree)

    @property
    def scale(self) -> float:
        """The number of grid steps in one unit of the global average."""
        return self.grid.scale

    def received(self, tier: int) -> Grid:
        """The grid of the sums that nodes of ``tier`` receive; with 32 bits if they receive under masks."""
        return replace(self.grid, bits=RING_BITS) if self.secure[tier] else self.grid

    def averages(self, tier: int, sums: IntArray) -> FloatArray:
        """Convert the ``sums`` of all nodes of ``tier``, in grid steps, to their averages in model units.

        Both are ``[nodes, M]`` for M coordinates; the averages are floats.
        """
        found: FloatArray = sums / (self.scale * self.weights[tier][:, None])
        return found

    def device_rounding(self, leaf: int, bound: float, std: float) -> QuantisationPlan:
        """How a device of one leaf rounds its message to the grid, and how much noise it adds in grid steps.

        Args:
            leaf: the leaf's number.
            bound: l2 bound of the message, in units of the declaration.
            std: standard deviation of its noise, a coordinate, in the same units; 0 for none.
        """
        share = float(self.shares[leaf]) * self.unit
        return QuantisationPlan(
            clip=bound * share + self.room / self.scale,
            scale=self.scale,
            bits=self.grid.bits,
            parties=int(self.tree.devices[leaf]),
            dimension=self.dimension,
            noise_std=std * share * self.scale * self.inflation,
        )

    def node_steps(self, tier: int, node: int, std: float) -> float:
        """Std of a node's noise in grid steps, inflated for rounding, from its std in the node's average.

        ``node``: its index in ``tier``; ``std``: a coordinate, in units of the model.
        """
        return std * float(self.weights[tier][node]) * self.scale * self.inflation


def integer_grid_of(
    plan: TreePlan, number: int, index: int, devices: IntArray, dimension: int
) -> IntegerGrid:
    """The finest grid on which every masked sum of aggregation ``index`` of round ``number`` fits its ring.

    Args:
        plan: with a clip.
        number: of the round.
        index: of the aggregation.
        devices: who takes part, ascending ``[P]``.
        dimension: coordinates.

    Raises:
        SpecError: no grid is fine enough.
    """
    tree, unit = plan.tree, plan.message_scale(number)
    weights = average_weights(tree)
    shares = weights[-1] / plan.denominators_of(devices)
    everybody = np.arange(tree.device_count, dtype=np.int64)
    bounds = message_lengths(plan, index, everybody, dimension)
    stds = plan.device_stds_of(index, everybody)
    leaf = np.repeat(np.arange(tree.leaf_count), tree.devices)
    lengths, noises = bounds * shares[leaf] * unit, stds * shares[leaf] * unit
    secure = tuple(hop == "secure-aggregation" for hop in plan.hops)
    sums = list(_largest_masked_sums(plan, index, secure, lengths, noises, unit, weights))
    by_gradient = moves_by_gradient(plan)
    moves = lengths
    if by_gradient:  # that of the last step moves a message least: one of an example, two of a step
        gradients = 1 if plan.spec.privacy.clips_examples else 2
        moves = gradients * plan.weights_of(everybody) * shares[leaf] * unit
    grid, inflation = _finest_grid(lengths, moves, sums, dimension, by_gradient=by_gradient)
    room = 2 * math.sqrt(dimension) if by_gradient else 0.0
    ring = IntegerGrid(tree, secure, shares, grid, inflation, unit, dimension, room)
    _require_fine_enough(ring, [noises, *_node_noises(plan, index, unit, weights)])
    return ring


def group_integer_grid(plan: GroupPlan, number: int, group: int, dimension: int) -> IntegerGrid:
    """The grid of one group's release: that of a star of the group's workers, whose average is the group's.

    Args:
        plan: that clips whole messages and adds noise to them or to sums.
        number: of the round that ends with the release.
        group: whose it is.
        dimension: coordinates.

    Raises:
        SpecError: no grid is fine enough.
    """
    tree = star(int(plan.groups.sizes[group]))
    shares = 1 / plan.denominators[group : group + 1]
    lengths, noises = plan.bounds[group] * shares, plan.noise_std(number)[group] * shares
    grid, inflation = _finest_grid(lengths, lengths, (), dimension, by_gradient=False)
    ring = IntegerGrid(tree, (False,), shares, grid, inflation, 1.0, dimension)
    _require_fine_enough(ring, [noises])
    return ring


def _finest_grid(
    lengths: FloatArray,
    moves: FloatArray,
    sums: Collection[tuple[int, float, float]],
    dimension: int,
    *,
    by_gradient: bool,
) -> tuple[Grid, float]:
    """The finest grid on which every masked sum fits its ring, and noise to add over the declared noise.

    Args:
        lengths: l2 lengths of messages, in units of the average that is released.
        moves: how far what is charged moves a message, likewise; 0 for what is not.
        sums: the largest masked ones, as of `_largest_masked_sums`.
        dimension: number of coordinates, M.
        by_gradient: whether a message is moved by single gradients, and so is never rounded again.
    """
    exponent = math.floor(math.log2(2.0**40 / lengths.max()))
    shortest = float(moves[moves > 0].min())
    for power in range(exponent, exponent - WIDEST, -1):
        grid = Grid(-power, WIDEST)
        try:
            least = QuantisationPlan(shortest, grid.scale, grid.bits, 1, dimension)
        except QuantisationError:
            continue
        rounding = 1 + math.sqrt(dimension) / (shortest * grid.scale) if by_gradient else least.inflation
        inflation = rounding * (1 + HEADROOM)
        if all(
            wrapping(
                most * grid.scale + parties,
                (std * grid.scale * inflation) ** 2,
                dimension=dimension,
                bits=RING_BITS,
            )
            <= MOST_WRAPPING
            for parties, most, std in sums
        ):
            break
    return grid, inflation


def _node_noises(
    plan: TreePlan, index: int, unit: float, weights: tuple[FloatArray, ...]
) -> Iterator[FloatArray]:
    """For every tier, the std of each node's noise at an aggregation, in units of the global average.

    Args:
        plan: resolved.
        index: of the aggregation in its round.
        unit: of the declared figures.
        weights: of `average_weights`.

    Yields:
        ``[nodes]`` of a tier, the cloud's first.
    """
    for tier in range(plan.tree.depth):
        yield plan.releases.steps[index].node_std[tier] * unit * weights[tier]


def _require_fine_enough(ring: IntegerGrid, noises: Iterable[FloatArray]) -> None:
    """Raise a `SpecError` if noise on the grid is no Gaussian, or rounding costs too much noise.

    Args:
        ring: the grid of messages.
        noises: std of every source of noise, in units of the average that is released; 0 for none.
    """
    quietest = [std[std > 0] * ring.scale * ring.inflation for std in noises]
    fewest = min((float(q.min()) for q in quietest if len(q)), default=math.inf)
    if fewest < FEWEST_STEPS or ring.inflation > 2:
        bits = RING_BITS if any(ring.secure) else ring.grid.bits
        instead = "make zones smaller or noise alike" if any(ring.secure) else "use more noise, or none"
        raise SpecError(
            "transport",
            "secure-aggregation" if any(ring.secure) else "plain",
            f"whole numbers of {bits} bits are too coarse: the quietest noise is {fewest:.3g} steps (at least"
            f" {FEWEST_STEPS:g} are needed), and rounding takes {ring.inflation - 1:.2g} more noise (at most"
            f" 1); {instead}",
        )


def average_weights(tree: Tree) -> tuple[FloatArray, ...]:
    """For every tier, cloud first, the weight of each node's average in the global one, ``[nodes]``.

    The global average is the mean of the means, level by level.
    """
    weights = [np.ones(1)]
    for tier in range(1, tree.depth):
        parents = tree.parents[tier]
        weights.append(weights[-1][parents] / tree.children[tier - 1][parents])
    return tuple(weights)


def _largest_masked_sums(
    plan: TreePlan,
    index: int,
    secure: tuple[bool, ...],
    lengths: FloatArray,
    noises: FloatArray,
    unit: float,
    weights: tuple[FloatArray, ...],
) -> Iterator[tuple[int, float, float]]:
    """Bound the largest sum of each tier with masks.

    Args:
        plan: of the run.
        index: of the aggregation.
        secure: for every tier, whether its nodes receive under masks.
        lengths: l2 length of each device's message, in units of the global average, ``[devices]``.
        noises: std of each device's noise, likewise, ``[devices]``.
        unit: of the declared figures.
        weights: for every tier, the weight of a node's average in the global one.

    Yields:
        For each such tier, from the leaves up: the number of vectors in the sum, its l2 length, and the std
        of the noise in it, a coordinate.
    """
    tree, facts = plan.tree, plan.releases.steps[index]
    first = tree.first_device[:-1]
    parties, length = tree.devices.astype(np.float64), np.add.reduceat(lengths, first)
    variance = np.add.reduceat(noises**2, first)
    for tier in range(tree.depth - 1, -1, -1):
        if tier < tree.depth - 1:
            parents, nodes = tree.parents[tier + 1], tree.tiers[tier].size
            parties, length, variance = (
                np.bincount(parents, weights=each, minlength=nodes).astype(np.float64)
                for each in (parties, length, variance)
            )
        if secure[tier]:
            yield int(parties.max()), float(length.max()), math.sqrt(float(variance.max()))
        variance = variance + (facts.node_std[tier] * unit * weights[tier]) ** 2

"""What the nodes of a tier hold while averages travel up a tree: floats, or integers on a ring's grid.

Averages are offsets from the global model that the round began with, until they have their noise. What a
message changes in an average may be far below the rounding of the weights. So nodes hold averages in float64,
beside that model: a node adds its noise to the offset, and the model follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.mechanisms.base import NoiseMechanism
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from sfumato.network.tree import Tree
from sfumato.protocols.message_hooks import Listener
from sfumato.random import Stream, key_at
from sfumato.schedule.integer_grid import IntegerGrid

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RoundOrigin:
    """The global model that a round began with, to which the nodes' offsets are added.

    Attributes:
        model: that model, ``[M]``.
    """

    model: Tensor

    @property
    def offset(self) -> Tensor:
        """The offset of every node at the start of a round: zeros, float64 ``[M]``."""
        return torch.zeros_like(self.model, dtype=torch.float64)

    def models(self, offsets: Tensor) -> Tensor:
        """The models ``model + offsets``, float32 ``[..., M]``, of ``offsets`` ``[..., M]``."""
        return (self.model + offsets).float()

    def listener_of_models(self, listener: Listener | None) -> Listener | None:
        """Wrap ``listener`` so that it hears models in place of offsets; ``None`` gives ``None``."""
        return None if listener is None else _OfModels(listener, self)


@dataclass(frozen=True, eq=False)
class _OfModels:
    """Lets a listener hear models."""

    listener: Listener
    of: RoundOrigin

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Tell the listener, as models, the offsets ``vectors`` ``[p, M]`` that ``senders`` ``[p]`` send.

        ``number`` is the round, ``index`` the aggregation in it, ``tier`` the senders'.
        """
        self.listener.sent(number, index, tier, senders, self.of.models(vectors))

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Tell the listener that nodes of ``tier`` received offsets ``values`` ``[nodes, M]``, as models.

        ``number`` is the round, ``index`` the aggregation in it.
        """
        self.listener.received(number, index, tier, self.of.models(values))

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Tell the listener that nodes of ``tier`` broadcast offsets ``values`` ``[nodes, M]``, as models.

        ``number`` is the round, ``index`` the aggregation in it.
        """
        self.listener.broadcast(number, index, tier, self.of.models(values))


class Aggregates(Protocol):
    """The averages of all nodes of one tier while they pass up the tree; frozen."""

    @property
    def values(self) -> Tensor:
        """The average that every node of the tier holds, ``[nodes, M]``."""

    def up(self) -> Self:
        """The aggregates of the tier above, whose nodes have received the average of their children."""

    def noised(self, std: FloatArray, address: tuple[int, ...]) -> Self:
        """Add each node's own noise to its average; returns the result, which may be this object, changed.

        Args:
            std: standard deviation of each node's noise a coordinate, ``[nodes]``; 0: none.
            address: of the random draws within the stream NOISE; the tier and the node are appended.
        """


@dataclass(frozen=True, eq=False)
class FloatAggregates:
    """Averages as floats.

    Attributes:
        tree: of the nodes.
        tier: theirs.
        seed: of the run.
        values: ``[nodes, M]``.
        coordinates: where noise covers them; ``None``: everywhere.
        mechanism: of the nodes' noise.
    """

    tree: Tree
    tier: int
    seed: int
    values: Tensor
    coordinates: Tensor | None
    mechanism: NoiseMechanism[Tensor]

    def up(self) -> FloatAggregates:
        """The aggregates of the tier above: the mean of each node's children."""
        values = _means(self.values, self.tree.parents[self.tier])
        return replace(self, tier=self.tier - 1, values=values)

    def noised(self, std: FloatArray, address: tuple[int, ...]) -> FloatAggregates:
        """Add each node's own noise, in place, to the coordinates of messages; returns these aggregates.

        Args:
            std: standard deviation of each node's noise a coordinate, ``[nodes]``; 0: none.
            address: of the random draws within the stream NOISE; the tier and the node are appended.
        """
        covered = self.values if self.coordinates is None else self.values[:, self.coordinates]

        def key_of(node: int) -> bytes:
            return key_at(self.seed, Stream.NOISE, *address, self.tier, node)

        self.mechanism.add_(covered, std, key_of)
        if self.coordinates is not None:
            self.values[:, self.coordinates] = covered
        return self


@dataclass(frozen=True, eq=False)
class IntegerAggregates:
    """Sums on a ring's grid; averages are the same sums in other units.

    Attributes:
        ring: the grid.
        tier: of the nodes.
        seed: of the run.
        base: what the averages are added to, ``[nodes, M]``.
        sums: shares of the global average, in steps, int64 ``[nodes, k]``.
        coordinates: where the k lie among the M; ``None``: they are all.
    """

    ring: IntegerGrid
    tier: int
    seed: int
    base: Tensor
    sums: IntArray
    coordinates: Tensor | None

    @property
    def values(self) -> Tensor:
        """The average of each node, float ``[nodes, M]``: `base` plus its sum over scale and weight."""
        averages = torch.from_numpy(self.ring.averages(self.tier, self.sums)).to(self.base.device)
        if self.coordinates is None:
            return self.base + averages
        values = self.base.clone()
        values[:, self.coordinates] += averages
        return values

    def up(self) -> IntegerAggregates:
        """The aggregates of the tier above: the sum of each node is that of its children's sums.

        Under masks (secure aggregation) sums are taken modulo 2^32. ``base`` becomes the children's mean.
        """
        parents = self.ring.tree.parents[self.tier]
        starts = np.flatnonzero(np.diff(parents, prepend=-1))  # parents ascend
        sums = self.ring.received(self.tier - 1).wrapped(np.add.reduceat(self.sums, starts, axis=0))
        return IntegerAggregates(
            self.ring, self.tier - 1, self.seed, _means(self.base, parents), sums, self.coordinates
        )

    def noised(self, std: FloatArray, address: tuple[int, ...]) -> IntegerAggregates:
        """A copy with each node's discrete Gaussian noise added to its sum.

        Args:
            std: standard deviation of each node's noise a coordinate of the average, ``[nodes]``; 0: none.
            address: of the random draws within the stream NOISE; the tier and the node are appended.
        """
        sums, steps = self.sums.copy(), np.zeros(len(std))
        for node in np.flatnonzero(std):
            steps[node] = self.ring.node_steps(self.tier, int(node), float(std[node]))
        DiscreteGaussianNoise().add_(
            sums, steps, lambda node: key_at(self.seed, Stream.NOISE, *address, self.tier, node)
        )
        return IntegerAggregates(self.ring, self.tier, self.seed, self.base, sums, self.coordinates)


def _means(values: Tensor, parents: IntArray) -> Tensor:
    """Average the rows of ``values`` ``[nodes, M]`` by parent, ``[parents, M]``.

    ``parents``: ``[nodes]``, ascending; every parent has a child.
    """
    starts = np.flatnonzero(np.diff(parents, prepend=-1))  # parents ascend
    return torch.stack([part.mean(dim=0) for part in torch.tensor_split(values, starts[1:].tolist())])

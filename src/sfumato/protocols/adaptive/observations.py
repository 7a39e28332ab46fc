"""What the parties received in a round, kept for the estimates of adaptive control."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass
class RoundObservations:
    """What the parties received in a round, for the estimates: post-processing of released vectors.

    Attributes:
        last: number of the round's global aggregation.
        depth: number of tiers of aggregators, which is the tier of devices.
        leaf_of: the edge of every device, ``[devices]``.
        squares: summed squared norms of devices' messages at the global aggregation, by edge, ``[edges]``.
        sums: sums of these messages, ``[edges, M]``; ``None`` before any is sent.
        edges: what the cloud received from each edge at the global step, ``[edges, M]``.
        starts: the models that the last local steps started from, ``[edges, M]``; ``None``: the global one.
        counts: number of these messages, by edge, ``[edges]``.
    """

    last: int
    depth: int
    leaf_of: IntArray
    squares: FloatArray
    sums: Tensor | None = None
    edges: Tensor | None = None
    starts: Tensor | None = None
    counts: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Nobody has sent anything yet."""
        self.counts = np.zeros(len(self.squares), dtype=np.int64)

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        """Add up devices' messages and their squared norms by edge, and keep the edges' messages.

        Only messages of the round's global aggregation (``index`` is the last) are used.

        Args:
            number: of the round.
            index: of the aggregation in it.
            tier: of the senders; devices are one tier below the edges.
            senders: their indices, ``[p]``.
            vectors: their messages, noise included, ``[p, M]``.
        """
        if index != self.last:
            return
        if tier == self.depth:
            leaves = self.leaf_of[senders]
            if self.sums is None:
                self.sums = torch.zeros(len(self.squares), vectors.shape[1], device=vectors.device)
            self.sums.index_add_(0, torch.from_numpy(leaves).to(vectors.device), vectors)
            np.add.at(self.squares, leaves, vectors.square().sum(dim=1).double().cpu().numpy())
            np.add.at(self.counts, leaves, 1)
        elif tier == self.depth - 1:
            self.edges = vectors.clone()

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Do nothing: averages are computed from what is sent.

        The arguments are those of `Listener.received`.
        """

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        """Keep ``values`` ``[edges, M]``, the models that edges send to their devices; ignore other tiers.

        The arguments are those of `Listener`.
        """
        if tier == self.depth - 1:
            self.starts = values.clone()

"""What devices remember from one round to the next: a vector each, of those that ever took part.

Of several ranks each holds the vectors of the devices that it trained last. Every rank knows who holds which,
so that a device's vector is sent, once, where another rank trains it; nothing else of these vectors is. A
checkpoint has all of them, and rank 0 gathers them for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.protocols.base import check_tensors

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DeviceVectors:
    """A vector of every device, zero until one is written. A device's own is private to it.

    Memory is taken by devices with a vector alone, as many as have taken part.

    Attributes:
        zero: float32 ``[M]``, on the engine's device.
        ranks: of the run, which share them; `ALONE` where every rank has all.
        written: the vectors that are here, by device.
        holders: of several ranks, which holds a device's vector, by device.
    """

    zero: Tensor
    ranks: Ranks = ALONE
    written: dict[int, Tensor] = field(default_factory=dict)
    holders: dict[int, int] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether there are several ranks (processes), each with some of the vectors."""
        return self.ranks.count > 1

    def of(self, devices: IntArray) -> Tensor:
        """The vectors of ``devices`` ``[p]``, which this rank trains, ``[p, M]``; zeros for those without.

        Returns:
            float32, on the engine's device; row i is that of ``devices[i]``.
        """
        me = self.ranks.rank
        assert all(self.holders.get(device, me) == me for device in devices.tolist())  # they were moved here
        return self._rows(devices)

    def _rows(self, devices: IntArray) -> Tensor:
        """Stack the vectors of ``devices`` ``[p]`` that are here, ``[p, M]``; zeros where none is written."""
        if not len(devices):
            return self.zero.new_zeros(0, len(self.zero))
        return torch.stack([self.written.get(device, self.zero) for device in devices.tolist()])

    def copy(self) -> Self:
        """A copy that can be written to without changing this object; the vectors themselves are shared."""
        return replace(self, written=dict(self.written), holders=dict(self.holders))

    def write_(self, devices: IntArray, vectors: Tensor) -> None:
        """Store copies of ``vectors`` ``[p, M]`` for ``devices`` ``[p]``, which this rank trains."""
        own = (vector.clone() for vector in vectors)  # a view would keep its whole chunk in memory
        self.written.update(zip(devices.tolist(), own, strict=True))

    def move_(self, devices: IntArray, owners: Sequence[IntArray]) -> None:
        """Move the vectors of ``devices``, in place, to the ranks that train them; every rank must call it.

        A device without a vector is only noted as held by its new rank.

        Args:
            devices: who trains, ``[P]``.
            owners: for each rank, the indices into ``devices`` of those that it trains (`Engine.owners`).
        """
        if not self.is_shared:
            return
        me, count, moves = self.ranks.rank, self.ranks.count, []
        for rank, rows in enumerate(owners):
            for device in devices[rows].tolist():
                holder = self.holders.get(device, rank)
                self.holders[device] = rank
                if holder != rank:
                    moves.append((device, holder, rank))
        if not moves:
            return
        going = [
            [mover for mover, holder, to in moves if (holder, to) == (me, rank)] for rank in range(count)
        ]
        coming = [
            [mover for mover, holder, to in moves if (holder, to) == (rank, me)] for rank in range(count)
        ]
        leaving, arriving = (
            np.array(list(chain.from_iterable(each)), dtype=np.int64) for each in (going, coming)
        )
        vectors = self.ranks.moved(self._rows(leaving), list(map(len, going)), list(map(len, coming)))
        for device in leaving.tolist():
            del self.written[device]
        self.write_(arriving, vectors)

    def whole(self) -> Self:
        """All vectors on rank 0, none on the others, no longer shared; every rank must call it."""
        if not self.is_shared:
            return self
        every, found = np.array(sorted(self.holders), dtype=np.int64), self.copy()
        found.move_(every, [np.arange(len(every) if rank == 0 else 0) for rank in range(self.ranks.count)])
        return replace(found, ranks=ALONE, holders={})

    def divided_among(self, ranks: Ranks) -> Self:
        """This rank's share of vectors that every rank has: devices are dealt out to ``ranks`` in turn."""
        if ranks.count == 1:
            return self
        holders = {device: place % ranks.count for place, device in enumerate(sorted(self.written))}
        own = {device: vector for device, vector in self.written.items() if holders[device] == ranks.rank}
        return replace(self, ranks=ranks, written=own, holders=holders)

    def pack(self) -> list[Tensor]:
        """Pack all vectors, which must be here (`whole`), for a checkpoint.

        Returns:
            The devices with a vector, ascending int64 ``[k]``, and their vectors ``[k, M]``, both on the CPU.
        """
        devices = np.array(sorted(self.written), dtype=np.int64)
        return [torch.from_numpy(devices), self._rows(devices).cpu()]

    @classmethod
    def unpack(cls, packed: Sequence[Tensor], model: Tensor) -> Self:
        """Rebuild what `pack` gave, on the device of ``model`` ``[M]``, whose length the vectors must have.

        Raises:
            Exception: of any class, where ``packed`` is not that.
        """
        check_tensors(*packed)
        devices, vectors = packed
        if vectors.shape[1:] != model.shape:
            raise ValueError("vectors of devices are not as long as the model")
        found = cls(torch.zeros_like(model))
        found.write_(devices.numpy(), vectors.to(model.device))
        return found

"""What devices did in a round so far that they send again at its end, as one message."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.engine.base import UpdateChunk
from sfumato.mechanisms.clipping import FlatClip
from sfumato.schedule.tree import TreePlan

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ResentRound:
    """The round so far of devices that send all of it again.

    Attributes:
        updates: the sums of their updates, float32 ``[such devices, M]``; added to in place.
        place: the row in it of each device that trains, ``[P]``; -1 for those that do not resend.
        clip: of whole messages, if they are clipped.
    """

    updates: Tensor
    place: IntArray
    clip: FlatClip | None

    @classmethod
    def begin(cls, plan: TreePlan, resends: BoolArray, parameters: int, device: torch.device) -> ResentRound:
        """Empty sums of updates for the participants that send the whole round again at its end.

        Args:
            plan: says how messages are clipped.
            resends: which of the participants do, ``[P]``.
            parameters: M.
            device: where tensors are.
        """
        place = np.where(resends, np.cumsum(resends) - 1, -1)
        clip = plan.spec.privacy.clip
        flat = FlatClip(clip.norm) if clip is not None and clip.kind == "update" else None
        return cls(torch.zeros(int(resends.sum()), parameters, device=device), place, flat)

    def of(self, rows: IntArray) -> ResentRound:
        """The part for the participants at ``rows`` ``[p]``; it shares the sums, which are not copied."""
        return replace(self, place=self.place[rows])

    def add_(self, chunk: UpdateChunk, *, again: bool) -> None:
        """Add the updates of ``chunk`` to the sums of those of its devices that send the whole round again.

        ``again``: whether this is the end of the round; then each sum, clipped, replaces the device's update
        in ``chunk``.
        """
        resending = np.flatnonzero(self.place[chunk.rows] >= 0)
        rows_of_sums = torch.from_numpy(self.place[chunk.rows][resending]).to(self.updates.device)
        rows_in_chunk = torch.from_numpy(resending).to(self.updates.device)
        self.updates.index_add_(0, rows_of_sums, chunk.updates[rows_in_chunk])
        if again:
            whole = self.updates[rows_of_sums]
            chunk.updates[rows_in_chunk] = whole if self.clip is None else self.clip.clip_(whole).vectors

"""The coordinate of a message that tells whether its update was clipped (`schedule.adaptive_clip`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato.engine.base import UpdateChunk
from sfumato.schedule.adaptive_clip import adaptive_clip_of
from sfumato.schedule.integer_grid import average_weights
from sfumato.schedule.tree import TreePlan
from sfumato.spec.privacy import AdaptiveNorm

UNCLIPPED = "unclipped_share"
"""The column of the metrics for what the noised indicators of a round tell."""

_LEAST, _MOST = 1e-30, 1e30  # of a clip norm, so that its square is a float too


@dataclass(frozen=True)
class Indicators:
    """How messages of a round tell whether they were clipped, and what is made of it.

    Attributes:
        length: of the indicator, which is this or minus this.
        sent: indicators that are in the global average, as a multiple of one of every device.
        adapt: how the norm follows.
    """

    length: float
    sent: float
    adapt: AdaptiveNorm

    @classmethod
    def of(cls, plan: TreePlan, number: int) -> Indicators | None:
        """Make the indicators of round ``number`` (from 0); ``None`` where the clip norm is fixed."""
        found = adaptive_clip_of(plan.spec)
        if found is None:
            return None
        adapt = found[1]
        shares = average_weights(plan.tree)[-1]
        sent = sum(float(shares[plan.sends(index)].sum()) for index in range(len(plan.aggregations)))
        return cls(math.sqrt(adapt.share) * plan.message_scale(number), sent, adapt)

    def appended(self, chunk: UpdateChunk) -> Tensor:
        """The updates of ``chunk`` with one more coordinate, ``[p, M + 1]``.

        It is -`length` where the update was clipped, else `length`.
        """
        assert chunk.clipped is not None  # the spec's clip is of whole updates
        indicator = torch.where(chunk.clipped, -self.length, self.length)
        return torch.cat([chunk.updates, indicator[:, None].to(chunk.updates)], dim=1)

    def unclipped(self, average: float) -> float:
        """An estimate of the share of messages that were not clipped, 0 to 1.

        ``average``: the last coordinate of the global average. It holds noise, so the share is clamped to
        0..1; it is 0.5 where ``average`` is not finite.
        """
        share = (average / (self.length * self.sent) + 1) / 2
        return min(1.0, max(0.0, share)) if math.isfinite(share) else 0.5

    def next_norm(self, norm: float, unclipped: float) -> float:
        """The next round's clip norm, ``norm * exp(-rate * (unclipped - quantile))``, within 1e-30 to 1e30.

        Args:
            norm: this round's clip norm.
            unclipped: noised share of messages that were not clipped, 0 to 1.
        """
        following = norm * math.exp(-self.adapt.rate * (unclipped - self.adapt.quantile))
        return float(np.clip(following, _LEAST, _MOST))

"""Averages of clipped gradients as offsets from the global model, until they have their noise.

What a record changes in an average of clipped steps or examples may be far below the rounding of the weights.
So averages of such messages are added up in float64, and beside the model that the round began with: a node
adds its noise to the offset, and the model follows. Averages of clipped updates are added to models at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.protocols.message_hooks import IntArray, Listener
from sfumato.spec.document import Spec


def sums_type(spec: Spec) -> torch.dtype:
    """Of sums of messages: float64 where gradients are clipped and not the messages themselves."""
    clip = spec.privacy.clip
    return torch.float32 if clip is None or clip.kind == "update" else torch.float64


@dataclass(frozen=True, eq=False)
class RoundOrigin:
    """What the values of a round's nodes are added to.

    Attributes:
        values: what every node holds at first ``[M]``.
        origin: the global model, where values are offsets from it ``[M]``; ``None`` where they are models.
    """

    values: Tensor
    origin: Tensor | None

    @classmethod
    def of(cls, spec: Spec, model: Tensor) -> RoundOrigin:
        """Of a round that begins with ``model`` ``[M]``."""
        if sums_type(spec) == torch.float32:
            return cls(model, None)
        return cls(torch.zeros_like(model, dtype=torch.float64), model)

    def models(self, values: Tensor) -> Tensor:
        """The models that values ``[..., M]`` stand for, float32."""
        return values if self.origin is None else (self.origin + values).float()

    def change(self, values: Tensor) -> Tensor:
        """How far ``values`` ``[M]`` are from the global model."""
        return values - self.values if self.origin is None else values.float()

    def told(self, listener: Listener | None) -> Listener | None:
        """Who hears of nodes: ``listener``, and models in place of offsets."""
        return listener if listener is None or self.origin is None else _OfModels(listener, self)


@dataclass(frozen=True, eq=False)
class _OfModels:
    """Lets a listener hear models."""

    listener: Listener
    of: RoundOrigin

    def sent(self, number: int, index: int, tier: int, senders: IntArray, vectors: Tensor) -> None:
        self.listener.sent(number, index, tier, senders, self.of.models(vectors))

    def received(self, number: int, index: int, tier: int, values: Tensor) -> None:
        self.listener.received(number, index, tier, self.of.models(values))

    def broadcast(self, number: int, index: int, tier: int, values: Tensor) -> None:
        self.listener.broadcast(number, index, tier, self.of.models(values))

"""Averages as offsets from the global model, until they have their noise.

What a message changes in an average may be far below the rounding of the weights. So nodes hold averages in
float64, beside the model that the round began with: a node adds its noise to the offset, and the model
follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.protocols.message_hooks import IntArray, Listener


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

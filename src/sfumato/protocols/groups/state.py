"""What grouped protocols remember between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from sfumato.distributed.ranks import Ranks
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.base import check_tensors
from sfumato.protocols.device_vectors import DeviceVectors

_WITHOUT_MOMENTS = ServerState(0, ())


@dataclass(frozen=True)
class GroupedState:
    """What the protocol remembers between rounds.

    Attributes:
        round: how many rounds are done.
        models: the group models, float32 ``[M, P]``, on the engine's device.
        base: DP-OGL+ inside an interval: the models that it began with ``[M, P]``; else ``None``.
        gathered: DP-OGL+ inside an interval: what each assignment's worker has learned in it, private; else
            ``None``.
        server: the masters' optimizers, with moments ``[M, P]``.
    """

    kind: ClassVar[str] = "grouped"

    round: int
    models: Tensor
    base: Tensor | None = None
    gathered: DeviceVectors | None = None
    server: ServerState = _WITHOUT_MOMENTS

    @property
    def is_shared(self) -> bool:
        """Whether other ranks (processes) hold parts of the state.

        These are rows of `gathered`, which only DP-OGL+ has.
        """
        return self.gathered is not None and self.gathered.is_shared

    def whole(self) -> Self:
        """The whole state on rank 0, as a checkpoint needs it; every rank must call it.

        The rows of `gathered` that other ranks hold (inside an interval of DP-OGL+) are sent to rank 0.
        """
        return self if self.gathered is None else replace(self, gathered=self.gathered.whole())

    def divided_among(self, ranks: Ranks) -> Self:
        """This rank's share of a state that every rank has.

        The rows of `gathered` (inside an interval of DP-OGL+) are divided among ``ranks``; all else stays
        whole.
        """
        return self if self.gathered is None else replace(self, gathered=self.gathered.divided_among(ranks))

    def pack(self) -> dict[str, Any]:
        """The whole state as numbers and CPU tensors by name, for a checkpoint."""
        return {
            "round": self.round,
            "models": self.models.cpu(),
            "base": None if self.base is None else self.base.cpu(),
            "gathered": None if self.gathered is None else self.gathered.pack(),
            "server_rounds": self.server.rounds,
            "server_moments": [moment.cpu() for moment in self.server.moments],
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """Rebuild the state from what `pack` gave, with tensors on ``device``.

        Raises:
            Exception: of any class, where ``packed`` is no such state.
        """
        models, base, gathered = packed["models"], packed["base"], packed["gathered"]
        check_tensors(models, base, *packed["server_moments"])
        if models is None or (base is None) != (gathered is None):
            raise ValueError("its parts do not fit each other")
        server = ServerState(
            int(packed["server_rounds"]), tuple(moment.to(device) for moment in packed["server_moments"])
        )
        models = models.to(device)
        if base is None:
            return cls(int(packed["round"]), models, server=server)
        vectors = DeviceVectors.unpack(gathered, models[0])
        return cls(int(packed["round"]), models, base.to(device), vectors, server)

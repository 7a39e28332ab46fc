"""What the tree protocol remembers between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor

from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.base import check_tensors
from sfumato.protocols.tree.control_variates import ControlVariates


@dataclass(frozen=True)
class TreeState:
    """What the protocol remembers between rounds.

    Attributes:
        round: how many rounds are done.
        model: the global model, float32 ``[M]``, on the engine's device.
        server: the cloud's optimizer.
        memory: with error feedback, what each device has not sent so far, float32 ``[devices, M]``.
        variates: with SCAFFOLD, those of the server and the devices.
    """

    kind: ClassVar[str] = "tree"

    round: int
    model: Tensor
    server: ServerState
    memory: Tensor | None = None
    variates: ControlVariates | None = None

    def pack(self) -> dict[str, Any]:
        """Everything as numbers and CPU tensors, for a checkpoint."""
        kept = self.variates
        return {
            "round": self.round,
            "model": self.model.cpu(),
            "server_rounds": self.server.rounds,
            "server_moments": [moment.cpu() for moment in self.server.moments],
            "memory": None if self.memory is None else self.memory.cpu(),
            "variates": None if kept is None else [kept.server.cpu(), kept.devices.cpu()],
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """The state that ``packed`` tells, on ``device``; any error at all where it is not one."""
        memory, variates = packed["memory"], packed.get("variates")
        check_tensors(packed["model"], memory, *packed["server_moments"], *(variates or ()))
        moments = tuple(moment.to(device) for moment in packed["server_moments"])
        server = ServerState(int(packed["server_rounds"]), moments)
        kept = None if memory is None else memory.to(device)
        own = None if variates is None else ControlVariates(*(tensor.to(device) for tensor in variates))
        return cls(int(packed["round"]), packed["model"].to(device), server, kept, own)

"""What the tree protocol remembers between rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from sfumato.distributed.ranks import Ranks
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.base import check_tensors
from sfumato.protocols.device_vectors import DeviceVectors
from sfumato.protocols.tree.control_variates import ControlVariates


@dataclass(frozen=True)
class TreeState:
    """What the protocol remembers between rounds.

    Attributes:
        round: how many rounds are done.
        model: the global model, float32 ``[M]``, on the engine's device.
        server: the cloud's optimizer.
        memory: with error feedback, what each device has not sent so far.
        variates: with SCAFFOLD, those of the server and the devices.
    """

    kind: ClassVar[str] = "tree"

    round: int
    model: Tensor
    server: ServerState
    memory: DeviceVectors | None = None
    variates: ControlVariates | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other ranks (processes) hold parts of it: vectors of the devices that they trained."""
        kept = None if self.variates is None else self.variates.devices
        return any(vectors is not None and vectors.is_shared for vectors in (self.memory, kept))

    def whole(self) -> Self:
        """The whole state on rank 0, with the devices' vectors of other ranks; every rank must call it."""
        return self._with_each(DeviceVectors.whole)

    def divided_among(self, ranks: Ranks) -> Self:
        """This rank's share: the vectors of devices are divided among ``ranks`` (processes)."""
        return self._with_each(lambda vectors: vectors.divided_among(ranks))

    def _with_each(self, change: Callable[[DeviceVectors], DeviceVectors]) -> Self:
        """Apply ``change`` to what vectors of devices there are: error feedback, SCAFFOLD's variates."""
        memory, kept = self.memory, self.variates
        return replace(
            self,
            memory=None if memory is None else change(memory),
            variates=None if kept is None else replace(kept, devices=change(kept.devices)),
        )

    def pack(self) -> dict[str, Any]:
        """The whole state as numbers and CPU tensors by name, for a checkpoint."""
        kept = self.variates
        return {
            "round": self.round,
            "model": self.model.cpu(),
            "server_rounds": self.server.rounds,
            "server_moments": [moment.cpu() for moment in self.server.moments],
            "memory": None if self.memory is None else self.memory.pack(),
            "variates": None if kept is None else [kept.server.cpu(), *kept.devices.pack()],
        }

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """Rebuild the state from what `pack` gave, with tensors on ``device``.

        Raises:
            Exception: of any class, where ``packed`` is no such state.
        """
        memory, variates = packed["memory"], packed["variates"]
        check_tensors(packed["model"], *packed["server_moments"], *(variates or ())[:1])
        moments = tuple(moment.to(device) for moment in packed["server_moments"])
        server = ServerState(int(packed["server_rounds"]), moments)
        model = packed["model"].to(device)
        kept = None if memory is None else DeviceVectors.unpack(memory, model)
        own = None
        if variates is not None:
            own = ControlVariates(variates[0].to(device), DeviceVectors.unpack(variates[1:], model))
        return cls(int(packed["round"]), model, server, kept, own)


@dataclass(frozen=True)
class DeployedState(TreeState):
    """The state of a tree whose parties are real programs; a simulation cannot continue from it.

    Attributes:
        session: digest of the terms that the parties agreed on, in hexadecimal digits; only parties of the
            same terms can continue from it.
        heads: digest of the keys of the aggregators without a parent that play the run here, in hexadecimal
            digits; only they can continue from it, as others would send what was released to them alone.
    """

    kind: ClassVar[str] = "deployed"

    session: str = ""
    heads: str = ""

    def pack(self) -> dict[str, Any]:
        """The whole state as numbers, texts and CPU tensors by name, for a checkpoint."""
        return super().pack() | {"session": self.session, "heads": self.heads}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any], device: str) -> Self:
        """Rebuild the state from what `pack` gave, with tensors on ``device``.

        Raises:
            Exception: of any class, where ``packed`` is no such state.
        """
        state = super().unpack(packed, device)
        return replace(state, session=str(packed["session"]), heads=str(packed["heads"]))

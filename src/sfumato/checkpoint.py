"""Where a run stands, so that it can go on after a kill as if nothing had happened."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.engine.local import Speed
from sfumato.errors import RunError
from sfumato.learning.server_optimizer import ServerState
from sfumato.protocols.tiered import TieredState
from sfumato.run_folder import CHECKPOINT_FILE, replacing


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run remembers between rounds. Random numbers are addressed, so there is no generator to keep.

    Attributes:
        state: of the protocol.
        rows: metrics so far, one mapping a round.
        participations: rounds each device took part in, int64 ``[devices]``.
        speed: device, threads and memory: what makes a repetition exact.
    """

    state: TieredState
    rows: tuple[dict[str, float], ...]
    participations: Tensor
    speed: Speed


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint.pt``, whole or not at all."""
    state, speed = checkpoint.state, checkpoint.speed
    document: dict[str, Any] = {
        "round": state.round,
        "model": state.model.cpu(),
        "server_rounds": state.server.rounds,
        "server_moments": [moment.cpu() for moment in state.server.moments],
        "rows": list(checkpoint.rows),
        "participations": checkpoint.participations,
        "speed": {"device": speed.device, "threads": speed.threads, "memory_bytes": speed.memory_bytes},
    }
    with replacing(folder / CHECKPOINT_FILE) as temporary:
        torch.save(document, temporary)


def load(folder: Path) -> Checkpoint | None:
    """Read ``checkpoint.pt``; ``None`` where there is none.

    Raises:
        RunError: it is damaged.
    """
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return None
    try:
        document = torch.load(path, map_location="cpu", weights_only=True)
        speed = Speed(**document["speed"])
        moments = tuple(moment.to(speed.device) for moment in document["server_moments"])
        state = TieredState(
            document["round"], document["model"].to(speed.device), ServerState(document["server_rounds"], moments)
        )
        return Checkpoint(state, tuple(document["rows"]), document["participations"], speed)
    except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise RunError(f"{path}: is not a checkpoint of this version: {error}") from None

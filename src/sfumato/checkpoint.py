"""Where a run stands, so that it can go on after a kill as if nothing had happened."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
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
    """Everything a run remembers between rounds: no generator, as random numbers are addressed.

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
        RunError: it is damaged, or of a run on a device that is not here.
    """
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return None
    try:
        _check_sums(path)
        document = torch.load(path, map_location="cpu", weights_only=True)
        speed = Speed(**document["speed"])
        kept = _read(document, speed)
    except Exception as error:  # whatever a damaged file makes the unpickler say
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunError(f"{path}: is damaged, or not a checkpoint of this version: {reason}") from None
    if speed.device != "cpu" and not torch.cuda.is_available():
        raise RunError(f"{path}: the run began on {speed.device}, which is not available here")
    state = kept.state
    server = ServerState(state.server.rounds, tuple(m.to(speed.device) for m in state.server.moments))
    return replace(kept, state=TieredState(state.round, state.model.to(speed.device), server))


def _check_sums(path: Path) -> None:
    """Compare the sums that the file (a zip archive) holds of its parts: ``torch.load`` does not."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} has changed")


def _read(document: dict[str, Any], speed: Speed) -> Checkpoint:
    """The checkpoint that ``document`` tells, on the CPU; any error at all where it is not one."""
    server = ServerState(int(document["server_rounds"]), tuple(document["server_moments"]))
    state = TieredState(int(document["round"]), document["model"], server)
    rows = tuple(dict(row) for row in document["rows"])
    tensors = (state.model, *server.moments, document["participations"])
    if len(rows) != state.round or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ValueError("its parts do not fit each other")
    return Checkpoint(state, rows, document["participations"], speed)

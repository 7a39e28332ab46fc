"""Where a run stands, so that it can go on after a kill as if nothing had happened."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.engine.local import Speed
from sfumato.errors import RunError
from sfumato.protocols.base import State
from sfumato.protocols.choose import STATES
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

    state: State
    rows: tuple[dict[str, float], ...]
    participations: Tensor
    speed: Speed


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint.pt``, whole or not at all."""
    state, speed = checkpoint.state, checkpoint.speed
    document: dict[str, Any] = {
        "protocol": state.kind,
        "state": state.pack(),
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
        here = speed.device == "cpu" or torch.cuda.is_available()
        kept = _read(document, speed, speed.device if here else "cpu")
    except Exception as error:  # whatever a damaged file makes the unpickler say
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise RunError(f"{path}: is damaged, or not a checkpoint of this version: {reason}") from None
    if not here:
        raise RunError(f"{path}: the run began on {speed.device}, which is not available here")
    return kept


def _check_sums(path: Path) -> None:
    """Compare the sums that the file (a zip archive) holds of its parts: ``torch.load`` does not."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} has changed")


def _read(document: dict[str, Any], speed: Speed, device: str) -> Checkpoint:
    """The checkpoint that ``document`` tells, on ``device``; any error at all where it is not one."""
    state = STATES[document["protocol"]].unpack(document["state"], device)
    rows = tuple(dict(row) for row in document["rows"])
    participations = document["participations"]
    if len(rows) != state.round or not isinstance(participations, Tensor):
        raise ValueError("its parts do not fit each other")
    return Checkpoint(state, rows, participations, speed)

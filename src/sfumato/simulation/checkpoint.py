"""Where a run stands, so that it can go on after a kill as if nothing had happened."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.durable_files import replacing, write_archive
from sfumato.engine.base import EngineSettings
from sfumato.errors import RunError, first_line
from sfumato.protocols.base import State
from sfumato.protocols.registry import state_of
from sfumato.run_folder.rounds_log import SealedPrefix
from sfumato.run_folder.seal import CHECKPOINT_FILE, Seal, read_checkpoint


@dataclass(frozen=True)
class TrainingPosition:
    """What a run remembers from one round to the next: no generator, as random numbers are addressed.

    Attributes:
        state: of the protocol.
        participations: rounds each device took part in, int64 ``[devices]``.
    """

    state: State
    participations: Tensor


@dataclass(frozen=True)
class Checkpoint:
    """All that the rest of a run follows from, and what the files beside it are held against.

    Attributes:
        position: what the run remembers.
        spec: text of ``spec.yaml``: resolved, with the hashes of the inputs and its own.
        fingerprint: of that spec.
        observers: whose views are recorded.
        rounds: the part of ``rounds.jsonl`` that belongs to it.
        speed: device, threads and memory: what makes a repetition exact.
    """

    position: TrainingPosition
    spec: str
    fingerprint: str
    observers: tuple[str, ...]
    rounds: SealedPrefix
    speed: EngineSettings


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint.pt``, whole or not at all, and for the owner's eyes only: it may hold raw updates.

    Raises:
        RunError: the system does not let it be written; the last checkpoint is still there.
    """
    state = checkpoint.position.state
    document = {"state": state.pack(), "participations": checkpoint.position.participations}
    seal = Seal(
        checkpoint.spec,
        checkpoint.fingerprint,
        state.kind,
        checkpoint.observers,
        checkpoint.rounds,
        asdict(checkpoint.speed),
    )
    archive = io.BytesIO()  # an interrupt inside of torch.save's own writing would end in another error
    torch.save(document, archive)
    with replacing(folder / CHECKPOINT_FILE, private=True) as file:
        write_archive(archive, file)
        seal.write(file)


def load(folder: Path) -> Checkpoint | None:
    """Read ``checkpoint.pt``; ``None`` where there is none.

    Raises:
        RunError: it is damaged, or of a run on a device that is not here.
    """
    found = read_checkpoint(folder)
    if found is None:
        return None
    path, (seal, archive) = folder / CHECKPOINT_FILE, found
    try:
        document = torch.load(io.BytesIO(archive), map_location="cpu", weights_only=True)
        speed = EngineSettings(**seal.speed)
        here = speed.device == "cpu" or torch.cuda.is_available()
        position = _read(document, seal, speed.device if here else "cpu")
    except Exception as error:  # whatever the unpickler says of what is no checkpoint
        said = f"is damaged, or not a checkpoint of this version: {first_line(error)}"
        raise RunError(f"{path}: {said}") from None
    if not here:
        raise RunError(f"{path}: the run began on {speed.device}, which is not available here")
    return Checkpoint(position, seal.spec, seal.fingerprint, seal.observers, seal.rounds, speed)


def _read(document: dict[str, Any], seal: Seal, device: str) -> TrainingPosition:
    """What ``document`` remembers, on ``device``; any error at all where it is nothing."""
    state = state_of(seal.protocol).unpack(document["state"], device)
    participations = document["participations"]
    if seal.rounds.rounds != state.round or not isinstance(participations, Tensor):
        raise ValueError("its parts do not fit each other")
    return TrainingPosition(state, participations)

"""The checkpoint of a run: everything from which the remaining rounds follow, bit for bit."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.durable_files import replacing, write_archive
from sfumato.engine.base import is_device_available
from sfumato.errors import RunError, first_line
from sfumato.protocols.base import State
from sfumato.protocols.registry import state_of
from sfumato.run_folder.rounds_log import SealedPrefix
from sfumato.run_folder.seal import CHECKPOINT_FILE, Seal, read_checkpoint


@dataclass(frozen=True)
class TrainingPosition:
    """The state of a run between two rounds. It has no random generator: random numbers have addresses.

    Attributes:
        state: of the protocol.
        participations: number of rounds in which each device took part, int64 ``[devices]``.
    """

    state: State
    participations: Tensor


@dataclass(frozen=True)
class Checkpoint:
    """Everything from which the remaining rounds follow, and data to check the other files with.

    Attributes:
        position: state of the run after the last round.
        spec: text of ``spec.yaml``: resolved, with the hashes of the inputs and of the spec.
        fingerprint: of that spec.
        observers: the observers whose views are recorded.
        rounds: the part of ``rounds.jsonl`` that belongs to the checkpoint.
        device: that the run is trained on, and goes on with; threads and memory may be others.
    """

    position: TrainingPosition
    spec: str
    fingerprint: str
    observers: tuple[str, ...]
    rounds: SealedPrefix
    device: str


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint.pt``, completely or not at all. Only its owner may read it: it may hold raw updates.

    Raises:
        RunError: it cannot be written; the last checkpoint is still there.
    """
    state = checkpoint.position.state
    document = {"state": state.pack(), "participations": checkpoint.position.participations}
    seal = Seal(
        checkpoint.spec,
        checkpoint.fingerprint,
        state.kind,
        checkpoint.observers,
        checkpoint.rounds,
        checkpoint.device,
    )
    archive = io.BytesIO()  # an interrupt while torch.save writes to a file would become another error
    torch.save(document, archive)
    with replacing(folder / CHECKPOINT_FILE, private=True) as file:
        write_archive(archive, file)
        seal.write(file)


def load(folder: Path) -> Checkpoint | None:
    """Read ``checkpoint.pt``; ``None`` if there is none.

    Raises:
        RunError: it is damaged, or its run was on a device that is not available.
    """
    found = read_checkpoint(folder)
    if found is None:
        return None
    path, (seal, archive) = folder / CHECKPOINT_FILE, found
    try:
        document = torch.load(io.BytesIO(archive), map_location="cpu", weights_only=True)
        here = is_device_available(seal.device)
        position = _read(document, seal, seal.device if here else "cpu")
    except Exception as error:  # the unpickler may raise any error for a file that is not a checkpoint
        said = f"is damaged, or not a checkpoint of this version: {first_line(error)}"
        raise RunError(f"{path}: {said}") from None
    if not here:
        raise RunError(f"{path}: the run began on {seal.device}, which is not available here")
    return Checkpoint(position, seal.spec, seal.fingerprint, seal.observers, seal.rounds, seal.device)


def _read(document: dict[str, Any], seal: Seal, device: str) -> TrainingPosition:
    """The training position that ``document`` tells, with tensors on ``device``.

    Raises any error at all if the document is invalid.
    """
    state = state_of(seal.protocol).unpack(document["state"], device)
    participations = document["participations"]
    if seal.rounds.rounds != state.round or not isinstance(participations, Tensor):
        raise ValueError("its parts do not belong together")
    return TrainingPosition(state, participations)

"""The start of a run over several ranks: they agree, and go on from one checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import torch

from sfumato.distributed.ranks import Ranks
from sfumato.protocols.registry import state_of
from sfumato.run_folder.rounds_log import LoggedRound
from sfumato.schedule.base import Plan
from sfumato.simulation.checkpoint import Checkpoint, TrainingPosition
from sfumato.simulation.training_loop import Session
from sfumato.spec.frozen import FrozenSpec, versions


def facts_of_rank(plan: Plan, device: str, observers: Sequence[str]) -> Mapping[str, str]:
    """The texts by name that must be the same on all ranks before any of them reads data.

    They tell the spec, the recorded views, the versions, and the device with its capability.

    Args:
        plan: resolved.
        device: cpu or cuda.
        observers: whose views are recorded.
    """
    facts = {"the spec": f"hash {FrozenSpec.of(plan.spec, {}, {}).fingerprint[:12]}"}
    facts |= {"the recorded views": " and ".join(observers)}
    facts |= dict(versions())
    on_cuda = torch.device(device).type == "cuda"
    what = torch.cuda.get_device_name() if on_cuda else torch.backends.cpu.get_cpu_capability()
    return facts | {"the device": "cuda" if on_cuda else "cpu", "the device's capability": what}


def shared_checkpoint(existing: Checkpoint | None, ranks: Ranks, device: str) -> Checkpoint | None:
    """The checkpoint that rank 0 has read, on every rank; other ranks need not see the run's folder.

    Args:
        existing: on rank 0; ignored on the others.
        ranks: of the run.
        device: where this rank's tensors are.
    """
    if ranks.count == 1:
        return existing
    sent = None
    if ranks.rank == 0 and existing is not None:
        rest = {one.name: getattr(existing, one.name) for one in fields(existing) if one.name != "position"}
        state = existing.position.state
        sent = state.kind, state.pack(), existing.position.participations, rest
    found = ranks.of_first(sent)
    if ranks.rank == 0 or found is None:
        return existing
    kind, packed, participations, rest = found
    position = TrainingPosition(state_of(kind).unpack(packed, device), participations)
    return Checkpoint(position=position, **rest)


class FolderFollower:
    """What the other ranks have in place of rank 0's `FolderWriter`: it writes nothing.

    Args:
        session: of the run.
        existing: the checkpoint from which the run continues.
    """

    def __init__(self, session: Session, existing: Checkpoint | None) -> None:
        self._session = session
        if existing is None:
            self.start = session.initial_position()
        else:
            self.start = session.continued(existing.position)

    def close(self) -> None:
        """Do nothing: no file is open."""

    def rounds(self) -> Iterator[LoggedRound]:
        """An empty iterator: rank 0 has the saved rounds."""
        return iter(())

    def add(self, position: TrainingPosition, row: Mapping[str, float]) -> None:
        """Drop the views recorded in the round: rank 0 writes them. Neither argument is used."""
        for recorder in self._session.recorders:
            recorder.clear()

    def save(self, position: TrainingPosition) -> None:
        """Send this rank's part of the state to rank 0, which saves it."""
        position.state.whole()

    def stop(self, position: TrainingPosition) -> None:
        """Do nothing: rank 0 saves."""

    def finish(self, position: TrainingPosition) -> None:
        """Send this rank's part of the state to rank 0, which saves it."""
        position.state.whole()

"""The parties of small deployed groups, one by one, each of which may be killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rehearsals import PURPOSE, UNLIMITED, spec_of

from sfumato.deployment.cloud import AskingParty
from sfumato.deployment.consent import agree
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.worker import WorkerParty
from sfumato.deployment.worker_data import WorkerData
from sfumato.learning.parameters import ParameterLayout
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.wire.frames import parse_frame
from sfumato.wire.keys import Identity


@dataclass
class GroupStage:
    """Parties by number; those that were not asked for yet, or were killed, are started when they are."""

    terms: GroupTerms
    inputs: TrainingInputs
    identities: list[Identity]
    folder: Path
    memories: dict[int, PartyMemory] = field(default_factory=dict)
    running: dict[int, Any] = field(default_factory=dict)

    def memory(self, number: int) -> PartyMemory:
        if number not in self.memories:
            path = self.folder / f"memory-{number}"
            self.memories[number] = PartyMemory(path) if path.exists() else PartyMemory.create(path)
        return self.memories[number]

    def ledger(self, number: int) -> Path:
        path = self.folder / f"ledger-{number}"
        if not path.exists():
            OwnersLedger.create(path)
        return path

    def worker(self, number: int) -> WorkerParty:
        if number not in self.running:
            rows = rows_of(self.inputs.data, self.inputs.partition, number)
            agreement = agree(self.terms, number, UNLIMITED, self.ledger(number))
            own = self.identities[number], self.memory(number), SystemRandomness()
            self.running[number] = WorkerParty(agreement, WorkerData(number, self.terms, rows), *own)
        return self.running[number]

    def master(self, group: int) -> AskingParty:
        number = self.terms.master(group)
        if number not in self.running:
            own = self.identities[number], self.memory(number), SystemRandomness()
            self.running[number] = AskingParty(number, self.terms, *own)
        return self.running[number]

    def party(self, number: int) -> Any:
        return (
            self.worker(number) if number < self.terms.device_count else self.master(self.terms.group(number))
        )

    def questions(self, number: int, models: npt.NDArray[np.float32]) -> list[bytes]:
        """What all masters ask about a round that begins with ``models`` of their groups."""
        return [data for group, model in enumerate(models) for data in self.master(group).ask(number, model)]

    def play(self, number: int, models: npt.NDArray[np.float32]) -> list[bytes]:
        """Play a round; all frames, questions that had no answer yet among them."""
        carried: list[bytes] = []
        waiting = self.questions(number, models)
        while waiting:
            carried.append(data := waiting.pop(0))
            sent = self.worker(parse_frame(data).recipient).receive(data)
            if not sent:  # it is asked again, when others have asked
                waiting.append(data)
            for answer in sent:
                carried.append(answer)
                self.party(parse_frame(answer).recipient).receive(answer)
        return carried

    def restart(self, number: int) -> None:
        """Kill a party; it starts again when it is asked for."""
        self.running.pop(number, None)
        if number in self.memories:
            self.memories.pop(number).close()


@contextmanager
def staged_groups(
    document: dict[str, Any], folder: Path, first: Identity | None = None
) -> Iterator[GroupStage]:
    """The parties of a spec of groups, with memories in ``folder`` and new keys, but perhaps the first's."""
    plan = resolve(spec_of(document))
    inputs = TrainingInputs.of(plan)
    others = plan.groups.workers + plan.groups.count - 1
    identities = [first or Identity(), *(Identity() for _ in range(others))]
    terms = GroupTerms.of(
        plan.spec,
        parameters=ParameterLayout.of(inputs.model).total,
        purpose=PURPOSE,
        label="test",
        keys=tuple(identity.public for identity in identities),
    )
    stage = GroupStage(terms, inputs, identities, folder)
    try:
        yield stage
    finally:
        for number in list(stage.memories):
            stage.restart(number)

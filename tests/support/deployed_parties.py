"""The parties of a small deployment, one by one, each of which may be killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rehearsals import UNLIMITED, spec_of, terms_of

from sfumato.deployment.cloud import CloudParty
from sfumato.deployment.consent import agree
from sfumato.deployment.device import DeviceParty
from sfumato.deployment.edge import EdgeParty
from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.local_data import LocalData
from sfumato.deployment.local_parties import rows_of
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import FrameKind, IntArray, RoundPosition, decode_answer
from sfumato.deployment.own_loop import OwnLoop
from sfumato.deployment.randomness import SystemRandomness
from sfumato.deployment.terms import DeploymentTerms
from sfumato.learning.batches import plan_steps
from sfumato.learning.parameters import ParameterLayout
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.wire.frames import parse_frame
from sfumato.wire.keys import Identity

NO_BATCHES = plan_steps([np.arange(1)], steps=1, batch_size=1, rng=np.random.default_rng(1))
"""For a device that trains with a loop of its owner's, which draws its own."""


@dataclass
class Stage:
    """Parties by number; those that were not asked for yet, or were killed, are started when they are."""

    terms: DeploymentTerms
    inputs: TrainingInputs
    identities: list[Identity]
    folder: Path
    memories: dict[int, PartyMemory] = field(default_factory=dict)
    running: dict[int, Any] = field(default_factory=dict)
    loop: OwnLoop | None = None
    told: list[str] = field(default_factory=list)

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

    def pins(self) -> dict[str, str]:
        """The keys of all edges, as a consent pins them."""
        edges = range(self.terms.cloud + 1, len(self.terms.keys))
        return {self.terms.name(edge): self.terms.keys[edge].hex() for edge in edges}

    def device(self, number: int) -> DeviceParty:
        if number not in self.running:
            memory, data = self.memory(number), self.data(number)
            agreement = agree(self.terms, number, UNLIMITED, self.ledger(number))
            self.running[number] = DeviceParty(
                agreement, data, self.identities[number], memory, SystemRandomness()
            )
        return self.running[number]

    def data(self, number: int) -> LocalData:
        rows = rows_of(self.inputs.data, self.inputs.partition, number)
        return LocalData(number, self.terms, rows, self.loop, self.told.append)

    def edge(self, number: int) -> EdgeParty:
        if number not in self.running:
            own = self.terms, self.identities[number], self.memory(number), SystemRandomness()
            self.running[number] = EdgeParty(number, *own)
        return self.running[number]

    def cloud(self) -> CloudParty:
        number = self.terms.cloud
        if number not in self.running:
            own = self.identities[number], self.memory(number), SystemRandomness()
            self.running[number] = CloudParty(self.terms, *own)
        return self.running[number]

    def party(self, number: int) -> Any:
        if number < self.terms.cloud:
            return self.device(number)
        return self.cloud() if number == self.terms.cloud else self.edge(number)

    def play(self, model: Any, number: int = 0) -> tuple[Any, list[bytes]]:
        """Play one round: what it came to, and all frames."""
        carried = list(self.sent(model, number))
        return self.cloud().released, carried

    def sent(self, model: Any, number: int = 0) -> Iterator[bytes]:
        """Play one round: all frames, as they are sent."""
        waiting = self.cloud().ask(number, model)
        while waiting:
            yield (data := waiting.pop())
            waiting += self.party(parse_frame(data).recipient).receive(data)

    def restart(self, number: int) -> None:
        """Kill a party; it starts again when it is asked for."""
        self.running.pop(number, None)
        if number in self.memories:
            self.memories.pop(number).close()

    def forget_last(self, number: int) -> None:
        """As if a party had been killed just before its last answer was recorded."""
        session, memory = self.terms.session, self.memory(number)
        last = memory.last(session)
        assert last is not None
        memory._file.execute(
            "DELETE FROM answers WHERE session = ? AND round = ? AND aggregation = ?", (session, *last)
        )


def answers(frames: list[bytes], stage: Stage) -> dict[tuple[int, RoundPosition], IntArray]:
    """What every party answered plainly, by its number and the position."""
    found = {}
    for frame in map(parse_frame, frames):
        if frame.kind == FrameKind.ANSWER:
            position, _, steps = decode_answer(frame.payload, stage.terms.parameters)
            found[frame.sender, position] = steps
    return found


@contextmanager
def staged(document: dict[str, Any], folder: Path, first: Identity | None = None) -> Iterator[Stage]:
    """The parties of a spec, with memories in ``folder`` and new keys, but perhaps for the first's."""
    spec = spec_of(document)
    plan = resolve(spec)
    inputs = TrainingInputs.of(plan)
    count = plan.parties.device_count + sum(tier.size for tier in plan.tree.tiers)
    identities = [first or Identity(), *(Identity() for _ in range(count - 1))]
    keys = tuple(identity.public for identity in identities)
    stage = Stage(terms_of(spec, ParameterLayout.of(inputs.model).total, keys), inputs, identities, folder)
    try:
        yield stage
    finally:
        for number in list(stage.memories):
            stage.restart(number)

"""Devices that fall silent in a phase of an aggregation, as the spec's faults have `run` draw them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from deployed_parties import Stage

from sfumato.deployment import rehearsal
from sfumato.deployment.carrier import InProcess
from sfumato.deployment.device import DeviceParty
from sfumato.deployment.messages import (
    FrameKind,
    IntArray,
    Model,
    RoundPosition,
    decode_answer,
    decode_masking,
    question_hash,
    steps_from_bytes,
)
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import RunError
from sfumato.schedule.faults.dropouts import turnout_of
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.server import Phase
from sfumato.wire.frames import parse_frame

Silence = Callable[[int, RoundPosition], Phase]
"""From which phase of an aggregation a device says no more; `Phase.DONE`: it stays."""

FIRST = RoundPosition(0, 0)

_PHASES = {
    MessageKind.ROSTER: Phase.SHARE,
    MessageKind.DELIVERY: Phase.MASK,
    MessageKind.SURVIVORS: Phase.CONSENT,
    MessageKind.CONSENTS: Phase.UNMASK,
}


def staying(device: int, position: RoundPosition) -> Phase:
    """Nobody falls silent."""
    return Phase.DONE


def from_phase(phase: Phase, *devices: int) -> Silence:
    """Some devices fall silent in a phase of every aggregation."""
    return lambda device, position: phase if device in devices else Phase.DONE


def phase_of(data: bytes, *, masked: bool) -> tuple[RoundPosition, Phase]:
    """What a frame for a device is about, and the phase of its answer."""
    frame = parse_frame(data)
    position, _, message = decode_masking(frame.payload)  # a question begins alike
    if frame.kind == FrameKind.QUESTION:
        return position, Phase.ADVERTISE if masked else Phase.MASK
    return position, _PHASES[MessageKind(parse_frame(message).kind)]


def kind_of(data: bytes) -> int | None:
    """The kind of the message of a session of masks that a frame holds."""
    frame = parse_frame(data)
    if frame.kind != FrameKind.MASKING:
        return None
    return parse_frame(decode_masking(frame.payload)[2]).kind


def named(data: bytes) -> str:
    """The kind of a frame, by name, and the aggregation that it is about."""
    frame, masking = parse_frame(data), kind_of(data)
    name = FrameKind(frame.kind).name if masking is None else MessageKind(masking).name
    return f"{name} {decode_masking(frame.payload)[0].aggregation}"  # all payloads begin alike


def fails(terms: DeploymentTerms, device: int, data: bytes, silent: Silence) -> None:
    """Raise a RunError if a device does not answer a frame."""
    position, phase = phase_of(data, masked=terms.is_masked(terms.parent(device)))
    if phase >= silent(device, position):
        raise RunError("has ended")


def drawn(plan: TreePlan) -> Silence:
    """Who falls silent when in the `run` of a plan."""
    everybody = np.arange(plan.tree.device_count, dtype=np.int64)

    def silent(device: int, position: RoundPosition) -> Phase:
        return Phase(int(turnout_of(plan, *position, everybody).dropout_phase[device]))

    return silent


@contextmanager
def rehearsed_with(silent: Silence) -> Iterator[None]:
    """Let devices of a rehearsal fall silent."""

    class Losing(DeviceParty):
        def receive(self, data: bytes) -> list[bytes]:
            fails(self._terms, self.number, data, silent)
            return super().receive(data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "DeviceParty", Losing)
        yield


@dataclass
class MayFail:
    """A device of a stage, started when it is asked; it fails where it falls silent."""

    stage: Stage
    number: int
    silent: Silence

    def receive(self, data: bytes) -> list[bytes]:
        fails(self.stage.terms, self.number, data, self.silent)
        return self.stage.device(self.number).receive(data)


def played(stage: Stage, model: Model, number: int = 0, silent: Silence = staying) -> IntArray | None:
    """Play a round in which devices fall silent; what it came to."""
    terms = stage.terms
    parties = {party: stage.party(party) for party in range(terms.cloud, len(terms.keys))}
    devices = {device: MayFail(stage, device, silent) for device in range(terms.cloud)}
    parents = {party: terms.parent(party) for party in range(len(terms.keys)) if party != terms.cloud}
    InProcess({**devices, **parties}, parents).carry(stage.cloud().ask(number, model))
    return stage.cloud().released


def model_of(stage: Stage) -> Model:
    """The model that a test asks with."""
    return np.zeros(stage.terms.parameters, np.float32)


def recorded(stage: Stage, *devices: int, position: RoundPosition = FIRST) -> IntArray:
    """The sum of what devices have in their memories as their answers to the first model."""
    total = np.zeros(stage.terms.parameters, np.int64)
    for device in devices:
        question = question_hash(position, model_of(stage))
        kept = stage.memory(device).answer(stage.terms.session, position, question)
        assert kept is not None
        if stage.terms.is_masked(stage.terms.cloud):
            total += steps_from_bytes(kept)
        else:
            total += decode_answer(parse_frame(kept).payload, stage.terms.parameters)[2]
    return total

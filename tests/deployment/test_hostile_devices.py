"""What a hostile device does to others: its frames count against itself, whatever sender they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import Stage, staged
from losing_devices import recorded
from rehearsals import STAR, TREE

from sfumato.deployment.carrier import InProcess
from sfumato.deployment.messages import FrameKind, decode_masking, encode_masking
from sfumato.deployment.subtree import Subtree
from sfumato.deployment.terms import DeploymentTerms
from sfumato.secure_aggregation.client import survivors_digest
from sfumato.secure_aggregation.messages import MessageKind, decode_boxes, encode_boxes
from sfumato.wire import errors
from sfumato.wire.frames import Frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity

PLAIN = STAR | {"topology": {"kind": "star", "devices": 5}, "faults": {"dropout_rate": 0.3}}
MASKED = PLAIN | {"transport": {"devices_to_cloud": "secure-aggregation"}, "faults": {"dropout_rate": 0.1}}
EDGES = TREE | {"faults": {"dropout_rate": 0.3}}

Change = Callable[[DeploymentTerms, list[bytes]], list[bytes]]


@dataclass
class Hostile:
    """A device that sends something else than what it should."""

    stage: Stage
    number: int
    change: Change

    def receive(self, data: bytes) -> list[bytes]:
        return self.change(self.stage.terms, self.stage.device(self.number).receive(data))


def forged(terms: DeploymentTerms, sender: int, recipient: int) -> bytes:
    """A frame that anybody can make: the signature is of a key that nobody knows."""
    return seal_frame(Frame(FrameKind.ANSWER, terms.session, sender, recipient, b""), Identity())


def others(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return own + [forged(terms, sender, terms.cloud) for sender in range(1, 5)]


def unknown_sender(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return [forged(terms, 77, 1), *own]


def to_a_device(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return [forged(terms, 0, 1), *own]


def to_nobody(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return [forged(terms, 0, 99), *own]


def of_the_cloud(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return [forged(terms, terms.cloud, 1), *own]


def no_frame(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return [*own, b"xx"]


def too_much(terms: DeploymentTerms, own: list[bytes]) -> list[bytes]:
    return [*own, forged(terms, 0, terms.cloud)]


FORGERIES = [others, unknown_sender, to_a_device, to_nobody, of_the_cloud, no_frame, too_much]


def played_with(stage: Stage, hostile: int, change: Change) -> Any:
    """Play the first round of a star with one hostile device; what it came to."""
    terms = stage.terms
    parties: dict[int, Any] = {device: stage.device(device) for device in range(terms.cloud)}
    parties |= {hostile: Hostile(stage, hostile, change), terms.cloud: stage.cloud()}
    model = np.zeros(terms.parameters, np.float32)
    InProcess(parties, dict.fromkeys(range(terms.cloud), terms.cloud)).carry(stage.cloud().ask(0, model))
    return stage.cloud().released


@pytest.fixture(name="masked")
def fixture_masked(tmp_path: Path) -> Iterator[Stage]:
    with staged(MASKED, tmp_path) as stage:
        yield stage


@pytest.mark.parametrize("hostile", [0, 4])
@pytest.mark.parametrize("document", [PLAIN, MASKED], ids=["plain", "masked"])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forger_makes_nobody_else_lost(
    document: dict[str, Any], hostile: int, forgery: Change, tmp_path: Path
) -> None:
    """All others are in the sum, and nothing stops."""
    with staged(document, tmp_path) as stage:
        released = played_with(stage, hostile, forgery)
        everybody = recorded(stage, *range(5))
        without = everybody - recorded(stage, hostile)
        assert np.array_equal(released, everybody) or np.array_equal(released, without)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forger_below_an_edge_makes_nobody_else_lost(forgery: Change, tmp_path: Path) -> None:
    """The edge carries frames itself, and its answer is the only one that goes up."""
    with staged(EDGES, tmp_path) as stage:
        terms, model = stage.terms, np.zeros(stage.terms.parameters, np.float32)
        for data in stage.cloud().ask(0, model):
            edge = parse_frame(data).recipient
            below: dict[int, Any] = {device: stage.device(device) for device in terms.children(edge)}
            first = min(below)
            below[first] = Hostile(stage, first, forgery)
            (answer,) = Subtree(stage.edge(edge), below).receive(data)
            stage.cloud().receive(answer)
            for device in set(below) - {first}:
                assert stage.memory(device).last(terms.session) == terms.at(0)
        assert stage.cloud().released is not None


def test_without_declared_dropouts_a_forger_stops_the_run(tmp_path: Path) -> None:
    with (
        staged(STAR, tmp_path) as stage,
        pytest.raises(errors.UnknownSenderError, match="of party 0 that says"),
    ):
        played_with(stage, 0, lambda terms, own: [forged(terms, 1, terms.cloud)])


def changed(kind: MessageKind, change: Callable[[Frame], bytes], identity: Identity) -> Change:
    """Put another payload into a message of a session of masks; all signatures fit."""

    def each(data: bytes) -> bytes:
        frame = parse_frame(data)
        position, attempt, message = decode_masking(frame.payload)
        if (inner := parse_frame(message)).kind != kind:
            return data
        told = seal_frame(replace(inner, payload=change(inner)), identity)
        return seal_frame(replace(frame, payload=encode_masking(position, attempt, told)), identity)

    return lambda terms, own: [each(data) for data in own]


def test_who_signs_another_list_is_as_one_that_signs_none(masked: Stage) -> None:
    """Its vector is in the sum, which four others unmask."""

    def other_list(inner: Frame) -> bytes:
        return survivors_digest(inner.session, (0, 1, 2, 4))

    change = changed(MessageKind.CONSENT, other_list, masked.identities[4])
    assert np.array_equal(played_with(masked, 4, change), recorded(masked, *range(5)))


def test_shares_that_cannot_be_opened_name_who_sealed_them(
    masked: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The device that refuses them is lost: nobody can tell which of the two lies."""

    def no_box(inner: Frame) -> bytes:
        boxes = decode_boxes(inner.payload)
        return encode_boxes(boxes | {1: bytes(len(boxes[1]))})

    change = changed(MessageKind.SHARES, no_box, masked.identities[4])
    assert np.array_equal(played_with(masked, 4, change), recorded(masked, 0, 2, 3, 4))
    assert "goes on without device:1 (what party 4 sealed for party 1: " in caplog.text

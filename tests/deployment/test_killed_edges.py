"""An edge is killed at every frame that it gets in a round, before and after it records what follows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import Stage, staged
from losing_devices import model_of, named
from rehearsals import STAR, TREE
from told_by_edges import ToldByEdges

from sfumato.deployment.messages import (
    IntArray,
    decode_answer,
    question_hash,
    steps_from_bytes,
)
from sfumato.wire.frames import parse_frame

MASKS = {"devices_to_edge": "secure-aggregation"}
MASKED = TREE | {"transport": MASKS}
MASKED_TWICE = STAR | {
    "protocol": "hdp",
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 2},
    "transport": MASKS | {"edge_to_cloud": "secure-aggregation"},
    "privacy": STAR["privacy"] | {"noise": {"multiplier": 1.1, "placement": {"device": 0.5, "edge": 0.5}}},
}
ROUNDS = 60
"""One round for every moment at which the edge is killed; more than there are."""
OF_DEVICES = {"QUESTION", "ADVERTISE", "SHARES", "MASKED", "CONSENT", "UNMASK"}


class _KilledError(Exception):
    """In the place of SIGKILL: the party does nothing more."""


def _killed(*_: Any) -> None:
    raise _KilledError


def carry(
    stage: Stage, told: ToldByEdges, frames: list[bytes], kill_at: int = -1, *, recorded: bool = True
) -> tuple[bytes, list[bytes]] | None:
    """Carry frames, and all that follows, until none is left or edge 0 is killed; it sends nothing then.

    Args:
        stage: of the parties.
        told: notes what is sent.
        frames: of the cloud.
        kill_at: the number of the frame at which the edge is killed, of those that it gets, from 0.
        recorded: whether it records an answer before, if one follows from the frame.

    Returns:
        The frame at which it was killed, and what others have sent to others; ``None``: it was not.
    """
    edge, got, waiting = stage.terms.edge(0), 0, list(frames)
    while waiting:
        data = waiting.pop(0)
        recipient = parse_frame(data).recipient
        if recipient == edge and got == kill_at:
            with pytest.MonkeyPatch.context() as patch, suppress(_KilledError):
                if not recorded:
                    patch.setattr(stage.memory(edge), "record", _killed)
                stage.edge(edge).receive(data)
            stage.restart(edge)
            return data, [one for one in waiting if edge not in _ends(one)]
        got += recipient == edge
        sent = stage.party(recipient).receive(data)
        told.note(sent)
        waiting += sent
    return None


def _ends(data: bytes) -> tuple[int, int]:
    frame = parse_frame(data)
    return frame.sender, frame.recipient


def recorded_sum(stage: Stage, number: int) -> IntArray:
    """The sum of what the edges have in their memories as their answers to the cloud."""
    terms, total = stage.terms, np.zeros(stage.terms.parameters, np.int64)
    position, is_masked = terms.at(number), terms.is_masked(terms.cloud)
    for edge in terms.children(terms.cloud):
        kept = stage.memory(edge).answer(terms.session, position, question_hash(position, model_of(stage)))
        assert kept is not None
        answer = steps_from_bytes if is_masked else _steps_of_frame
        total += answer(kept)
    return total


def _steps_of_frame(kept: bytes) -> IntArray:
    payload = parse_frame(kept).payload
    return decode_answer(payload, (len(payload) - 40) // 8)[2]


def staged_rounds(document: dict[str, Any], folder: Path) -> Any:
    return staged(document | {"training": document["training"] | {"rounds": ROUNDS}}, folder)


@pytest.mark.parametrize("recorded", [False, True], ids=["before it records", "before it sends"])
@pytest.mark.parametrize(
    ("document", "phases"),
    [
        pytest.param(TREE, {"QUESTION", "ANSWER"}, id="plain, two aggregations a round"),
        pytest.param(MASKED, OF_DEVICES, id="masked devices, two aggregations a round"),
        pytest.param(
            MASKED_TWICE, OF_DEVICES | {"ROSTER", "DELIVERY", "SURVIVORS", "CONSENTS"}, id="both hops masked"
        ),
    ],
)
def test_an_edge_that_is_killed_tells_its_sum_with_one_noise(
    document: dict[str, Any], phases: set[str], recorded: bool, tmp_path: Path
) -> None:
    """All parties start again, as where `deploy --local` has stopped, and the cloud asks the same again."""
    with staged_rounds(document, tmp_path) as stage:
        told, killed_at = ToldByEdges(stage.terms), set[str]()
        for number in range(ROUNDS):
            asked = stage.cloud().ask(number, model_of(stage))
            killed = carry(stage, told, asked, number, recorded=recorded)
            if killed is None:
                break
            killed_at.add(named(killed[0]).split()[0])
            for party in range(len(stage.terms.keys)):
                stage.restart(party)
            carry(stage, told, stage.cloud().ask(number, model_of(stage)))
            assert np.array_equal(stage.cloud().released, recorded_sum(stage, number))
        assert killed is None
        assert told.changed() == []
        assert killed_at == phases


@pytest.mark.parametrize("recorded", [False, True], ids=["before it records", "before it sends"])
@pytest.mark.parametrize("document", [TREE, MASKED], ids=["plain", "masked devices"])
def test_an_edge_that_starts_again_alone_is_asked_the_same_again(
    document: dict[str, Any], recorded: bool, tmp_path: Path
) -> None:
    """As over TLS, where it dials the cloud again: the others have not noticed."""
    with staged_rounds(document, tmp_path) as stage:
        told, edge = ToldByEdges(stage.terms), stage.terms.edge(0)
        for number in range(ROUNDS):
            asked = stage.cloud().ask(number, model_of(stage))
            killed = carry(stage, told, asked, number, recorded=recorded)
            if killed is None:
                break
            again = [data for data in asked if parse_frame(data).recipient == edge]
            carry(stage, told, again + killed[1])
            assert np.array_equal(stage.cloud().released, recorded_sum(stage, number))
        assert number > 4
        assert killed is None
        assert told.changed() == []

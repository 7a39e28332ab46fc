"""A worker that dials several masters: whose frames it takes, and what each of them gets when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pytest
from deployed_groups import GroupStage, staged_groups
from rehearsals import GROUPS

from sfumato.deployment import asked_again, several_parents
from sfumato.deployment.asked_again import AskedAgain
from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.neighbours import DialedParent, Neighbours
from sfumato.deployment.several_parents import answer_parents
from sfumato.errors import RunError
from sfumato.wire.errors import MisroutedMessageError
from sfumato.wire.frames import parse_frame

WORKER = 0
"""It is in the first group and in the last one."""

Script = Callable[[FrameReceiver], None]


class _DoneError(Exception):
    """A conversation has come to its end."""


def silent(face: FrameReceiver) -> None:
    """A master that asks nothing for longer than a test takes."""
    threading.Event().wait(60)


@pytest.fixture(name="stage")
def fixture_stage(tmp_path: Path) -> Iterator[GroupStage]:
    with staged_groups(GROUPS, tmp_path) as stage:
        assert len(stage.terms.parents(WORKER)) == 2
        yield stage


def asked(stage: GroupStage) -> list[bytes]:
    """What both masters ask the worker in the first round."""
    models = np.zeros((3, stage.terms.parameters), np.float32)
    return [data for data in stage.questions(0, models) if parse_frame(data).recipient == WORKER]


def talk(party: FrameReceiver, stage: GroupStage, *scripts: Script) -> list[str]:
    """Let each master say what its script does, by its own connection, until one of them has done.

    Returns:
        What the worker said of its connections.
    """
    terms, said = stage.terms, list[str]()
    parents = [DialedParent(one, terms.name(one), terms.keys[one], b"", "") for one in terms.parents(WORKER)]
    of_master: Mapping[int, Script] = dict(zip(terms.parents(WORKER), scripts, strict=True))

    def connection(face: FrameReceiver, own: Any, parent: DialedParent, *_: Any) -> NoReturn:
        of_master[parent.number](face)
        raise _DoneError

    hops = Neighbours(cast(Any, None), parents, (), "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(several_parents, "answer_parent", connection)
        with pytest.raises(_DoneError):
            answer_parents(party, hops, lambda number: 0, said.append, said.append)
    return said


def test_each_master_gets_its_own_answer_as_soon_as_both_have_asked(stage: GroupStage) -> None:
    first, second = asked(stage)
    answers: dict[str, list[bytes]] = {}
    has_asked, is_done = threading.Event(), threading.Event()

    class Noticing:
        def receive(self, data: bytes) -> list[bytes]:
            sent = stage.worker(WORKER).receive(data)
            has_asked.set()
            return sent

    def ask_first(face: FrameReceiver) -> None:
        answers["first"] = face.receive(first)
        is_done.set()
        silent(face)

    def ask_second(face: FrameReceiver) -> None:
        assert has_asked.wait(60)
        answers["second"] = face.receive(second)
        assert is_done.wait(60)

    said = talk(Noticing(), stage, ask_first, ask_second)
    recipients = {who: [parse_frame(frame).recipient for frame in sent] for who, sent in answers.items()}
    masters = stage.terms.parents(WORKER)
    assert recipients["first"] == [masters[0]]
    assert said == []
    for frames in answers.values():
        for frame in frames:
            stage.party(parse_frame(frame).recipient).receive(frame)


def test_a_question_that_comes_too_early_is_answered_without_a_frame(
    stage: GroupStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_parents, "_KEPT_S", 0.2)
    monkeypatch.setattr(several_parents, "_POLL_S", 0.05)
    first, _ = asked(stage)
    got: list[list[bytes]] = []

    def ask(face: FrameReceiver) -> None:
        got.append(face.receive(first))
        got.append(face.receive(first))

    said = talk(stage.worker(WORKER), stage, ask, silent)
    assert got == [[], []]
    assert said == [f"waits for a question of {stage.terms.name(stage.terms.parents(WORKER)[1])}"]


def test_no_master_gets_an_answer_by_the_question_of_another_one(stage: GroupStage) -> None:
    """The other one may be trusted, and get what the worker sends raw."""
    first, second = asked(stage)
    worker = stage.worker(WORKER)
    assert worker.receive(first) == []
    assert len(worker.receive(second)) == 1  # so all answers are recorded, and told to who asks
    refused: list[str] = []

    def replay(face: FrameReceiver) -> None:
        with pytest.raises(MisroutedMessageError) as error:
            face.receive(second)
        refused.append(str(error.value))
        assert len(face.receive(first)) == 1

    talk(worker, stage, replay, silent)
    masters = stage.terms.parents(WORKER)
    assert refused == [f"a frame of party {masters[1]}, by {stage.terms.name(masters[0])}"]


class Early:
    """A worker that answers at the third time."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def receive(self, data: bytes) -> list[bytes]:
        self.asked.append(data)
        return [b"answer"] if len(self.asked) == 3 else []


def test_a_master_asks_again_until_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_again, "_PAUSE_S", 0.0)
    worker, said = Early(), list[str]()
    assert AskedAgain(worker, "device:0", said.append).receive(b"question") == [b"answer"]
    assert worker.asked == [b"question"] * 3
    assert said == ["device:0 waits until all of its masters have asked"]


def test_a_master_does_not_ask_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_again, "ANSWER_S", 0.0)
    with pytest.raises(RunError, match="device:0: has not been asked by all of its masters within an hour"):
        AskedAgain(Early(), "device:0", lambda sentence: None).receive(b"question")

"""Frames that are replayed, reordered, cut or forged are refused; a repeated question gets the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployed_parties import Stage, staged
from rehearsals import STAR, TREE

from sfumato.deployment.carrier import InProcess
from sfumato.deployment.messages import (
    HASH_BYTES,
    FrameKind,
    RoundPosition,
    encode_answer,
    encode_question,
    question_hash,
)
from sfumato.deployment.terms import DeploymentTerms
from sfumato.schedule.integer_grid import IntegerGrid
from sfumato.wire import errors
from sfumato.wire.frames import Frame, parse_frame, seal_frame
from sfumato.wire.keys import Identity


@pytest.fixture(name="star")
def fixture_star(tmp_path: Path) -> Iterator[Stage]:
    with staged(STAR, tmp_path) as stage:
        yield stage


def question(stage: Stage, number: int, *, aggregation: int = 0, fill: float = 0.0) -> bytes:
    model = np.full(stage.terms.parameters, fill, np.float32)
    payload = encode_question(RoundPosition(number, aggregation), model)
    frame = Frame(FrameKind.QUESTION, stage.terms.session, stage.terms.cloud, 0, payload)
    return seal_frame(frame, stage.identities[stage.terms.cloud])


def test_the_same_question_gets_the_same_bytes(star: Stage) -> None:
    (first,) = star.device(0).receive(question(star, 0))
    assert star.device(0).receive(question(star, 0)) == [first]
    star.restart(0)
    assert star.device(0).receive(question(star, 0)) == [first]


def test_noise_is_fresh_for_every_round(star: Stage) -> None:
    (first,) = star.device(0).receive(question(star, 0))
    (second,) = star.device(0).receive(question(star, 1))
    assert parse_frame(first).payload[40:] != parse_frame(second).payload[40:]


def test_another_question_about_the_same_round_gets_nothing(star: Stage) -> None:
    star.device(0).receive(question(star, 0))
    for _ in range(2):
        with pytest.raises(errors.DuplicateMessageError, match="round 1, aggregation 1: another question"):
            star.device(0).receive(question(star, 0, fill=1e-3))
        star.restart(0)


def test_a_round_that_lies_behind_or_ahead_gets_nothing(star: Stage) -> None:
    with pytest.raises(errors.OutOfOrderMessageError, match="round 1, aggregation 1 is next"):
        star.device(0).receive(question(star, 1))
    star.device(0).receive(question(star, 0))
    star.device(0).receive(question(star, 1))
    with pytest.raises(errors.ReplayedMessageError, match="lies behind"):
        star.device(0).receive(question(star, 0))
    star.device(0).receive(question(star, 2))
    with pytest.raises(errors.OutOfOrderMessageError, match="all answered"):
        star.device(0).receive(question(star, 3))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        (lambda data, _: data[:-1], errors.TruncatedMessageError),
        (lambda data, _: data[:20], errors.TruncatedMessageError),
        (lambda data, _: data + b"0", errors.MalformedMessageError),
        (lambda data, _: data[:200] + bytes([data[200] ^ 1]) + data[201:], errors.TamperedMessageError),
        (lambda data, _: data[:4] + b"\2" + data[5:], errors.UnsupportedVersionError),
    ],
)
def test_a_damaged_frame_is_refused_and_nothing_changes(star: Stage, changed, error) -> None:
    with pytest.raises(error):
        star.device(0).receive(changed(question(star, 0), star))
    assert star.memories[0].last(star.terms.session) is None
    assert len(star.device(0).receive(question(star, 0))) == 1


def test_a_frame_of_others_is_refused(star: Stage) -> None:
    payload = encode_question(RoundPosition(0, 0), np.zeros(star.terms.parameters, np.float32))
    terms = star.terms

    def sealed(session: bytes, sender: int, recipient: int, by: Identity, said: bytes = payload) -> bytes:
        return seal_frame(Frame(FrameKind.QUESTION, session, sender, recipient, said), by)

    cloud = star.identities[terms.cloud]
    for data, error in [
        (sealed(bytes(32), terms.cloud, 0, cloud), errors.ReplayedMessageError),
        (sealed(terms.session, 1, 0, star.identities[1]), errors.UnknownSenderError),
        (sealed(terms.session, terms.cloud, 0, Identity()), errors.TamperedMessageError),
        (sealed(terms.session, terms.cloud, 1, cloud), errors.MisroutedMessageError),
        (sealed(terms.session, terms.cloud, 0, cloud, payload[:-4]), errors.MalformedMessageError),
        (
            sealed(terms.session, terms.cloud, 0, cloud, payload[:-4] + b"\0\0\xc0\x7f"),
            errors.MalformedMessageError,
        ),
    ]:
        with pytest.raises(error):
            star.device(0).receive(data)
    assert star.memories[0].last(terms.session) is None


def test_an_answer_counts_once_and_in_its_own_round(star: Stage) -> None:
    cloud, model = star.cloud(), np.zeros(star.terms.parameters, np.float32)
    asked = cloud.ask(0, model)
    answers = [answer for number, data in enumerate(asked) for answer in star.device(number).receive(data)]
    cloud.receive(answers[0])
    with pytest.raises(errors.DuplicateMessageError):
        cloud.receive(answers[0])
    asked_for, huge = question_hash(RoundPosition(0, 0), model), 2**62
    for error, says, question, fill in [
        (errors.MalformedMessageError, "steps", asked_for, huge),
        (errors.ReplayedMessageError, "device:1: answers another question about round 1", bytes(32), 0),
    ]:
        payload = encode_answer(RoundPosition(0, 0), question, np.full(star.terms.parameters, fill, np.int64))
        frame = Frame(FrameKind.ANSWER, star.terms.session, 1, star.terms.cloud, payload)
        with pytest.raises(error, match=says):
            cloud.receive(seal_frame(frame, star.identities[1]))
    assert cloud.missing == [1, 2] and cloud.released is None  # noqa: PT018
    for answer in answers[1:]:
        cloud.receive(answer)
    total = sum(
        np.frombuffer(parse_frame(answer).payload, "<i8", offset=8 + HASH_BYTES) for answer in answers
    )
    assert cloud.released is not None
    assert np.array_equal(cloud.released, total)
    cloud.ask(1, model)
    with pytest.raises(errors.ReplayedMessageError, match="device:0: answers round 1"):
        cloud.receive(answers[0])


def test_a_device_that_starts_again_within_a_round_has_the_same_batches(tmp_path: Path) -> None:
    """Others would use a record in more steps of the round than the account counts."""
    with staged(TREE, tmp_path) as stage:
        batches = []
        for number in (0, 0, 1):
            device = stage.device(0)
            device._steps(RoundPosition(number, 1), np.zeros(stage.terms.parameters, np.float32), bytes(32))
            batches.append(device._batches[1].rows.tolist())
            stage.restart(0)
        assert batches[0] == batches[1] != batches[2]


def test_an_edge_that_starts_again_sends_the_same_bytes(tmp_path: Path) -> None:
    """It is killed after its own aggregation: noise that it told its devices is not drawn again."""
    with staged(TREE, tmp_path) as stage:
        terms, edge = stage.terms, stage.terms.edge(0)
        (asked, _) = stage.cloud().ask(0, np.zeros(terms.parameters, np.float32))
        told = [stage.edge(edge).receive(asked)]
        for _ in range(2):
            told.append([])
            for data in told[-2]:
                (answer,) = stage.device(parse_frame(data).recipient).receive(data)
                told[-1] += stage.edge(edge).receive(answer)
        stage.restart(edge)
        assert stage.edge(edge).receive(asked) == told[2]  # the answer to the cloud
        stage.forget_last(edge)
        stage.restart(edge)
        assert stage.edge(edge).receive(asked) == told[1]  # the second question for its devices
        stage.restart(0)
        again = [stage.device(parse_frame(data).recipient).receive(data)[0] for data in told[1]]
        outcomes = [stage.edge(edge).receive(answer) for answer in again]
        assert [len(frames) for frames in outcomes] == [0, 1]


def test_the_cloud_does_not_get_what_an_edge_told_its_devices(tmp_path: Path) -> None:
    with staged(TREE, tmp_path) as stage:
        terms, edge = stage.terms, stage.terms.edge(0)
        position, model = RoundPosition(0, 0), np.zeros(terms.parameters, np.float32)
        payload = encode_question(position, model)
        stage.memory(edge).record(
            terms.session, position, question_hash(position, model), b"its own aggregate"
        )
        frame = Frame(FrameKind.QUESTION, terms.session, terms.cloud, edge, payload)
        with pytest.raises(errors.OutOfOrderMessageError, match="is not the cloud's"):
            stage.edge(edge).receive(seal_frame(frame, stage.identities[terms.cloud]))


def test_an_edge_adds_no_sums_of_two_grids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(TREE, tmp_path) as stage:
        real = DeploymentTerms.grid

        def grid(self: DeploymentTerms, position: RoundPosition) -> IntegerGrid:
            found = real(self, position)
            finer = replace(found.grid, exponent=found.grid.exponent + position.aggregation)
            return replace(found, grid=finer)

        monkeypatch.setattr(DeploymentTerms, "grid", grid)
        with pytest.raises(errors.UnsafeTermsError, match="is on another grid than the sum of its round"):
            stage.play(np.zeros(stage.terms.parameters, np.float32))
        assert stage.cloud().released is None


def test_a_frame_for_nobody_is_refused(star: Stage) -> None:
    frame = Frame(FrameKind.QUESTION, star.terms.session, star.terms.cloud, 99, b"")
    with pytest.raises(errors.MisroutedMessageError, match="no such party"):
        InProcess({star.terms.cloud: star.cloud()}, {}).carry(
            [seal_frame(frame, star.identities[star.terms.cloud])]
        )


def test_whether_an_update_is_finite_is_not_told(star: Stage) -> None:
    """A model of the largest numbers makes the update infinite: the answer is noise."""
    model = np.full(star.terms.parameters, 3e38, np.float32)
    model[::2] *= -1
    (asked, *_) = star.cloud().ask(0, model)
    (answer,) = star.device(0).receive(asked)
    assert parse_frame(answer).kind == FrameKind.ANSWER

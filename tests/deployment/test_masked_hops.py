"""Secure aggregation over real parties: the model of `run`, sums only, and attempts that may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_parties import Stage, staged
from rehearsals import STAR, TREE, model_bytes, rehearsed, spec_of

from sfumato.deployment.masked_hops import masked_terms
from sfumato.deployment.messages import (
    FrameKind,
    IntArray,
    Model,
    RoundPosition,
    decode_masking,
    encode_masking,
    question_hash,
    steps_from_bytes,
)
from sfumato.secure_aggregation.messages import (
    MessageKind,
    decode_advertisement,
    decode_vector,
    encode_parties,
)
from sfumato.simulation.run import run
from sfumato.wire import errors
from sfumato.wire.frames import Frame, parse_frame, seal_frame
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import Identity, KeyPair, derive, session_entropy

pytestmark = pytest.mark.usefixtures("no_report")

MASKED_STAR = STAR | {"transport": {"devices_to_cloud": "secure-aggregation"}}
MASKED_EDGES = TREE | {
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "transport": {"devices_to_edge": "secure-aggregation"},
}
DRAWN = {"training": TREE["training"] | {"participation": {"kind": "poisson", "rate": 0.4}}}
BOTH_HOPS = {"transport": {"devices_to_edge": "secure-aggregation", "edge_to_cloud": "secure-aggregation"}}
HDP = (
    STAR
    | {
        "name": "hdp",
        "protocol": "hdp",
        "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 3},
    }
    | BOTH_HOPS
)


def placed(**placement: Any) -> dict[str, Any]:
    """HDP with noise where ``placement`` says."""
    return HDP | {"privacy": HDP["privacy"] | {"noise": {"multiplier": 1.1, "placement": placement}}}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(MASKED_STAR, id="star"),
        pytest.param(MASKED_EDGES, id="two levels, several aggregations a round"),
        pytest.param(MASKED_EDGES | DRAWN, id="two levels, drawn devices"),
        pytest.param(placed(device=0.5, edge=0.5), id="HDP, C3"),
        pytest.param(placed(device_fraction=0.67, cloud=True), id="HDP, C5"),
    ],
)
def test_the_model_is_that_of_run(document: dict[str, Any], tmp_path: Path) -> None:
    """Nothing of `run` is replaced: under masks it sends whole numbers too."""
    spec = spec_of(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.engine.local._TILE_BYTES", 1)
        expected = run(spec, out=tmp_path / "expected", device="cpu", progress=False)
    assert model_bytes(rehearsed(spec, tmp_path)) == model_bytes(expected.folder)


@pytest.fixture(name="star")
def fixture_star(tmp_path: Path) -> Iterator[Stage]:
    with staged(MASKED_STAR, tmp_path) as stage:
        yield stage


def recorded(stage: Stage, device: int, position: RoundPosition, model: Model) -> IntArray:
    """What a device has in its memory as its answer."""
    kept = stage.memory(device).answer(stage.terms.session, position, question_hash(position, model))
    assert kept is not None
    return steps_from_bytes(kept)


def test_an_aggregator_gets_masked_vectors_and_their_sum(star: Stage) -> None:
    terms, model = star.terms, np.zeros(star.terms.parameters, np.float32)
    released, carried = star.play(model)
    own = [recorded(star, device, RoundPosition(0, 0), model) for device in range(3)]
    assert np.array_equal(released, sum(own))
    frames = [parse_frame(data) for data in carried]
    dump = [frame for frame in frames if frame.recipient == terms.cloud]
    assert {frame.kind for frame in dump} == {FrameKind.MASKING}
    said = [parse_frame(decode_masking(frame.payload)[2]) for frame in dump]
    masked = [one for one in said if one.kind == MessageKind.MASKED]
    assert sorted(one.sender for one in masked) == [0, 1, 2]
    for one in masked:  # of 170 uniform words fewer than 5 are those of the message
        vector = decode_vector(one.payload, terms.parameters, 32)
        assert np.count_nonzero(vector == own[one.sender].astype(np.uint32)) < 5
    others = [one for one in said if one.kind != MessageKind.MASKED]
    assert max(len(one.payload) for one in others) < terms.parameters * 4


def advertised(carried: list[bytes]) -> list[tuple[bytes, int, tuple[bytes, ...]]]:
    """Of every child that began a session: the session, its place, and its public keys."""
    frames = [frame for data in carried if (frame := parse_frame(data)).kind == FrameKind.MASKING]
    said = [parse_frame(decode_masking(frame.payload)[2]) for frame in frames]
    return [
        (one.session, one.sender, astuple(decode_advertisement(one.payload)))
        for one in said
        if one.kind == MessageKind.ADVERTISE
    ]


def test_a_generator_that_repeats_itself_gives_no_mask_twice_and_none_away(
    star: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs of the same parties, whose generators say the same in every round: attempts are alike too.

    Whoever has a copy of the generator knows all that a child drew, but not the child's signing key.
    """
    (star.folder / "other").mkdir()
    other = replace(
        star, terms=replace(star.terms, label="other"), folder=star.folder / "other", memories={}, running={}
    )
    monkeypatch.setattr("os.urandom", bytes)
    model, found = np.zeros(star.terms.parameters, np.float32), []
    for stage in (star, other):
        for number in (0, 1):
            found += advertised(stage.play(model, number)[1])
    assert len(found) == 2 * 2 * 3
    assert len({key for _, _, keys in found for key in keys}) == 3 * len(found)
    for session, place, keys in found:
        for identity in (Identity(), star.identities[(place + 1) % 3]):
            guessed = session_entropy(bytes, identity, session, place)
            assert KeyPair(guessed(32)).public not in keys
        known = derive(bytes(32), session=session, purpose=b"entropy", context=place.to_bytes(4, "big"))
        assert KeyPair(KeyStream(known).take(32)).public not in keys
    for number in list(other.memories):
        other.restart(number)


def test_the_sum_is_of_everybody_or_of_nobody(star: Stage) -> None:
    terms = masked_terms(star.terms, star.terms.cloud, RoundPosition(0, 0), bytes(32), bytes(16))
    assert (terms.threshold, terms.share_threshold, terms.parties) == (3, 3, 3)
    assert terms.threat_model == "malicious"
    waiting = star.cloud().ask(0, np.zeros(star.terms.parameters, np.float32))
    while waiting:
        data = waiting.pop()
        recipient = parse_frame(data).recipient
        waiting += [] if recipient == 2 else star.party(recipient).receive(data)
    assert star.cloud().missing == [2]
    assert star.cloud().released is None


def test_a_list_of_survivors_without_somebody_is_refused(star: Stage) -> None:
    """A dishonest aggregator would learn one message as the difference of two sums."""
    waiting = star.cloud().ask(0, np.zeros(star.terms.parameters, np.float32))
    while waiting:
        data = waiting.pop(0)
        frame = parse_frame(data)
        if frame.kind == FrameKind.MASKING and frame.recipient == 0:
            position, attempt, message = decode_masking(frame.payload)
            inner = parse_frame(message)
            if inner.kind == MessageKind.SURVIVORS:
                break
        waiting += star.party(frame.recipient).receive(data)
    cloud = star.identities[star.terms.cloud]
    fewer = seal_frame(replace(inner, payload=encode_parties([0, 1])), cloud)
    payload = encode_masking(position, attempt, fewer)
    with pytest.raises(errors.BelowThresholdError):
        star.device(0).receive(seal_frame(replace(frame, payload=payload), cloud))


@pytest.mark.parametrize("restarted", [[0], [0, 1, 2], [3], [0, 3]])
@pytest.mark.parametrize("steps", [3, 8, 14, 20])
def test_a_session_that_ended_early_is_played_again_with_the_same_vectors(
    star: Stage, steps: int, restarted: list[int]
) -> None:
    """Killed are devices or the cloud, after some frames: in every phase of the session."""
    model, position = np.zeros(star.terms.parameters, np.float32), RoundPosition(0, 0)
    waiting = star.cloud().ask(0, model)
    for _ in range(steps):
        data = waiting.pop(0)
        waiting += star.party(parse_frame(data).recipient).receive(data)
    before = [recorded(star, device, position, model) for device in range(3)]
    for number in restarted:
        star.restart(number)
    released, _ = star.play(model)
    assert np.array_equal(released, sum(before))


def test_an_attempt_is_begun_once(star: Stage) -> None:
    (question, *_) = star.cloud().ask(0, np.zeros(star.terms.parameters, np.float32))
    star.device(0).receive(question)
    for _ in range(2):
        with pytest.raises(errors.RepeatedSessionError):
            star.device(0).receive(question)
        star.restart(0)


def test_messages_of_another_session_are_refused(star: Stage, tmp_path: Path) -> None:
    terms, model = star.terms, np.zeros(star.terms.parameters, np.float32)
    asked = star.cloud().ask(0, model)
    answers = [star.device(number).receive(data)[0] for number, data in enumerate(asked)]
    star.restart(terms.cloud)
    star.cloud().ask(0, model)
    with pytest.raises(errors.ReplayedMessageError, match="device:0: a message of another session"):
        star.cloud().receive(answers[0])
    payload = encode_masking(RoundPosition(0, 0), bytes(16), b"")
    frame = Frame(FrameKind.MASKING, terms.session, terms.cloud, 0, payload)
    with pytest.raises(errors.OutOfOrderMessageError, match="not under way"):
        star.device(0).receive(seal_frame(frame, star.identities[terms.cloud]))
    (tmp_path / "plain").mkdir()
    with staged(STAR, tmp_path / "plain") as plain:
        frame = replace(frame, session=plain.terms.session)
        with pytest.raises(errors.OutOfOrderMessageError, match="kind 3"):
            plain.device(0).receive(seal_frame(frame, plain.identities[terms.cloud]))


def test_a_message_under_another_name_is_refused(star: Stage) -> None:
    asked = star.cloud().ask(0, np.zeros(star.terms.parameters, np.float32))
    (answer,) = star.device(0).receive(asked[0])
    frame = replace(parse_frame(answer), sender=1)
    with pytest.raises(errors.MisroutedMessageError, match="device:1: a message of another party"):
        star.cloud().receive(seal_frame(frame, star.identities[1]))


def test_who_is_alone_answers_plainly(tmp_path: Path) -> None:
    uneven = MASKED_EDGES | {"topology": {"kind": "tree", "edges": 2, "devices_per_edge": [1, 3]}}
    with staged(uneven, tmp_path) as stage:
        assert not stage.terms.is_masked(stage.terms.edge(0))
        assert stage.terms.is_masked(stage.terms.edge(1))
        assert not stage.terms.is_masked(stage.terms.cloud)

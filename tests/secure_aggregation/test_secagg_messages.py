"""Every way to meddle with a message has a name; whoever is meddled with is as before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeatable_entropy import repeatable
from secagg_stage import COUNT, DOWN, LENGTH, UP, flip

from sfumato.secure_aggregation import messages
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.server import Phase
from sfumato.secure_aggregation.session import aggregate
from sfumato.wire import errors
from sfumato.wire.frames import (
    EVERYBODY,
    OVERHEAD,
    SERVER,
    VERSION,
    Frame,
    open_frame,
    parse_frame,
    seal_frame,
)
from sfumato.wire.keys import Identity


@pytest.mark.parametrize("kind", UP + DOWN)
def test_meddling_is_named_and_changes_nothing(stage, kind) -> None:
    at = stage(kind)
    good = at.sent[kind][0]
    other = stage(kind, label="other session").sent[kind][0]
    along = [*UP, MessageKind.ROSTER] if kind in UP else [*DOWN, MessageKind.UNMASK]
    later = along[along.index(kind) + 1]
    attacks = [
        (errors.TamperedMessageError, flip(good, len(good) - 70)),  # payload
        (errors.TamperedMessageError, flip(good, -1)),  # signature
        (errors.TamperedMessageError, flip(good, 6)),  # session
        (errors.TamperedMessageError, flip(good, 5)),  # kind
        (errors.TruncatedMessageError, good[:-1]),
        (errors.TruncatedMessageError, good[: OVERHEAD - 1]),
        (errors.TruncatedMessageError, b""),
        (errors.MalformedMessageError, good + b"\0"),
        (errors.MalformedMessageError, flip(good, 0)),
        (errors.UnsupportedVersionError, good[:4] + bytes([VERSION + 1]) + good[5:]),
        (errors.ReplayedMessageError, other),
        (errors.OutOfOrderMessageError, at.resigned(kind, b"", kind=later)),
        (errors.MisroutedMessageError, at.resigned(kind, parse_frame(good).payload, recipient=3)),
        (errors.UnknownSenderError, at.resigned(kind, parse_frame(good).payload, sender=77)),
        (
            errors.InconsistentSurvivorsError
            if kind is MessageKind.CONSENT
            else errors.MalformedMessageError,
            at.resigned(kind, parse_frame(good).payload + b"\0"),
        ),
    ]
    for error, data in attacks:
        with pytest.raises(error):
            at.deliver(kind, data)
    at.deliver(kind, good)  # still welcome
    with pytest.raises(errors.DuplicateMessageError):
        at.deliver(kind, good)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_changed_byte_gets_through(data) -> None:
    identity = Identity(repeatable(b"x"))
    good = seal_frame(Frame(3, b"s" * 32, 0, SERVER, b"payload"), identity)
    at, bits = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(1, 255))
    bad = good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :]
    with pytest.raises(errors.MessageError):
        open_frame(bad, session=b"s" * 32, keys={0: identity.public}, recipient=SERVER, expected=3)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_payload_decoders_take_any_bytes_or_name_what_is_wrong(payload) -> None:
    for decode in (
        messages.decode_advertisement,
        messages.decode_pair,
        messages.decode_blobs,
        messages.decode_boxes,
        messages.decode_parties,
        messages.decode_reveal,
        lambda data: messages.decode_vector(data, 3, 32),
    ):
        try:
            decode(payload)
        except errors.MessageError:
            continue


def test_parties_of_a_semi_honest_server_refuse_too(make_parties) -> None:
    parties = make_parties(COUNT)
    seen: list[tuple[int, bytes]] = []

    def listen(phase, party, upwards, data):
        if phase is Phase.UNMASK and not upwards:
            seen.append((party, data))
            other = seal_frame(
                Frame(
                    MessageKind.SURVIVORS,
                    parse_frame(data).session,
                    SERVER,
                    party,
                    messages.encode_parties([0, 1, 2, 3]),
                ),
                parties.server,
            )
            return [data, other]
        return [data]

    terms = parties.complete(4, 4, threat_model="semi-honest")
    vectors = {i: np.full(4, i, dtype=np.uint32) for i in range(COUNT)}
    outcome = aggregate(terms, parties.identities, parties.server, vectors, wire=listen)
    assert (outcome.total == 10).all()
    assert [type(error) for *_, error in outcome.rejected] == [errors.RevealRefusedError] * COUNT


@pytest.mark.parametrize("kind", ["tampered", "truncated", "duplicated", "silenced"])
def test_a_session_goes_on_without_whoever_is_meddled_with(make_parties, kind) -> None:
    parties = make_parties(COUNT)

    def wire(phase, party, upwards, data):
        if not (phase is Phase.MASK and upwards and party == 2):
            return [data]
        return {
            "tampered": [flip(data, 200)],
            "truncated": [data[:50]],
            "duplicated": [data, data],
            "silenced": [],
        }[kind]

    vectors = {i: np.full(LENGTH, 10**i, dtype=np.uint32) for i in range(COUNT)}
    outcome = aggregate(parties.complete(LENGTH, 4), parties.identities, parties.server, vectors, wire=wire)
    assert (outcome.total == (11111 if kind == "duplicated" else 11011)).all()
    assert len(outcome.rejected) == (kind != "silenced")


def test_vectors_must_fit_the_terms(stage) -> None:
    at = stage(MessageKind.DELIVERY)
    for vector in (np.zeros(LENGTH, dtype=np.uint64), np.zeros(LENGTH + 1, dtype=np.uint32)):
        with pytest.raises(ValueError, match="vector"):
            at.clients[0].masked_input(at.sent[MessageKind.DELIVERY][0], vector)
    assert parse_frame(at.sent[MessageKind.ADVERTISE][0]).recipient == EVERYBODY

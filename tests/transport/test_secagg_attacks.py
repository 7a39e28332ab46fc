"""Every way to meddle with a message has a name; whoever is meddled with is as before."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.transport import errors
from sfumato.transport.frames import (
    EVERYBODY,
    OVERHEAD,
    SERVER,
    VERSION,
    Frame,
    open_frame,
    parse_frame,
    seal_frame,
)
from sfumato.transport.secure_aggregation import messages
from sfumato.transport.secure_aggregation.client import Client
from sfumato.transport.secure_aggregation.keys import Identity, repeatable
from sfumato.transport.secure_aggregation.messages import Kind
from sfumato.transport.secure_aggregation.server import Phase, Server
from sfumato.transport.secure_aggregation.session import aggregate

COUNT, LENGTH = 5, 16
UP = [Kind.ADVERTISE, Kind.SHARES, Kind.MASKED, Kind.CONSENT, Kind.UNMASK]
DOWN = [Kind.ROSTER, Kind.DELIVERY, Kind.SURVIVORS, Kind.CONSENTS]


class Bench:
    """A session that can be stopped just before one kind of message is delivered."""

    def __init__(self, parties, label: str = "test", threshold: int = 4) -> None:
        self.parties = parties
        self.terms = parties.complete(LENGTH, threshold, label=label)
        entropy = parties.entropy(label)
        self.server = Server(self.terms, parties.server)
        self.clients = [Client(i, self.terms, parties.identities[i], entropy(i)) for i in range(COUNT)]
        self.sent: dict[Kind, dict[int, bytes]] = {}

    def answer(self, kind: Kind, party: int, data: bytes) -> bytes:
        client = self.clients[party]
        if kind is Kind.ROSTER:
            return client.share_keys(data)
        if kind is Kind.DELIVERY:
            return client.masked_input(data, np.full(LENGTH, party, dtype=np.uint32))
        return client.consent(data) if kind is Kind.SURVIVORS else client.unmask(data)

    def until(self, stop: Kind) -> Bench:
        """Play honestly; messages of ``stop`` are made and not delivered."""
        self.sent[Kind.ADVERTISE] = {i: client.advertise() for i, client in enumerate(self.clients)}
        for up, down in zip(UP, [*DOWN, None], strict=True):
            if stop is up:
                return self
            for data in self.sent[up].values():
                self.server.receive(data)
            outgoing = self.server.close()
            if down is None:
                return self
            self.sent[down] = outgoing
            if stop is down:
                return self
            following = UP[UP.index(up) + 1]
            self.sent[following] = {i: self.answer(down, i, data) for i, data in self.sent[down].items()}
        return self

    def deliver(self, kind: Kind, data: bytes, party: int = 0) -> None:
        if kind in UP:
            self.server.receive(data)
        else:
            self.answer(kind, party, data)

    def resigned(self, kind: Kind, payload: bytes, party: int = 0, /, **changes) -> bytes:
        """A message by its true sender, with another content."""
        frame = parse_frame(self.sent[kind][party])
        sender = self.parties.server if kind in DOWN else self.parties.identities[party]
        fields = {**frame.__dict__, "payload": payload, **changes}
        return seal_frame(Frame(**fields), sender)


@pytest.fixture(name="bench")
def fixture_bench(make_parties):
    return lambda stop, **other: Bench(make_parties(COUNT), **other).until(stop)


def flip(data: bytes, at: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("kind", UP + DOWN)
def test_meddling_is_named_and_changes_nothing(bench, make_parties, kind) -> None:
    stage = bench(kind)
    good = stage.sent[kind][0]
    other = Bench(make_parties(COUNT), label="other session").until(kind).sent[kind][0]
    along = [*UP, Kind.ROSTER] if kind in UP else [*DOWN, Kind.UNMASK]
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
        (errors.OutOfOrderMessageError, stage.resigned(kind, b"", kind=later)),
        (errors.MisroutedMessageError, stage.resigned(kind, parse_frame(good).payload, recipient=3)),
        (errors.UnknownSenderError, stage.resigned(kind, parse_frame(good).payload, sender=77)),
        (errors.MalformedMessageError, stage.resigned(kind, parse_frame(good).payload + b"\0"))
        if kind not in (Kind.CONSENT,)
        else (errors.TamperedMessageError, flip(good, -2)),
    ]
    for error, data in attacks:
        with pytest.raises(error):
            stage.deliver(kind, data)
    stage.deliver(kind, good)  # still welcome
    with pytest.raises(errors.DuplicateMessageError):
        stage.deliver(kind, good)


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


def test_messages_out_of_order_are_refused(bench) -> None:
    stage = bench(Kind.SURVIVORS)
    with pytest.raises(errors.OutOfOrderMessageError):
        stage.clients[0].unmask(stage.sent[Kind.SURVIVORS][0])
    with pytest.raises(errors.DuplicateMessageError):
        stage.clients[0].share_keys(stage.sent[Kind.ROSTER][0])
    early = bench(Kind.ROSTER)
    with pytest.raises(errors.OutOfOrderMessageError):
        early.clients[0].advertise()
    ahead = early.resigned(Kind.ROSTER, messages.encode_parties(range(COUNT)), kind=Kind.SURVIVORS)
    with pytest.raises(errors.OutOfOrderMessageError):
        early.clients[0].consent(ahead)


def test_the_server_cannot_swap_sealed_shares(bench) -> None:
    stage = bench(Kind.DELIVERY)
    boxes = messages.decode_boxes(parse_frame(stage.sent[Kind.DELIVERY][0]).payload)
    boxes[1], boxes[2] = boxes[2], boxes[1]
    with pytest.raises(errors.TamperedMessageError, match="share"):
        stage.deliver(Kind.DELIVERY, stage.resigned(Kind.DELIVERY, messages.encode_boxes(boxes)))


def test_the_server_cannot_put_its_own_keys_in(bench, make_parties) -> None:
    stage = bench(Kind.ROSTER)
    blobs = messages.decode_blobs(parse_frame(stage.sent[Kind.ROSTER][0]).payload)
    advert = parse_frame(blobs[0])
    forged = seal_frame(advert, make_parties(COUNT).server)
    with pytest.raises(errors.TamperedMessageError):
        stage.deliver(Kind.ROSTER, stage.resigned(Kind.ROSTER, messages.encode_blobs([forged, *blobs[1:]])))
    with pytest.raises(errors.DuplicateMessageError):
        stage.deliver(Kind.ROSTER, stage.resigned(Kind.ROSTER, messages.encode_blobs([blobs[0], *blobs])))


def test_a_repeated_public_key_is_refused(bench) -> None:
    stage = bench(Kind.ROSTER)
    blobs = messages.decode_blobs(parse_frame(stage.sent[Kind.ROSTER][0]).payload)
    copied = stage.resigned(Kind.ADVERTISE, parse_frame(blobs[1]).payload, 1)
    with pytest.raises(errors.MalformedMessageError, match="twice"):
        stage.deliver(Kind.ROSTER, stage.resigned(Kind.ROSTER, messages.encode_blobs([copied, *blobs[1:]])))


def test_no_party_gives_up_both_secrets(bench) -> None:
    """A second, other list of survivors would ask for the second secret of whoever is on only one of them."""
    stage = bench(Kind.SURVIVORS)
    client = stage.clients[0]
    client.consent(stage.sent[Kind.SURVIVORS][0])
    shorter = stage.resigned(Kind.SURVIVORS, messages.encode_parties([0, 1, 2, 3]))
    with pytest.raises(errors.RevealRefusedError, match="both secrets"):
        client.consent(shorter)
    stage = bench(Kind.UNMASK)  # after the reveal as well
    with pytest.raises(errors.RevealRefusedError, match="both secrets"):
        stage.clients[0].consent(stage.resigned(Kind.SURVIVORS, messages.encode_parties([0, 1, 2, 3])))
    with pytest.raises(errors.DuplicateMessageError):
        stage.clients[0].unmask(stage.sent[Kind.CONSENTS][0])
    for data in stage.sent[Kind.UNMASK].values():
        masks, seeds = messages.decode_reveal(parse_frame(data).payload)
        assert not masks.keys() & seeds.keys()


def test_the_honest_but_curious_variant_refuses_too(make_parties) -> None:
    parties = make_parties(COUNT)
    seen: list[tuple[int, bytes]] = []

    def listen(phase, party, upwards, data):
        if phase is Phase.UNMASK and not upwards:
            seen.append((party, data))
            other = seal_frame(
                Frame(
                    Kind.SURVIVORS,
                    parse_frame(data).session,
                    SERVER,
                    party,
                    messages.encode_parties([0, 1, 2, 3]),
                ),
                parties.server,
            )
            return [data, other]
        return [data]

    terms = parties.complete(4, 4, server="honest-but-curious")
    vectors = {i: np.full(4, i, dtype=np.uint32) for i in range(COUNT)}
    outcome = aggregate(terms, parties.identities, parties.server, vectors, wire=listen)
    assert (outcome.total == 10).all()
    assert [type(error) for *_, error in outcome.rejected] == [errors.RevealRefusedError] * COUNT


def test_lists_of_survivors_that_cannot_be(bench) -> None:
    stage = bench(Kind.SURVIVORS)
    lists = [
        ([1, 2, 3, 4], errors.InconsistentSurvivorsError, "counted as dropped out"),
        ([0, 1, 2], errors.BelowThresholdError, "3 survivors"),
        ([0, 1, 2, 3, 9], errors.MalformedMessageError, "never there"),
    ]
    for parties, error, match in lists:
        with pytest.raises(error, match=match):
            stage.deliver(Kind.SURVIVORS, stage.resigned(Kind.SURVIVORS, messages.encode_parties(parties)))
    with pytest.raises(errors.MalformedMessageError, match="ascend"):
        stage.deliver(Kind.SURVIVORS, stage.resigned(Kind.SURVIVORS, struct.pack(">III", 2, 1, 1)))


def test_a_server_that_shows_different_lists_is_found_out(bench) -> None:
    stage = bench(Kind.SURVIVORS)
    shorter = messages.encode_parties([0, 1, 2, 3])
    signed = {i: stage.answer(Kind.SURVIVORS, i, stage.sent[Kind.SURVIVORS][i]) for i in (2, 3, 4)}
    signed |= {i: stage.answer(Kind.SURVIVORS, i, stage.resigned(Kind.SURVIVORS, shorter, i)) for i in (0, 1)}

    def consents(blobs):
        frame = Frame(Kind.CONSENTS, stage.terms.session, SERVER, 0, messages.encode_blobs(list(blobs)))
        return seal_frame(frame, stage.parties.server)

    with pytest.raises(errors.InconsistentSurvivorsError, match="another list"):
        stage.clients[0].unmask(consents([signed[0], signed[1], signed[2], signed[3]]))
    with pytest.raises(errors.BelowThresholdError, match="2 survivors signed"):
        stage.clients[0].unmask(consents([signed[0], signed[1]]))
    with pytest.raises(errors.DuplicateMessageError):
        stage.clients[0].unmask(consents([signed[0]] * 4))


def test_reveals_of_too_much_or_of_wrong_shares_are_refused(bench) -> None:
    stage = bench(Kind.UNMASK)
    masks, seeds = messages.decode_reveal(parse_frame(stage.sent[Kind.UNMASK][0]).payload)
    with pytest.raises(errors.MalformedMessageError, match="exactly the shares"):
        stage.deliver(Kind.UNMASK, stage.resigned(Kind.UNMASK, messages.encode_reveal(masks, {0: seeds[0]})))
    with pytest.raises(errors.MalformedMessageError, match="both secrets"):
        stage.deliver(Kind.UNMASK, stage.resigned(Kind.UNMASK, messages.encode_reveal({1: 5}, seeds)))
    wrong = messages.encode_reveal(masks, {**seeds, 3: seeds[3] ^ 1})
    stage.deliver(Kind.UNMASK, stage.resigned(Kind.UNMASK, wrong))
    for party in range(1, COUNT):
        stage.deliver(Kind.UNMASK, stage.sent[Kind.UNMASK][party])
    with pytest.raises(errors.InconsistentSharesError, match="party 3"):
        stage.server.close()


def test_an_identity_joins_a_session_once(make_parties) -> None:
    parties = make_parties(COUNT)
    terms = parties.complete(LENGTH, 4)
    Client(0, terms, parties.identities[0])
    with pytest.raises(errors.ReplayedMessageError, match="already"):
        Client(0, terms, parties.identities[0])
    with pytest.raises(ValueError, match="party 1"):
        Client(1, terms, parties.identities[0])


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


def test_vectors_must_fit_the_terms(bench) -> None:
    stage = bench(Kind.DELIVERY)
    for vector in (np.zeros(LENGTH, dtype=np.uint64), np.zeros(LENGTH + 1, dtype=np.uint32)):
        with pytest.raises(ValueError, match="vector"):
            stage.clients[0].masked_input(stage.sent[Kind.DELIVERY][0], vector)
    assert parse_frame(stage.sent[Kind.ADVERTISE][0]).recipient == EVERYBODY

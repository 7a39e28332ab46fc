"""Active attacks of parties and outsiders on a session, refused by name; every function is one attack.

The server refuses what they send and goes on without them; a wrong share ends the session, by name of its
owner. A function ends with the step that must be refused, as in test_secagg_attacks.py.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from secagg_stage import COUNT, LENGTH, table
from transport_parties import other_encodings

from sfumato.secure_aggregation import messages
from sfumato.secure_aggregation.client import survivors_digest
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY, SERVER, parse_frame, seal_frame

ATTACKS, refused = table()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_refused_by_name(attack, stage) -> None:
    with pytest.raises(errors.TransportError, match=attack.match) as caught:
        attack.play(stage)
    assert type(caught.value) is attack.error


def test_there_are_enough_attacks_and_none_is_a_copy() -> None:
    assert len({(attack.error, attack.match) for attack in ATTACKS}) >= 15


@refused(errors.TamperedMessageError, "signature")
def a_vector_in_somebody_elses_name(stage):
    at = stage(MessageKind.MASKED)
    frame = dataclasses.replace(parse_frame(at.sent[MessageKind.MASKED][2]), sender=1)
    at.server.receive(seal_frame(frame, at.parties.identities[2]))


@refused(errors.ReplayedMessageError, "a message of session")
def a_vector_of_another_session(stage):
    at, before = stage(MessageKind.MASKED), stage(MessageKind.MASKED, label="round 0")
    at.server.receive(before.sent[MessageKind.MASKED][1])


@refused(errors.OutOfOrderMessageError, "kind 5; expected kind 7")
def a_vector_after_the_list_of_survivors(stage):
    at = stage(MessageKind.SURVIVORS, {MessageKind.MASKED: [4]})
    late = at.clients[4].masked_input(at.sent[MessageKind.DELIVERY][4], np.zeros(LENGTH, dtype=np.uint32))
    at.server.receive(late)


@refused(errors.OutOfOrderMessageError, "party 4 dropped out before")
def come_back_after_a_dropout(stage):
    at = stage(MessageKind.MASKED, {MessageKind.SHARES: [4]})
    at.server.receive(at.by_party(MessageKind.MASKED, bytes(4 * LENGTH), 4, SERVER))


@refused(errors.MalformedMessageError, "60 bytes for 16 elements of 32 bits")
def a_vector_of_another_length(stage):
    at = stage(MessageKind.MASKED)
    at.server.receive(at.resigned(MessageKind.MASKED, bytes(4 * (LENGTH - 1))))


@refused(errors.MalformedMessageError, "128 bytes for 16 elements of 32 bits")
def a_vector_of_another_ring(stage):
    at = stage(MessageKind.MASKED)
    at.server.receive(at.resigned(MessageKind.MASKED, bytes(8 * LENGTH)))


@refused(errors.TruncatedMessageError, "bytes of payload; the header says")
def a_truncated_frame(stage):
    at = stage(MessageKind.MASKED)
    at.server.receive(at.sent[MessageKind.MASKED][0][:-10])


@refused(errors.MalformedMessageError, "1000000 bytes after the end of the message")
def an_oversized_frame(stage):
    at = stage(MessageKind.MASKED)
    at.server.receive(at.sent[MessageKind.MASKED][0] + bytes(1_000_000))


@refused(errors.MalformedMessageError, "shares are not for exactly its neighbours")
def shares_for_some_neighbours_only(stage):
    at = stage(MessageKind.SHARES)
    boxes = messages.decode_boxes(at.payload(MessageKind.SHARES))
    del boxes[3]
    at.server.receive(at.resigned(MessageKind.SHARES, messages.encode_boxes(boxes)))


@refused(errors.MalformedMessageError, "not a point of X25519")
def a_useless_key_that_would_stop_all_others(stage):
    at = stage(MessageKind.ADVERTISE)
    own = messages.decode_advertisement(at.payload(MessageKind.ADVERTISE))
    weak = dataclasses.replace(own, sealing=bytes(32))
    at.server.receive(at.resigned(MessageKind.ADVERTISE, weak.encode()))


@refused(errors.MalformedMessageError, "a public key was advertised twice")
def a_copied_key_that_would_stop_all_others(stage):
    at = stage(MessageKind.ADVERTISE)
    at.server.receive(at.sent[MessageKind.ADVERTISE][0])
    at.server.receive(at.resigned(MessageKind.ADVERTISE, at.payload(MessageKind.ADVERTISE, 0), 1))


def other_bytes_for_a_key(at, number):
    """The keys of party 0, the sealing key in other bytes, signed by party 1."""
    own = messages.decode_advertisement(at.payload(MessageKind.ADVERTISE, 0))
    fresh = messages.decode_advertisement(at.payload(MessageKind.ADVERTISE, 1))
    same = dataclasses.replace(fresh, sealing=other_encodings(own.sealing)[number])
    at.server.receive(at.sent[MessageKind.ADVERTISE][0])
    at.server.receive(at.resigned(MessageKind.ADVERTISE, same.encode(), 1))


@refused(errors.MalformedMessageError, "a public key was advertised twice")
def a_copied_key_with_bit_255(stage):
    other_bytes_for_a_key(stage(MessageKind.ADVERTISE), 0)


@refused(errors.MalformedMessageError, "a public key was advertised twice")
def a_copied_key_plus_a_point_of_order_two(stage):
    other_bytes_for_a_key(stage(MessageKind.ADVERTISE), 1)


@refused(errors.InconsistentSurvivorsError, "party 4 signed another list")
def a_false_consent_that_would_stop_all_others(stage):
    at = stage(MessageKind.CONSENT)
    false = survivors_digest(at.terms.session, [0, 1, 2, 4])
    at.server.receive(at.by_party(MessageKind.CONSENT, false, 4, EVERYBODY))


def reveal(at, mask_shares=(), seed_shares=(), drop=()):
    """Party 0's reveal with entries changed or left out."""
    masks, seeds = messages.decode_reveal(at.payload(MessageKind.UNMASK))
    masks, seeds = {**masks, **dict(mask_shares)}, {**seeds, **dict(seed_shares)}
    kept = {j: share for j, share in seeds.items() if j not in drop}
    return at.resigned(MessageKind.UNMASK, messages.encode_reveal(masks, kept))


@refused(errors.MalformedMessageError, "both secrets of one party in a message")
def give_up_both_secrets(stage):
    at = stage(MessageKind.UNMASK)
    at.server.receive(reveal(at, mask_shares={1: 5}))


@refused(errors.MalformedMessageError, "not exactly the shares asked for")
def keep_a_share_back(stage):
    at = stage(MessageKind.UNMASK)
    at.server.receive(reveal(at, drop=[3]))


def finish(at, first):
    at.server.receive(first)
    for i in range(1, COUNT):
        at.server.receive(at.sent[MessageKind.UNMASK][i])
    at.server.close()


@refused(errors.InconsistentSharesError, "party 3's seed")
def give_up_a_wrong_share(stage):
    at = stage(MessageKind.UNMASK)
    wrong = messages.decode_reveal(at.payload(MessageKind.UNMASK))[1][3] ^ 1
    finish(at, reveal(at, seed_shares={3: wrong}))


@refused(errors.InconsistentSharesError, "party 1's seed")
def swap_two_shares(stage):
    at = stage(MessageKind.UNMASK)
    seeds = messages.decode_reveal(at.payload(MessageKind.UNMASK))[1]
    finish(at, reveal(at, seed_shares={1: seeds[2], 2: seeds[1]}))


@refused(errors.InconsistentSharesError, "party 4's masking key")
def give_up_a_wrong_masking_share(stage):
    at = stage(MessageKind.UNMASK, {MessageKind.MASKED: [4]})
    masks, _ = messages.decode_reveal(at.payload(MessageKind.UNMASK))
    at.server.receive(reveal(at, mask_shares={4: masks[4] ^ 1}))
    for i in (1, 2, 3):
        at.server.receive(at.sent[MessageKind.UNMASK][i])
    at.server.close()

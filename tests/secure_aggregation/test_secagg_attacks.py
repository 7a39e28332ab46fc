"""Active attacks of a malicious server on the parties, refused by name; every function is one attack.

A function ends with the step that must be refused. ``stage(KIND)`` is a session of five parties, threshold 4,
stopped just before the messages of that kind are delivered.
"""

from __future__ import annotations

import dataclasses
import struct

import pytest
from repeatable_entropy import repeatable
from secagg_stage import LENGTH, flip, table
from transport_parties import other_encodings

from sfumato.secure_aggregation import messages
from sfumato.secure_aggregation.client import Client
from sfumato.secure_aggregation.messages import Advertisement, MessageKind
from sfumato.wire import errors
from sfumato.wire.frames import parse_frame, seal_frame
from sfumato.wire.keys import Identity

ATTACKS, refused = table()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_refused_by_name(attack, stage) -> None:
    with pytest.raises(errors.TransportError, match=attack.match) as caught:
        attack.play(stage)
    assert type(caught.value) is attack.error


def test_there_are_enough_attacks_and_none_is_a_copy() -> None:
    assert len({(attack.error, attack.match) for attack in ATTACKS}) >= 25


# The server shows parties different things, or lies about who dropped out.


@refused(errors.InconsistentSurvivorsError, "party 2 signed another list")
def two_lists_of_survivors(stage):
    at = stage(MessageKind.SURVIVORS)
    signed = [at.clients[i].consent(at.survivors(range(5), i)) for i in (2, 3, 4)]
    signed.append(at.clients[0].consent(at.survivors([0, 1, 2, 3])))
    at.clients[0].unmask(at.from_server(MessageKind.CONSENTS, messages.encode_blobs(signed)))


@refused(errors.BelowThresholdError, "2 survivors signed the list; 4 needed")
def two_lists_with_the_other_half_left_out(stage):
    at = stage(MessageKind.SURVIVORS)
    signed = [at.clients[i].consent(at.survivors([0, 1, 2, 3], i)) for i in (0, 1)]
    at.clients[0].unmask(at.from_server(MessageKind.CONSENTS, messages.encode_blobs(signed)))


@refused(errors.DuplicateMessageError, "second message of kind 7 from party 0")
def one_consent_counted_four_times(stage):
    at = stage(MessageKind.SURVIVORS)
    signed = at.clients[0].consent(at.sent[MessageKind.SURVIVORS][0])
    at.clients[0].unmask(at.from_server(MessageKind.CONSENTS, messages.encode_blobs([signed] * 4)))


@refused(errors.TamperedMessageError, "signature")
def forged_consents(stage):
    at = stage(MessageKind.CONSENTS)
    forged = [seal_frame(parse_frame(at.sent[MessageKind.CONSENT][i]), at.parties.server) for i in range(4)]
    at.deliver(MessageKind.CONSENTS, at.from_server(MessageKind.CONSENTS, messages.encode_blobs(forged)))


@refused(errors.RevealRefusedError, "both secrets")
def both_shares_of_one_party(stage):
    """4's seed by the first list, and its masking key by the second."""
    at = stage(MessageKind.CONSENTS)
    at.deliver(MessageKind.SURVIVORS, at.survivors([0, 1, 2, 3]))


@refused(errors.RevealRefusedError, "both secrets")
def resurrect_a_dropped_party_after_the_reveal(stage):
    """4's masking key is out; its vector comes late, and now its seed is asked for."""
    at = stage(MessageKind.UNMASK, {MessageKind.MASKED: [4]})
    at.deliver(MessageKind.SURVIVORS, at.survivors(range(5)))


@refused(errors.InconsistentSurvivorsError, "counted as dropped out, but here")
def lie_to_a_party_about_its_own_dropout(stage):
    at = stage(MessageKind.SURVIVORS)
    at.deliver(MessageKind.SURVIVORS, at.survivors([1, 2, 3, 4]))


@refused(errors.InconsistentSurvivorsError, "4 survived but its shares never came")
def withhold_shares_of_a_survivor(stage):
    """Party 0 would mask without 4, and vouch for a list with it."""
    at = stage(MessageKind.DELIVERY)
    boxes = messages.decode_boxes(at.payload(MessageKind.DELIVERY))
    del boxes[4]
    at.deliver(MessageKind.DELIVERY, at.from_server(MessageKind.DELIVERY, messages.encode_boxes(boxes)))
    at.deliver(MessageKind.SURVIVORS, at.survivors(range(5)))


@refused(errors.BelowThresholdError, "3 survivors; 4 needed")
def sum_of_too_few(stage):
    at = stage(MessageKind.SURVIVORS)
    at.deliver(MessageKind.SURVIVORS, at.survivors([0, 1, 2]))


@refused(errors.MalformedMessageError, "party 9 survived, who was never there")
def survivors_out_of_nowhere(stage):
    at = stage(MessageKind.SURVIVORS)
    at.deliver(MessageKind.SURVIVORS, at.survivors([0, 1, 2, 9]))


@refused(errors.MalformedMessageError, "does not ascend")
def a_survivor_counted_twice(stage):
    at = stage(MessageKind.SURVIVORS)
    twice = struct.pack(">IIIII", 4, 0, 1, 2, 2)
    at.deliver(MessageKind.SURVIVORS, at.from_server(MessageKind.SURVIVORS, twice))


@refused(errors.BelowThresholdError, "party 0: 3 of its neighbourhood are there; 4 needed")
def a_roster_that_isolates_a_party(stage):
    at = stage(MessageKind.ROSTER)
    few = messages.decode_blobs(at.payload(MessageKind.ROSTER))[2:]
    at.deliver(MessageKind.ROSTER, at.from_server(MessageKind.ROSTER, messages.encode_blobs(few)))


@refused(errors.BelowThresholdError, "party 0: 2 of its neighbourhood are there; 4 needed")
def a_delivery_that_isolates_a_party(stage):
    at = stage(MessageKind.DELIVERY)
    boxes = messages.decode_boxes(at.payload(MessageKind.DELIVERY))
    at.deliver(
        MessageKind.DELIVERY, at.from_server(MessageKind.DELIVERY, messages.encode_boxes({1: boxes[1]}))
    )


# The server plays phases twice, or in another order.


@refused(errors.DuplicateMessageError, "second message of kind 4")
def mask_the_vector_twice_with_different_neighbours(stage):
    """The difference of the two would be a pairwise mask."""
    at = stage(MessageKind.MASKED)
    boxes = messages.decode_boxes(at.payload(MessageKind.DELIVERY))
    del boxes[4]
    at.deliver(MessageKind.DELIVERY, at.from_server(MessageKind.DELIVERY, messages.encode_boxes(boxes)))


@refused(errors.DuplicateMessageError, "second message of kind 2")
def share_keys_twice(stage):
    at = stage(MessageKind.SHARES)
    at.deliver(MessageKind.ROSTER, at.sent[MessageKind.ROSTER][0])


@refused(errors.DuplicateMessageError, "second message of kind 8")
def unmask_twice(stage):
    at = stage(MessageKind.UNMASK)
    at.deliver(MessageKind.CONSENTS, at.sent[MessageKind.CONSENTS][0])


@refused(errors.OutOfOrderMessageError, "kind 6; expected kind 8")
def skip_the_consents(stage):
    at = stage(MessageKind.SURVIVORS)
    at.clients[0].unmask(at.sent[MessageKind.SURVIVORS][0])


@refused(errors.OutOfOrderMessageError, "kind 6; this party is elsewhere")
def ask_for_survivors_before_masking(stage):
    at = stage(MessageKind.ROSTER)
    at.deliver(MessageKind.SURVIVORS, at.survivors(range(5)))


@refused(errors.OutOfOrderMessageError, "advertised once")
def draw_new_keys_in_a_running_session(stage):
    stage(MessageKind.ROSTER).clients[0].advertise()


# Keys: the man in the middle.


def roster(at, party, advert):
    blobs = messages.decode_blobs(at.payload(MessageKind.ROSTER))
    blobs[party - 1] = advert
    return at.from_server(MessageKind.ROSTER, messages.encode_blobs(blobs))


@refused(errors.TamperedMessageError, "signature")
def substitute_keys(stage):
    """The server's own keys under party 1's name."""
    at = stage(MessageKind.ROSTER)
    mine = Advertisement(bytes([9]) * 32, bytes([10]) * 32, bytes(32)).encode()
    frame = dataclasses.replace(parse_frame(at.sent[MessageKind.ADVERTISE][1]), payload=mine)
    at.deliver(MessageKind.ROSTER, roster(at, 1, seal_frame(frame, at.parties.server)))


@refused(errors.TamperedMessageError, "signature")
def keys_without_a_signature(stage):
    at = stage(MessageKind.ROSTER)
    at.deliver(MessageKind.ROSTER, roster(at, 1, at.sent[MessageKind.ADVERTISE][1][:-64] + bytes(64)))


@refused(errors.UnknownSenderError, "party 77")
def a_party_that_is_not_enrolled(stage):
    at = stage(MessageKind.ROSTER)
    sybil = Identity(repeatable(b"sybil"))
    frame = dataclasses.replace(parse_frame(at.sent[MessageKind.ADVERTISE][1]), sender=77)
    at.deliver(MessageKind.ROSTER, roster(at, 1, seal_frame(frame, sybil)))


@refused(errors.ReplayedMessageError, "a message of session")
def keys_of_another_round(stage):
    """Whose secrets were revealed then."""
    at, before = stage(MessageKind.ROSTER), stage(MessageKind.ROSTER, label="round 0")
    at.deliver(MessageKind.ROSTER, roster(at, 1, before.sent[MessageKind.ADVERTISE][1]))


@refused(errors.MalformedMessageError, "a public key was advertised twice")
def keys_copied_from_another_party(stage):
    at = stage(MessageKind.ROSTER)
    copied = at.resigned(MessageKind.ADVERTISE, at.payload(MessageKind.ADVERTISE, 2), 1)
    at.deliver(MessageKind.ROSTER, roster(at, 1, copied))


@refused(errors.MalformedMessageError, "a public key was advertised twice")
def a_key_copied_in_other_bytes(stage):
    at = stage(MessageKind.ROSTER)
    own = messages.decode_advertisement(at.payload(MessageKind.ADVERTISE, 1))
    copied = messages.decode_advertisement(at.payload(MessageKind.ADVERTISE, 2)).masking
    same = dataclasses.replace(own, masking=other_encodings(copied)[0])
    at.deliver(MessageKind.ROSTER, roster(at, 1, at.resigned(MessageKind.ADVERTISE, same.encode(), 1)))


@refused(errors.MalformedMessageError, "not a point of X25519")
def a_masking_key_of_small_order(stage):
    """Every mask with it would be public. Named before a vector is masked."""
    at = stage(MessageKind.ROSTER)
    own = messages.decode_advertisement(at.payload(MessageKind.ADVERTISE, 1))
    weak = dataclasses.replace(own, masking=bytes(32))
    at.deliver(MessageKind.ROSTER, roster(at, 1, at.resigned(MessageKind.ADVERTISE, weak.encode(), 1)))


@refused(errors.DuplicateMessageError, "second message of kind 1 from party 2")
def one_party_twice_in_the_roster(stage):
    at = stage(MessageKind.ROSTER)
    at.deliver(MessageKind.ROSTER, roster(at, 1, at.sent[MessageKind.ADVERTISE][2]))


# Sealed shares.


def delivery(at, **boxes):
    held = messages.decode_boxes(at.payload(MessageKind.DELIVERY))
    held |= {int(name[1:]): box for name, box in boxes.items()}
    return at.from_server(MessageKind.DELIVERY, messages.encode_boxes(held))


def box_of(at, sender, recipient):
    return messages.decode_boxes(at.payload(MessageKind.SHARES, sender))[recipient]


@refused(errors.TamperedMessageError, "sealed share")
def swap_the_shares_of_two_senders(stage):
    at = stage(MessageKind.DELIVERY)
    at.deliver(MessageKind.DELIVERY, delivery(at, p1=box_of(at, 2, 0), p2=box_of(at, 1, 0)))


@refused(errors.TamperedMessageError, "sealed share")
def a_share_for_somebody_else(stage):
    at = stage(MessageKind.DELIVERY)
    at.deliver(MessageKind.DELIVERY, delivery(at, p1=box_of(at, 1, 3)))


@refused(errors.TamperedMessageError, "sealed share")
def a_share_of_another_session(stage):
    at, before = stage(MessageKind.DELIVERY), stage(MessageKind.DELIVERY, label="round 0")
    at.deliver(MessageKind.DELIVERY, delivery(at, p1=box_of(before, 1, 0)))


@refused(errors.TamperedMessageError, "sealed share")
def a_changed_ciphertext(stage):
    at = stage(MessageKind.DELIVERY)
    at.deliver(MessageKind.DELIVERY, delivery(at, p1=flip(box_of(at, 1, 0), 40)))


@refused(errors.TamperedMessageError, "sealed share")
def a_partys_own_box_as_if_it_came_back(stage):
    """Both directions of a pair agree on one secret: the direction is part of the key."""
    at = stage(MessageKind.DELIVERY)
    at.deliver(MessageKind.DELIVERY, delivery(at, p1=box_of(at, 0, 1)))


@refused(errors.MalformedMessageError, "shares from party 0, whose keys are unknown")
def a_partys_own_box_sent_back(stage):
    at = stage(MessageKind.DELIVERY)
    at.deliver(MessageKind.DELIVERY, delivery(at, p0=box_of(at, 0, 1)))


# Terms.


@refused(errors.ChangedTermsError, "label 'test' already, with other terms")
def lower_the_threshold(stage):
    """The same round once more, under terms with a lower threshold."""
    at = stage(MessageKind.UNMASK)
    lower = at.parties.complete(LENGTH, 3)
    Client(0, lower, at.parties.identities[0])


@refused(errors.ChangedTermsError, "label 'test' already, with other terms")
def leave_one_party_out_and_subtract(stage):
    """The same round once more without party 4: the difference of the sums would be its vector."""
    at = stage(MessageKind.UNMASK)
    fewer = dataclasses.replace(
        at.terms, public_keys=at.terms.public_keys[:4], degree=3, threshold=3, share_threshold=3
    )
    Client(0, fewer, at.parties.identities[0])


@refused(errors.RepeatedSessionError, "took part in it already")
def the_same_session_again(stage):
    at = stage(MessageKind.UNMASK)
    Client(0, at.terms, at.parties.identities[0])


@refused(errors.UnsafeTermsError, "degree: got 2; a malicious server needs the complete graph")
def shrink_the_graph(stage):
    at = stage(MessageKind.ADVERTISE)
    dataclasses.replace(at.terms, degree=2, share_threshold=3)


@refused(errors.UnsafeTermsError, "threshold: got 3; must be at least 4")
def a_threshold_that_allows_two_lists(stage):
    stage(MessageKind.ADVERTISE).parties.complete(LENGTH, 3, colluders=1)


@refused(errors.UnsafeTermsError, "leave fewer than two others")
def a_sum_with_a_single_honest_party(stage):
    stage(MessageKind.ADVERTISE).parties.complete(LENGTH, 4, colluders=3)


@refused(errors.UnsafeTermsError, "nobody counts twice")
def one_party_enrolled_twice(stage):
    terms = stage(MessageKind.ADVERTISE).terms
    dataclasses.replace(terms, public_keys=(*terms.public_keys[:4], terms.public_keys[0]))

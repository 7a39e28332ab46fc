"""Active attacks on elections. Each is refused by name; every function is one attack.

A function ends with the step that must be refused. ``zone(KIND)`` is an election of ten parties, three of
which may collude, stopped just before the posts of that phase are made public.
"""

from __future__ import annotations

import dataclasses

import pytest
from election_stage import Zone
from repeatable_entropy import repeatable
from secagg_stage import table
from transport_parties import other_encodings

from sfumato.election.commitments import deal, nonce_hash, share_hash
from sfumato.election.messages import Commitment, ElectionMessageKind
from sfumato.election.party import Candidate
from sfumato.election.reading import board_digest
from sfumato.election.terms import ElectionTerms
from sfumato.election.transcript import verify_transcript
from sfumato.secure_aggregation.messages import encode_shares
from sfumato.wire import errors
from sfumato.wire.frames import parse_frame, seal_frame
from sfumato.wire.keys import Identity

ATTACKS, refused = table()


def zone(stop, **other):
    return Zone(**other).until(stop)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_refused_by_name(attack) -> None:
    with pytest.raises(errors.TransportError, match=attack.match) as caught:
        attack.play(zone)
    assert type(caught.value) is attack.error


def test_there_are_enough_attacks_and_none_is_a_copy() -> None:
    assert len({(attack.error, attack.match) for attack in ATTACKS}) >= 20


# A party posts what, or when, it should not: the board refuses.


@refused(errors.OutOfOrderMessageError, "kind 33; expected kind 34")
def commit_late(zone):
    """After the commitments of all others are there."""
    at = zone(ElectionMessageKind.COMMIT)
    late = at.made[ElectionMessageKind.COMMIT].pop(0)
    for data in at.made[ElectionMessageKind.COMMIT].values():
        at.board.post(data)
    at.board.close()
    at.board.post(late)


@refused(errors.OutOfOrderMessageError, "kind 37; expected kind 33")
def reveal_before_anybody_committed(zone):
    at = zone(ElectionMessageKind.COMMIT)
    at.board.post(at.signed(ElectionMessageKind.REVEAL, bytes(32), 0))


@refused(errors.OutOfOrderMessageError, "the election is over")
def post_after_the_end(zone):
    at = zone(None)
    at.board.post(at.made[ElectionMessageKind.REVEAL][0])


@refused(errors.DuplicateMessageError, "second message of kind 33 from party 0")
def commit_twice(zone):
    """Grinding: another nonce once the others' commitments are there."""
    at = zone(ElectionMessageKind.COMMIT)
    for data in at.made[ElectionMessageKind.COMMIT].values():
        at.board.post(data)
    dealt = deal(at.terms, 0, b"n" * 32, range(1, 10))
    boxes = {h: (share_hash(at.terms, 0, h, dealt[h]), at.commitment(0).shares[h][1]) for h in dealt}
    second = Commitment(nonce_hash(at.terms, 0, b"n" * 32), boxes)
    at.board.post(at.signed(ElectionMessageKind.COMMIT, second.encode(), 0))


@refused(errors.InvalidOpeningError, "party 0 reveals another nonce than it committed to")
def open_a_commitment_differently(zone):
    at = zone(ElectionMessageKind.REVEAL)
    at.board.post(at.signed(ElectionMessageKind.REVEAL, b"n" * 32, 0))


@refused(errors.CopiedCommitmentError, "party 0 commits to what party 1 committed to")
def mirror_a_commitment(zone):
    """And then the reveal: with the same nonce twice in it the beacon would not depend on it."""
    at = zone(ElectionMessageKind.COMMIT)
    at.board.post(at.made[ElectionMessageKind.COMMIT][1])
    copied = at.commitment(1)
    copied.shares[1] = copied.shares.pop(0)
    at.board.post(at.signed(ElectionMessageKind.COMMIT, copied.encode(), 0))


@refused(errors.InvalidOpeningError, "party 0 reveals another nonce")
def mirror_a_reveal(zone):
    """The same nonce under another commitment: every hash names its dealer."""
    at = zone(ElectionMessageKind.REVEAL)
    at.board.post(at.made[ElectionMessageKind.REVEAL][1])
    at.board.post(at.signed(ElectionMessageKind.REVEAL, at.payload(ElectionMessageKind.REVEAL, 1), 0))


@refused(errors.MalformedMessageError, "a public key was posted twice")
def mirror_a_key(zone):
    at = zone(ElectionMessageKind.KEY)
    at.board.post(at.made[ElectionMessageKind.KEY][1])
    at.board.post(at.signed(ElectionMessageKind.KEY, at.payload(ElectionMessageKind.KEY, 1), 0))


@refused(errors.MalformedMessageError, "a public key was posted twice")
def mirror_a_key_with_bit_255(zone):
    at = zone(ElectionMessageKind.KEY)
    at.board.post(at.made[ElectionMessageKind.KEY][1])
    at.board.post(
        at.signed(ElectionMessageKind.KEY, other_encodings(at.payload(ElectionMessageKind.KEY, 1))[0], 0)
    )


@refused(errors.MalformedMessageError, "not a point of X25519")
def a_key_of_small_order(zone):
    """Shares sealed for it would be public."""
    at = zone(ElectionMessageKind.KEY)
    at.board.post(at.signed(ElectionMessageKind.KEY, bytes(32), 0))


@refused(errors.MalformedMessageError, "shares are not for exactly all others")
def leave_a_holder_out(zone):
    at = zone(ElectionMessageKind.COMMIT)
    commitment = at.commitment(0)
    del commitment.shares[4]
    at.board.post(at.signed(ElectionMessageKind.COMMIT, commitment.encode(), 0))


@refused(errors.MalformedMessageError, "a commitment without a key")
def commit_without_a_key(zone):
    at = Zone()
    made = at.make()
    for i in range(1, 10):
        at.board.post(made[i][0])
    at.board.close()
    at.board.post(at.signed(ElectionMessageKind.COMMIT, Commitment(bytes(32), {}).encode(), 0))


@refused(errors.MalformedMessageError, "complains about party 4, of whom it holds no share")
def complain_about_nothing(zone):
    at = Zone()
    at.until(ElectionMessageKind.COMMIT)
    at.board.close()
    at.board.post(at.signed(ElectionMessageKind.COMPLAINT, encode_shares({4: 0}), 0))


@refused(errors.InvalidOpeningError, "party 0: not the share that it hashed for 4")
def answer_a_complaint_with_another_share(zone):
    at = zone(ElectionMessageKind.COMPLAINT)
    at.board.post(at.signed(ElectionMessageKind.COMPLAINT, encode_shares({0: 0}), 4))
    at.board.close()
    at.board.post(at.signed(ElectionMessageKind.ANSWER, encode_shares({4: 7}), 0))


@refused(errors.InvalidOpeningError, "party 2: not the share that 0 hashed for it")
def rebuild_with_a_wrong_share(zone):
    at = zone(ElectionMessageKind.RECOVER)
    at.board.post(at.signed(ElectionMessageKind.RECOVER, encode_shares({0: 1}), 2))


@refused(errors.NotAgreedError, "party 0 vouches for another board")
def vouch_for_another_board(zone):
    at = zone(ElectionMessageKind.VOUCH)
    at.board.post(at.signed(ElectionMessageKind.VOUCH, b"v" * 32, 0))


# Outsiders, forgeries and replays.


@refused(errors.UnknownSenderError, "party 10, who may not send it")
def stuff_the_board_with_a_non_member(zone):
    at = zone(ElectionMessageKind.COMMIT)
    frame = dataclasses.replace(parse_frame(at.made[ElectionMessageKind.COMMIT][0]), sender=10)
    at.board.post(seal_frame(frame, Identity(repeatable(b"stranger"))))


@refused(errors.TamperedMessageError, "signature")
def commit_in_somebody_elses_name(zone):
    at = zone(ElectionMessageKind.COMMIT)
    at.board.post(
        at.signed(ElectionMessageKind.COMMIT, at.payload(ElectionMessageKind.COMMIT, 0), 0, sender=1)
    )


@refused(errors.ReplayedMessageError, "a message of session")
def replay_a_commitment_of_another_round(zone):
    """Whose nonce is known by now."""
    at, before = zone(ElectionMessageKind.COMMIT), zone(ElectionMessageKind.COMMIT, label="zone 0, round -1")
    at.board.post(before.made[ElectionMessageKind.COMMIT][0])


@refused(errors.ReplayedMessageError, "a message of session")
def the_transcript_of_another_zone(zone):
    at, other = zone(ElectionMessageKind.KEY), zone(None, label="zone 1, round 0")
    verify_transcript(at.terms, other.board.posts)


@refused(errors.MalformedMessageError, "kind 5 in an election")
def a_message_of_another_protocol(zone):
    at = zone(ElectionMessageKind.COMMIT)
    at.board.post(at.signed(ElectionMessageKind.COMMIT, b"", 0, kind=5))


@refused(errors.TamperedMessageError, "signature")
def forge_an_entry_of_the_transcript(zone):
    at = zone(None)
    posts = list(at.board.posts)
    place = next(n for n, data in enumerate(posts) if parse_frame(data).kind == ElectionMessageKind.REVEAL)
    forged = dataclasses.replace(parse_frame(posts[place]), payload=b"n" * 32)
    posts[place] = seal_frame(forged, at.parties.server)
    verify_transcript(at.terms, posts)


# A board that lies.


@refused(errors.NotAgreedError, "6 of 10 parties vouch for this board; 7 needed")
def show_two_boards_to_two_halves(zone):
    """Three colluders vouch for both: seven agree on the one, and only six on the other."""
    at = zone(ElectionMessageKind.VOUCH)
    shorter = [data for data in at.board.posts if data != at.made[ElectionMessageKind.COMMIT][3]]
    boards = {True: shorter, False: at.board.posts}
    digests = {which: board_digest(at.terms, board) for which, board in boards.items()}
    at.candidates[9]._posted.pop(ElectionMessageKind.VOUCH)
    at.candidates[9]._identity = Identity(repeatable(b"id 0 9"))  # 7, 8 and 9 see the shorter one only
    at.candidates[9].post(ElectionMessageKind.VOUCH, shorter)
    for short, honest in ((False, (3, 4, 5, 6)), (True, (7, 8, 9))):
        vouches = [at.signed(ElectionMessageKind.VOUCH, digests[short], i) for i in (0, 1, 2, *honest)]
        at.candidates[honest[-1]].post(ElectionMessageKind.REVEAL, [*boards[short], *vouches])


@refused(errors.NotAgreedError, "5 of 10 parties vouch for this board; 7 needed")
def ask_for_a_reveal_before_a_quorum_agreed(zone):
    at = zone(ElectionMessageKind.VOUCH)
    some = [at.made[ElectionMessageKind.VOUCH][i] for i in range(5)]
    at.candidates[0].post(ElectionMessageKind.REVEAL, [*at.board.posts, *some])


@refused(errors.NotAgreedError, "party 0: not the board it vouched for")
def change_the_board_after_the_vouching(zone):
    at = zone(ElectionMessageKind.VOUCH)
    posts = [data for data in at.board.posts if data != at.made[ElectionMessageKind.COMMIT][9]]
    at.candidates[0].post(ElectionMessageKind.REVEAL, [*posts, *at.made[ElectionMessageKind.VOUCH].values()])


@refused(errors.OmittedPostError, "party 9: the board lacks the commit that it posted")
def leave_out_a_commitment(zone):
    """An honest candidate less: the colluders' chance rises."""
    at = zone(ElectionMessageKind.COMMIT)
    for i in range(9):
        at.board.post(at.made[ElectionMessageKind.COMMIT][i])
    at.candidates[9].post(ElectionMessageKind.COMPLAINT, at.board.posts)


@refused(errors.OmittedPostError, "party 0: the board lacks the answer that it posted")
def leave_out_an_answer(zone):
    """So that an honest dealer seems to have none, and is out."""
    at = zone(ElectionMessageKind.COMPLAINT)
    at.board.post(at.signed(ElectionMessageKind.COMPLAINT, encode_shares({0: 0}), 4))
    at.candidates[0].post(ElectionMessageKind.ANSWER, at.board.posts)
    at.candidates[0].post(ElectionMessageKind.VOUCH, at.board.posts)


@refused(errors.OutOfOrderMessageError, "kind 32; expected kind 37")
def reorder_the_transcript(zone):
    at = zone(None)
    posts = at.board.posts
    verify_transcript(at.terms, [posts[0], *posts[10:], *posts[1:10]])


@refused(errors.NotAgreedError, "0 of 10 parties vouch for this board")
def cut_a_commitment_out_of_the_transcript(zone):
    at = zone(None)
    verify_transcript(
        at.terms, [data for data in at.board.posts if data != at.made[ElectionMessageKind.COMMIT][9]]
    )


@refused(errors.UnrecoverableError, "party 0 did not reveal, and 0 of its shares are there")
def cut_the_reveals_off_the_transcript(zone):
    at = zone(None)
    verify_transcript(
        at.terms, [data for data in at.board.posts if parse_frame(data).kind < ElectionMessageKind.REVEAL]
    )


@refused(errors.TruncatedMessageError, "shortest has|bytes of payload")
def cut_the_last_entry_short(zone):
    at = zone(None)
    *posts, last = at.board.posts
    verify_transcript(at.terms, [*posts, last[:-1]])


# Draw again until it suits.


@refused(errors.RepeatedSessionError, "took part in it already")
def the_same_election_again(zone):
    at = zone(None)
    Candidate(0, at.terms, at.parties.identities[0])


@refused(errors.ChangedTermsError, "label 'zone 0, round 0' already, with other terms")
def the_same_round_under_other_terms(zone):
    at = zone(None)
    Candidate(0, ElectionTerms("zone 0, round 0", at.terms.public_keys, 2), at.parties.identities[0])


@refused(errors.DuplicateMessageError, "party 0 posted its commit already")
def ask_for_another_commitment(zone):
    at = zone(ElectionMessageKind.COMMIT)
    at.candidates[0].post(ElectionMessageKind.COMMIT, at.board.posts)


@refused(errors.TooManyColludersError, "at most 3")
def more_colluders_than_an_election_tolerates(zone):
    ElectionTerms("x", zone(ElectionMessageKind.KEY).terms.public_keys, 4)


@refused(errors.UnrecoverableError, "1 of its shares are there; 6 needed")
def withhold_more_than_is_tolerated(zone):
    """Nine of ten refuse the reveal and the shares: no result rather than one they like."""
    silent = {
        i: lambda kind, data: [data] if data and kind < ElectionMessageKind.REVEAL else [] for i in range(9)
    }
    _ = zone(None, cheaters=silent).result

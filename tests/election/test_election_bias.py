"""What colluders may do within what is tolerated: the result is the one that was fixed before they could know
it."""

from __future__ import annotations

import dataclasses

import pytest
from election_stage import Zone
from repeatable_entropy import repeatable

from sfumato.election import messages
from sfumato.election.commitments import deal, nonce_hash, share_hash
from sfumato.election.messages import ElectionMessageKind
from sfumato.election.transcript import verify_transcript
from sfumato.secure_aggregation.messages import encode_shares
from sfumato.secure_aggregation.shares import SHARE_BYTES
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY, parse_frame, seal_frame
from sfumato.wire.keys import seal


def zone(stop, **other):
    return Zone(**other).until(stop)


def honest_result():
    return zone(None).result


@pytest.mark.parametrize(
    "kind",
    [
        ElectionMessageKind.REVEAL,
        ElectionMessageKind.RECOVER,
        ElectionMessageKind.VOUCH,
        ElectionMessageKind.ANSWER,
    ],
)
def test_withholding_changes_nothing(kind) -> None:
    """Abort bias: three colluders fall silent once they know the outcome."""
    silent = {i: lambda k, data: [data] if data and k < kind else [] for i in (0, 5, 7)}
    assert zone(None, cheaters=silent).result == honest_result()


def test_nonsense_after_the_reveals_spoils_nothing() -> None:
    """Who does not like the outcome cannot make the board unreadable for the others."""

    def spoil(kind, data):
        good = [data] if data else []
        if kind is ElectionMessageKind.RECOVER:
            return [
                b"",
                *seconds,
                at.signed(ElectionMessageKind.RECOVER, b"x", 0),
                at.signed(ElectionMessageKind.RECOVER, b"y", 0, kind=99),
            ]
        if kind is ElectionMessageKind.REVEAL:
            seconds.extend(good)
        return good

    seconds: list[bytes] = []
    at = Zone(cheaters={0: spoil})
    assert at.until(None).result == honest_result()
    assert [type(error) for error in at.rejected] == [
        errors.TruncatedMessageError,
        errors.DuplicateMessageError,
        errors.TruncatedMessageError,
        errors.MalformedMessageError,
    ]


def bent(change):
    """A cheater that changes its commitment."""

    def bend(kind, data):
        if kind is not ElectionMessageKind.COMMIT:
            return [data] if data else []
        commitment = messages.decode_commitment(parse_frame(data).payload)
        change(commitment.shares)
        frame = dataclasses.replace(parse_frame(data), payload=commitment.encode())
        return [seal_frame(frame, Zone().parties.identities[0])]

    return bend


@pytest.mark.parametrize("reveals", [True, False])
def test_a_dealer_of_shares_on_no_polynomial_is_out_whatever_it_does_later(reveals) -> None:
    """Else it could choose: reveal, and count, or refuse, and be out.

    Its share for 9 is sealed and hashed properly, so nobody complains, but not on the nonce's polynomial; six
    others would rebuild the nonce.
    """

    def change(shares):
        share = 12345
        dealer, holder = at.candidates[0], at.candidates[9]
        key = dealer._sealing_key(holder._pair.public, 0, 9)
        box = seal(key, share.to_bytes(SHARE_BYTES, "big"), at.terms.session, repeatable(b"box"))
        shares[9] = share_hash(at.terms, 0, 9, share), box

    bend = bent(change)
    at = Zone(cheaters={0: lambda k, d: bend(k, d) if reveals or k is not ElectionMessageKind.REVEAL else []})
    at.until(None)
    assert not at.made[ElectionMessageKind.COMPLAINT]
    assert [type(error) for error in at.rejected] == [errors.InvalidOpeningError] * reveals
    assert at.result.excluded == (0,)
    assert sorted(at.result.order) == list(range(1, 10))


@pytest.mark.parametrize("answers", [True, False])
def test_a_badly_sealed_share_is_published_or_its_dealer_is_out(answers) -> None:
    def change(shares):
        shares[4] = shares[4][0], bytes(len(shares[4][1]))

    bend = bent(change)
    at = zone(
        None, cheaters={0: lambda k, d: bend(k, d) if answers or k is not ElectionMessageKind.ANSWER else []}
    )
    assert list(at.made[ElectionMessageKind.COMPLAINT]) == [4]
    assert at.result.excluded == (() if answers else (0,))
    assert (0 in at.result.order) == answers


def test_false_complaints_and_false_shares_do_nothing() -> None:
    def accuse(kind, data):
        if kind is ElectionMessageKind.COMPLAINT:
            return [
                at.signed(ElectionMessageKind.COMPLAINT, encode_shares(dict.fromkeys(range(1, 10), 0)), 0)
            ]
        return [data] if data and kind < ElectionMessageKind.REVEAL else []

    def lie(kind, data):
        false = encode_shares({0: 1})
        return (
            [at.signed(ElectionMessageKind.RECOVER, false, 2)]
            if kind is ElectionMessageKind.RECOVER
            else [data]
            if data
            else []
        )

    at = Zone(cheaters={0: accuse, 2: lie})
    assert at.until(None).result == honest_result()
    assert [type(error) for error in at.rejected] == [errors.InvalidOpeningError]


def test_a_board_that_leaves_honest_parties_out_needs_a_quorum_of_others() -> None:
    """Byzantine, ten parties, quorum 7: three can be left out, and not four."""
    at = zone(ElectionMessageKind.COMMIT)
    for i in range(6):
        at.board.post(at.made[ElectionMessageKind.COMMIT][i])
    for kind in (ElectionMessageKind.COMPLAINT, ElectionMessageKind.ANSWER, ElectionMessageKind.VOUCH):
        at.board.close()
        for i, candidate in enumerate(at.candidates):
            try:
                data = candidate.post(kind, at.board.posts)
            except errors.OmittedPostError:
                assert i >= 6
                continue
            if data is not None:
                at.board.post(data)
    with pytest.raises(errors.NotAgreedError, match="6 of 10"):
        verify_transcript(at.terms, at.board.posts)


def test_two_dealers_of_one_nonce_have_nothing_in_common() -> None:
    """So whatever is copied from a commitment opens none of one's own."""
    terms = Zone().terms
    first, second = (deal(terms, dealer, b"n" * 32, range(10)) for dealer in (0, 1))
    hashes = [share_hash(terms, d, h, first[h]) for d in (0, 1) for h in first]
    hashes += [nonce_hash(terms, d, b"n" * 32) for d in (0, 1)]
    assert len(set(hashes)) == 22
    assert not set(first.values()) & set(second.values())


def test_every_post_is_for_everybody() -> None:
    at = zone(None)
    assert {parse_frame(data).recipient for data in at.board.posts} == {EVERYBODY}

from __future__ import annotations

import math

import numpy as np
import pytest
from repeatable_entropy import repeatable
from scipy.stats import chi2
from transport_parties import Parties

from sfumato.election import odds
from sfumato.election.commitments import deal
from sfumato.election.lottery import beacon, draw_nonces, elected, succession
from sfumato.election.messages import ElectionMessageKind
from sfumato.election.party import Candidate
from sfumato.election.session import elect
from sfumato.election.terms import ElectionTerms
from sfumato.election.transcript import verify_transcript
from sfumato.secure_aggregation import shares
from sfumato.wire import errors
from sfumato.wire.frames import parse_frame
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest

ELECTIONS, PARTIES, COLLUDERS = 10_000, 10, 4


def recoverable(session: bytes, nonces: dict[int, bytes]) -> int:
    """Who is elected where nonces are recoverable: whoever refuses to reveal changes nothing."""
    return succession(beacon(session, nonces), nonces)[0]


def excluding(session: bytes, nonces: dict[int, bytes], refusing: range | set[int]) -> int:
    """Who is elected where those who refuse are left out: unsafe, for comparison only."""
    left = {party: nonce for party, nonce in nonces.items() if party not in refusing}
    return succession(beacon(session, left), left)[0]


def colluders_refuse_in_turn(session: bytes, nonces: dict[int, bytes], colluders: range | set[int]) -> int:
    """Under the unsafe rule: while an honest party would win, one more colluder refuses."""
    refused: set[int] = set()
    winner = excluding(session, nonces, refused)
    for party in sorted(colluders):
        if winner in colluders:
            break
        refused.add(party)
        winner = excluding(session, nonces, refused)
    return winner


def bias_if_refusers_are_excluded(parties: int, colluders: int) -> float:
    """Probability that colluders win where who refuses to reveal is left out and the draw is repeated without
    it.

    They speak last, and while an honest party would win another of them refuses: 1 − Π_{a=0..c} (m − c)/(m −
    a); 4 of 10 win with .743. A lower bound on what they can do, and why reveals must be recoverable.
    """
    lost = 1.0
    for refused in range(colluders):
        lost *= (parties - colluders) / (parties - refused)
    return 1 - lost


def uniform(winners, parties: int = PARTIES) -> bool:
    counts, mean = np.bincount(winners, minlength=parties), len(winners) / parties
    return ((counts - mean) ** 2 / mean).sum() < chi2.ppf(1 - 1e-7, parties - 1)


def many(choose, seed: bytes = b"seed") -> list[int]:
    draw = repeatable(seed)
    return [choose(b"%d" % n, draw_nonces(PARTIES, draw)) for n in range(ELECTIONS)]


def test_ten_thousand_elections_are_uniform() -> None:
    winners = many(recoverable)
    assert uniform(winners)
    assert not uniform([w if w else 1 for w in winners])  # the test can tell


def test_a_minority_wins_no_more_than_its_share_aborting_included() -> None:
    """4 of 10 win .40 (refusing changes nothing: below); where who refuses is left out, .74."""
    bad = range(COLLUDERS)
    slack = 5.2 * math.sqrt(0.25 / ELECTIONS)
    assert np.mean([w in bad for w in many(recoverable)]) == pytest.approx(0.40, abs=slack)
    unsafe = [w in bad for w in many(lambda s, n: colluders_refuse_in_turn(s, n, bad))]
    assert bias_if_refusers_are_excluded(10, 4) == pytest.approx(0.743, abs=5e-4)
    assert np.mean(unsafe) == pytest.approx(bias_if_refusers_are_excluded(10, 4), abs=slack)


def test_a_biased_nonce_of_the_colluders_changes_nothing() -> None:
    def constant(session, nonces):
        return recoverable(session, {p: bytes(32) if p < COLLUDERS else n for p, n in nonces.items()})

    assert uniform(many(constant))


def test_the_whole_succession_is_uniform_and_failures_move_on() -> None:
    orders = [succession(digest(b"t", b"%d" % n), range(5)) for n in range(6000)]
    for place in range(5):
        assert uniform([order[place] for order in orders], 5)
    pairs = [order[0] * 5 + order[1] for order in orders]
    counts = np.bincount(pairs, minlength=25)[[i for i in range(25) if i % 6]]
    assert ((counts - 300) ** 2 / 300).sum() < chi2.ppf(1 - 1e-7, 19)
    order = orders[0]
    assert elected(order) == order[0]
    assert elected(order, {order[0], order[2]}) == order[1]
    assert elected(order, order[:3]) == order[3]
    with pytest.raises(errors.NoCandidateError):
        elected(order, order)


def test_drawing_below_a_bound_has_no_modulo_bias() -> None:
    bound = 3 << 62  # a modulo would give the lower third twice
    stream = KeyStream(b"m" * 32)
    low = sum(stream.below(bound) < 1 << 62 for _ in range(9000))
    assert abs(low / 9000 - 1 / 3) < 5.2 * math.sqrt(2 / 9 / 9000)
    assert {stream.below(3) for _ in range(100)} == {0, 1, 2}


@pytest.fixture(name="zone")
def fixture_zone():
    def make(adversary="byzantine", colluders=3, count=10, label="zone 0, round 0"):
        parties = Parties(count)
        return parties, ElectionTerms(label, parties.public, colluders, adversary)

    return make


def test_an_election_can_be_checked_by_anybody(zone) -> None:
    parties, terms = zone()
    election = elect(terms, parties.identities, entropy=parties.entropy())
    assert sorted(election.result.order) == list(range(10))
    assert verify_transcript(terms, election.board) == election.result
    nonces = {
        parse_frame(d).sender: parse_frame(d).payload
        for d in election.board
        if parse_frame(d).kind == ElectionMessageKind.REVEAL
    }
    assert recoverable(terms.session, nonces) == election.result.order[0]  # the fast path's result


def test_who_crashes_before_committing_is_no_candidate(zone) -> None:
    for kind in (ElectionMessageKind.KEY, ElectionMessageKind.COMMIT):
        parties, terms = zone("crash", 4)
        result = elect(terms, parties.identities, drop={kind: [1, 2, 3, 4]}).result
        assert sorted(result.order) == [0, 5, 6, 7, 8, 9]


def test_real_elections_are_uniform() -> None:
    parties, winners = Parties(4), []
    for number in range(60):
        terms = ElectionTerms(f"round {number}", parties.public, 1)
        winners.append(elect(terms, parties.identities, entropy=parties.entropy(number)).result.order[0])
    assert uniform(winners, 4)


def test_a_minority_cannot_rebuild_a_nonce_early(zone) -> None:
    _, terms = zone("crash", 4)
    assert terms.threshold > 4
    dealt = {h + 1: share for h, share in deal(terms, 0, b"n" * 32, range(1, 10)).items()}
    for count in range(1, 10):
        some = dict(list(dealt.items())[:count])
        assert (shares.rebuild(some, count) == b"n" * 32) == (count >= terms.threshold)
    assert terms.threshold <= 10 - 4


def test_lost_and_changed_posts_are_named_and_the_others_go_on(zone) -> None:
    """3's commitment is lost and 5's reveal cut short: one drops out, the other's nonce is rebuilt."""
    parties, terms = zone()

    def wire(kind, party, data):
        if (kind, party) == (ElectionMessageKind.COMMIT, 3):
            return []
        return [data[:-1]] if (kind, party) == (ElectionMessageKind.REVEAL, 5) else [data]

    election = elect(terms, parties.identities, entropy=parties.entropy(), wire=wire)
    assert sorted(election.result.order) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [(kind, party, type(error)) for kind, party, error in election.rejected] == [
        (ElectionMessageKind.COMPLAINT, 3, errors.OmittedPostError),
        (ElectionMessageKind.REVEAL, 5, errors.TruncatedMessageError),
    ]


def test_an_identity_takes_part_under_its_own_number_only(zone) -> None:
    parties, terms = zone()
    with pytest.raises(ValueError, match="party 1"):
        Candidate(1, terms, parties.identities[0])


@pytest.mark.parametrize(
    ("parties", "colluders", "adversary", "fine"),
    [(10, 4, "crash", True), (10, 5, "crash", False), (10, 3, "byzantine", True), (10, 4, "byzantine", False),
     (9, 3, "byzantine", False), (9, 2, "byzantine", True), (11, 5, "crash", True)],
)  # fmt: skip
def test_too_many_colluders_are_refused(zone, parties, colluders, adversary, fine) -> None:
    if fine:
        zone(adversary, colluders, parties)
    else:
        with pytest.raises(errors.TooManyColludersError, match="tolerates fewer"):
            zone(adversary, colluders, parties)


def test_closed_forms() -> None:
    assert 1 - odds.probability_elected(10, 200) == pytest.approx(7.06e-10, rel=0.01)  # docs/concepts.md
    assert odds.probability_elected(10, 3) == pytest.approx(1 - 0.9**3)
    assert odds.probability_elected(10, 1, group=4) == pytest.approx(0.4)
    assert odds.expected_terms(10, 200) == 20
    chances = [odds.probability_of_terms(10, 50, k) for k in range(51)]
    assert sum(chances) == pytest.approx(1)
    assert sum(k * c for k, c in enumerate(chances)) == pytest.approx(odds.expected_terms(10, 50))
    assert odds.probability_elected(10, 50, terms=3) == pytest.approx(1 - sum(chances[:3]))
    assert odds.probability_of_terms(1, 5, 5) == 1
    with pytest.raises(ValueError, match="group"):
        odds.probability_elected(3, 1, group=4)

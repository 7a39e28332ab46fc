"""Checking an election: from the public board to the result, by anybody who knows the terms.

If the board takes everybody's posts, up to `most_colluders` parties can neither steer the result nor prevent
it: a nonce is fixed by what was posted before anybody revealed (`commitments`), and enough others hold its
shares. A board that shows parties different things, or omits posts, is found out before the reveal: no two
boards find a quorum each (2(quorum - c) > parties - c for c colluders), and nobody vouches for a board that
lacks a post of its own. So at least quorum - c honest parties are candidates: with a malicious board one of c
colluders is elected with probability c / quorum at most, instead of c / m of m. Such a board can also end an
election without result, at any time: then who may repeat it draws again (`ElectionTerms.label`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfumato.election.commitments import is_opening
from sfumato.election.lottery import beacon, succession
from sfumato.election.messages import ElectionMessageKind
from sfumato.election.reading import Reading, board_digest, open_posts
from sfumato.election.terms import ElectionTerms
from sfumato.secure_aggregation import shares
from sfumato.wire import errors
from sfumato.wire.frames import Frame


@dataclass(frozen=True)
class ElectionResult:
    """An election's result.

    Attributes:
        order: candidates in their uniform order; the first is elected (`lottery.elected`).
        excluded: who dealt wrongly, as was settled before any reveal.
        randomness: the beacon: public, and good as a graph's seed too.
    """

    order: tuple[int, ...]
    excluded: tuple[int, ...]
    randomness: bytes


def read_board(
    terms: ElectionTerms,
    board: Sequence[bytes],
    checked: set[bytes] | None = None,
    *,
    agreed: bool = False,
) -> Reading:
    """Check all posts of a board and collect their content in a `Reading`.

    Args:
        terms: of the election.
        board: in the order of the phases.
        checked: posts whose signatures the reader has checked before; those checked now are added.
        agreed: whether a quorum must vouch for the board.

    Raises:
        MessageError: a post is not authentic, not of this election, out of order, there twice or malformed.
        ElectionError: a post copies or wrongly opens a commitment.
        NotAgreedError: a party vouches for another board, or, if ``agreed``, fewer than the quorum vouch for
            the part before the reveals.
    """
    opened = list(open_posts(terms, board, checked))
    if agreed:
        _require_quorum(terms, (frame for frame, _ in opened), board_digest(terms, board))
    reading = Reading(terms)
    for frame, data in opened:
        reading.admit(frame, data)
    return reading


def _require_quorum(terms: ElectionTerms, frames: Iterable[Frame], expected: bytes) -> None:
    """Check that a quorum of parties vouches, in ``frames``, for the board digest ``expected``.

    Raises:
        NotAgreedError: fewer do.
    """
    count = sum(frame.kind == ElectionMessageKind.VOUCH and frame.payload == expected for frame in frames)
    if count < terms.quorum:
        raise errors.NotAgreedError(
            f"{count} of {terms.parties} parties vouch for this board; {terms.quorum} needed"
        )


def verify_transcript(terms: ElectionTerms, board: Sequence[bytes]) -> ElectionResult:
    """The result of a finished election, recomputed from its board.

    Raises:
        MessageError: a post is not authentic, not of this election, out of order, there twice or malformed.
        ElectionError: posts contradict each other, or no quorum vouches for the board.
        UnrecoverableError: a nonce was neither revealed nor rebuilt.
        NoCandidateError: no party committed to a nonce and answered all complaints.
    """
    reading = read_board(terms, board, agreed=True)
    excluded, nonces = reading.disqualified, dict[int, bytes]()
    for dealer in sorted(reading.commitments.keys() - excluded):
        nonce = reading.reveals.get(dealer) or _rebuild_nonce(terms, reading, dealer)
        if nonce is None:
            excluded.add(dealer)
        else:
            nonces[dealer] = nonce
    if not nonces:
        raise errors.NoCandidateError("nobody committed to a nonce properly")
    randomness = beacon(terms.session, nonces)
    return ElectionResult(succession(randomness, nonces), tuple(sorted(excluded)), randomness)


def _rebuild_nonce(terms: ElectionTerms, reading: Reading, dealer: int) -> bytes | None:
    """The nonce that a silent dealer committed to, rebuilt from shares; ``None`` if it had dealt wrongly.

    Raises:
        UnrecoverableError: too few of its shares are there.
    """
    held = {h + 1: table[dealer] for h, table in reading.recoveries.items() if dealer in table}
    held |= {h + 1: share for h, share in reading.answers.get(dealer, {}).items()}
    if len(held) < terms.threshold:
        raise errors.UnrecoverableError(
            f"party {dealer} did not reveal, and {len(held)} of its shares are there;"
            f" {terms.threshold} needed"
        )
    nonce = shares.rebuild(held, terms.threshold)
    opened = nonce is not None and is_opening(terms, dealer, reading.commitments[dealer], nonce)
    return nonce if opened else None

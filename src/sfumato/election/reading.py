"""Reading a board: which posts belong on it, and what they say.

What is admitted agrees with all that was posted before it; what does not is refused by name, by the board
when it is posted and by every reader again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sfumato.election import messages
from sfumato.election.commitments import is_opening, share_hash
from sfumato.election.messages import Commitment, ElectionMessageKind
from sfumato.election.terms import ElectionTerms
from sfumato.secure_aggregation.messages import require
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY, Frame, open_frame, parse_frame
from sfumato.wire.keys import agreement_point, digest


@dataclass
class Reading:
    """What a board says, phase by phase."""

    terms: ElectionTerms
    keys: dict[int, bytes] = field(default_factory=dict)
    commitments: dict[int, Commitment] = field(default_factory=dict)
    complaints: dict[int, set[int]] = field(default_factory=dict)
    answers: dict[int, dict[int, int]] = field(default_factory=dict)
    vouches: dict[int, bytes] = field(default_factory=dict)
    reveals: dict[int, bytes] = field(default_factory=dict)
    recoveries: dict[int, dict[int, int]] = field(default_factory=dict)
    before_vouching: list[bytes] = field(default_factory=list)
    _digest: bytes = field(default=b"", init=False, repr=False)

    def admit(self, frame: Frame, data: bytes) -> None:
        """Check the content of an authentic post and add it to this reading, or leave that unchanged.

        Args:
            frame: the opened post.
            data: its bytes.

        Raises:
            MessageError: it is malformed, or contradicts what was posted before.
            CopiedCommitmentError: it commits to what another party committed to.
            InvalidOpeningError: it opens a commitment wrongly.
            NotAgreedError: it vouches for another board.
        """
        {
            ElectionMessageKind.KEY: self._admit_key,
            ElectionMessageKind.COMMIT: self._admit_commitment,
            ElectionMessageKind.COMPLAINT: self._admit_complaint,
            ElectionMessageKind.ANSWER: self._admit_answer,
            ElectionMessageKind.VOUCH: self._admit_vouch,
            ElectionMessageKind.REVEAL: self._admit_reveal,
            ElectionMessageKind.RECOVER: self._admit_recovery,
        }[ElectionMessageKind(frame.kind)](frame.sender, frame.payload)
        if frame.kind < ElectionMessageKind.VOUCH:
            self.before_vouching.append(data)

    @property
    def disqualified(self) -> set[int]:
        """Dealers with a complaint that they did not answer by the share whose hash they had posted."""
        return {
            dealer
            for holder, dealers in self.complaints.items()
            for dealer in dealers
            if holder not in self.answers.get(dealer, {})
        }

    @property
    def silent(self) -> list[int]:
        """A list of the dealers, ascending, that are not disqualified and did not reveal their nonce."""
        return sorted(self.commitments.keys() - self.disqualified - self.reveals.keys())

    def fits(self, dealer: int, holder: int, share: int) -> bool:
        """Whether ``share`` has the hash that ``dealer`` posted for ``holder``."""
        row = self.commitments[dealer].shares.get(holder) if dealer in self.commitments else None
        return row is not None and share_hash(self.terms, dealer, holder, share) == row[0]

    def _admit_key(self, who: int, payload: bytes) -> None:
        """Keep the public key of party ``who``; ``payload``: 32 bytes (`messages.decode_key`).

        Raises:
            MessageError: it is no key, or was posted before.
        """
        key = messages.decode_key(payload)
        points = map(agreement_point, self.keys.values())
        require(agreement_point(key) not in points, f"party {who}: a public key was posted twice")
        self.keys[who] = key

    def _admit_commitment(self, who: int, payload: bytes) -> None:
        """Keep the commitment of party ``who`` in ``payload`` (`messages.decode_commitment`).

        Raises:
            MessageError: it is none, the party has no key, or shares are not for exactly all other parties.
            CopiedCommitmentError: another party has posted the same.
        """
        commitment = messages.decode_commitment(payload)
        require(who in self.keys, f"party {who}: a commitment without a key")
        others = self.keys.keys() - {who}
        require(commitment.shares.keys() == others, f"party {who}: shares are not for exactly all others")
        for other, earlier in self.commitments.items():
            if earlier.nonce == commitment.nonce:
                raise errors.CopiedCommitmentError(f"party {who} commits to what party {other} committed to")
        self.commitments[who] = commitment

    def _admit_complaint(self, who: int, payload: bytes) -> None:
        """Keep the complaints of party ``who``: it says that a dealer's share for it is not what was hashed.

        ``payload``: a table of `messages.decode_shares`, of which only the parties, the dealers, count.

        Raises:
            MessageError: it is no such table, or names a dealer that dealt the party no share.
        """
        dealers = set(messages.decode_shares(payload))
        for dealer in dealers:
            held = dealer in self.commitments and who in self.commitments[dealer].shares
            require(held, f"party {who} complains about party {dealer}, of whom it holds no share")
        self.complaints[who] = dealers

    def _admit_answer(self, who: int, payload: bytes) -> None:
        """Keep the answers of dealer ``who`` to complaints: the shares that it dealt, now in public.

        ``payload``: the shares by holder (`messages.decode_shares`).

        Raises:
            MessageError: it is no such table, or answers a holder that did not complain.
            InvalidOpeningError: a share is not the one that the dealer hashed.
        """
        dealt = messages.decode_shares(payload)
        for holder, share in dealt.items():
            require(
                who in self.complaints.get(holder, ()), f"party {who} answers {holder}, who did not complain"
            )
            if not self.fits(who, holder, share):
                raise errors.InvalidOpeningError(f"party {who}: not the share that it hashed for {holder}")
        self.answers[who] = dealt

    def _admit_vouch(self, who: int, payload: bytes) -> None:
        """Keep the digest that party ``who`` vouches for; ``payload``: 32 bytes.

        Raises:
            MessageError: it is no digest.
            NotAgreedError: it is not that of what this board held before anybody vouched.
        """
        vouched = messages.decode_key(payload)
        if not self._digest:
            self._digest = board_digest(self.terms, self.before_vouching)
        if vouched != self._digest:
            raise errors.NotAgreedError(f"party {who} vouches for another board")
        self.vouches[who] = vouched

    def _admit_reveal(self, who: int, payload: bytes) -> None:
        """Keep the nonce with which party ``who`` opens its commitment; ``payload``: 32 bytes.

        Raises:
            MessageError: it is no nonce, or the party committed to nothing.
            InvalidOpeningError: the commitment is to another nonce.
        """
        nonce = messages.decode_key(payload)
        require(who in self.commitments, f"party {who} reveals, and committed to nothing")
        if not is_opening(self.terms, who, self.commitments[who], nonce):
            raise errors.InvalidOpeningError(f"party {who} reveals another nonce than it committed to")
        self.reveals[who] = nonce

    def _admit_recovery(self, who: int, payload: bytes) -> None:
        """Keep the shares that party ``who`` holds of dealers, which recover the nonces of silent ones.

        ``payload``: the shares by dealer (`messages.decode_shares`).

        Raises:
            MessageError: it is no such table.
            InvalidOpeningError: a share is not the one that its dealer hashed.
        """
        held = messages.decode_shares(payload)
        for dealer, share in held.items():
            if not self.fits(dealer, who, share):
                raise errors.InvalidOpeningError(f"party {who}: not the share that {dealer} hashed for it")
        self.recoveries[who] = held


def open_post(
    terms: ElectionTerms,
    data: bytes,
    *,
    expected: int,
    seen: set[tuple[int, int]],
    authenticate: bool = True,
) -> Frame:
    """Decode a post and check everything that does not depend on its content.

    Args:
        terms: of the election.
        data: as posted.
        expected: the kind of post that may come now.
        seen: (kind, sender) of what was posted before.
        authenticate: whether to check the signature.

    Raises:
        MessageError: it is not authentic, not of this election, not now, or there twice.
    """
    kind = parse_frame(data).kind
    require(kind in set(ElectionMessageKind), f"a message of kind {kind} in an election")
    return open_frame(
        data,
        session=terms.session,
        keys=dict(enumerate(terms.public_keys)),
        recipient=EVERYBODY,
        expected=expected,
        seen=seen,
        authenticate=authenticate,
    )


def open_posts(
    terms: ElectionTerms, board: Iterable[bytes], checked: set[bytes] | None = None
) -> Iterator[tuple[Frame, bytes]]:
    """Yield (frame, bytes) of every post of a board, checked in everything that does not depend on contents.

    Args:
        terms: of the election.
        board: in the order of the phases.
        checked: posts whose signatures the reader has checked before; those checked now are added.

    Raises:
        MessageError: a post is malformed, not authentic, not of this election, out of order, or there twice.
    """
    seen, latest = set[tuple[int, int]](), 0
    for data in board:
        known = checked is not None and data in checked
        kind = parse_frame(data).kind
        frame = open_post(terms, data, expected=max(kind, latest), seen=seen, authenticate=not known)
        if checked is not None:
            checked.add(data)
        seen.add((frame.kind, frame.sender))
        latest = frame.kind
        yield frame, data


def board_digest(terms: ElectionTerms, board: Iterable[bytes]) -> bytes:
    """The 32-byte hash that parties vouch for: of all posts of ``board`` before that phase, in any order."""
    before = sorted(data for data in board if parse_frame(data).kind < ElectionMessageKind.VOUCH)
    return digest(b"board", terms.session, *before)

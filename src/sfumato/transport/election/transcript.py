"""Checking an election: from the public board to the result, by anybody who knows the terms.

The rule that makes refusing useless: a dealer's nonce is *decided by what it posted before anybody revealed*.
Its sharing polynomial is derived from the nonce, and it posts a hash of every share. If all hashed shares are
on one such polynomial, its nonce counts, revealed by itself or rebuilt by any majority; if not, no reveal
opens it and no majority rebuilds it, and the dealer is out, whatever anybody does later. Holders who got no
proper share complain before the reveal; the dealer publishes that share or is out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sfumato.transport import errors
from sfumato.transport.election import messages
from sfumato.transport.election.lottery import beacon, succession
from sfumato.transport.election.messages import Commitment, Kind
from sfumato.transport.election.odds import Adversary, require_minority
from sfumato.transport.frames import EVERYBODY, Frame, open_frame, parse_frame
from sfumato.transport.secure_aggregation import shares
from sfumato.transport.secure_aggregation.keys import KEY_BYTES, digest
from sfumato.transport.secure_aggregation.masks import KeyStream
from sfumato.transport.secure_aggregation.messages import require


@dataclass(frozen=True)
class ElectionTerms:
    """Public terms of one election; their hash names it.

    Attributes:
        label: run, round and zone: never the same twice with the same keys.
        public_keys: the zone's clients in order of their numbers, Ed25519.
        colluders: how many are feared to collude.
        adversary: what they may do: "crash" fall silent, "byzantine" anything.

    Raises:
        TooManyColludersError: half or more (crash), a third or more (Byzantine).
        ValueError: keys are repeated, of a wrong length, or fewer than 3.
    """

    label: str
    public_keys: tuple[bytes, ...]
    colluders: int = 0
    adversary: Adversary = "byzantine"

    def __post_init__(self) -> None:
        if len(set(self.public_keys)) != self.parties or any(
            len(key) != KEY_BYTES for key in self.public_keys
        ):
            raise ValueError(f"public_keys: must be distinct and of {KEY_BYTES} bytes each")
        if not 3 <= self.parties < 1 << 16:
            raise ValueError(f"public_keys: got {self.parties}; must be 3..65535 parties")
        require_minority(self.parties, self.colluders, self.adversary)

    @property
    def parties(self) -> int:
        """How many there are."""
        return len(self.public_keys)

    @property
    def threshold(self) -> int:
        """Shares that rebuild a nonce: a majority. No tolerated coalition has it; the rest always has."""
        return self.parties // 2 + 1

    @property
    def quorum(self) -> int:
        """Parties that must vouch for the same board before anybody reveals."""
        return self.threshold if self.adversary == "crash" else 2 * self.parties // 3 + 1

    @cached_property
    def session(self) -> bytes:
        """The election's name."""
        numbers = struct.pack(">I?", self.colluders, self.adversary == "byzantine")
        return digest(b"election", self.label.encode(), b"".join(self.public_keys), numbers)


@dataclass
class Reading:
    """What a board says, phase by phase."""

    keys: dict[int, bytes] = field(default_factory=dict)
    commitments: dict[int, Commitment] = field(default_factory=dict)
    complaints: dict[int, set[int]] = field(default_factory=dict)
    answers: dict[int, dict[int, int]] = field(default_factory=dict)
    vouches: dict[int, bytes] = field(default_factory=dict)
    reveals: dict[int, bytes] = field(default_factory=dict)
    recoveries: dict[int, dict[int, int]] = field(default_factory=dict)

    def silent(self, terms: ElectionTerms) -> list[int]:
        """Qualified dealers whose own reveal does not open their commitment."""
        dealers = sorted(self.commitments.keys() - self.disqualified(terms))
        return [
            d
            for d in dealers
            if d not in self.reveals or not opens(terms, d, self.commitments[d], self.reveals[d])
        ]

    def disqualified(self, terms: ElectionTerms) -> set[int]:
        """Dealers with a complaint that they did not answer with the share they had hashed."""
        out = set()
        for holder, dealers in self.complaints.items():
            for dealer in dealers & self.commitments.keys():
                hashed = self.commitments[dealer].shares.get(holder)
                share = self.answers.get(dealer, {}).get(holder)
                if hashed and (share is None or share_hash(terms, dealer, holder, share) != hashed[0]):
                    out.add(dealer)
        return out


@dataclass(frozen=True)
class Result:
    """An election's result.

    Attributes:
        order: candidates in their uniform order; the first is elected (`lottery.elected`).
        excluded: who dealt wrongly, as was settled before any reveal.
        randomness: the beacon: public, and good as a graph's seed too.
    """

    order: tuple[int, ...]
    excluded: tuple[int, ...]
    randomness: bytes


def read(terms: ElectionTerms, board: Iterable[bytes], checked: set[bytes] | None = None) -> Reading:
    """Read a board; frames whose content makes no sense count as not posted.

    Args:
        terms: of the election.
        board: in the order of the phases.
        checked: frames whose signatures the reader has checked before; those checked now are added.

    Raises:
        MessageError: a frame is not authentic, not of this election, out of order or there twice.
    """
    reading, seen, latest = Reading(), set[tuple[int, int]](), 0
    public = dict(enumerate(terms.public_keys))
    for data in board:
        kind = parse_frame(data).kind
        require(kind in set(Kind), f"a message of kind {kind} in an election")
        frame = open_frame(
            data,
            session=terms.session,
            keys=public,
            recipient=EVERYBODY,
            expected=max(kind, latest),
            seen=seen,
            authenticate=checked is None or data not in checked,
        )
        if checked is not None:
            checked.add(data)
        seen.add((kind, frame.sender))
        latest = kind
        try:
            _take(reading, terms, frame)
        except (errors.MalformedMessageError, errors.TruncatedMessageError):
            continue
    return reading


def _take(reading: Reading, terms: ElectionTerms, frame: Frame) -> None:
    who, payload = frame.sender, frame.payload
    if frame.kind == Kind.KEY:
        reading.keys[who] = messages.decode_key(payload)
    elif frame.kind == Kind.COMMIT:
        commitment = messages.decode_commitment(payload)
        require(who in reading.keys, "a commitment without a key")
        require(commitment.shares.keys() == reading.keys.keys() - {who}, "shares not for exactly all others")
        reading.commitments[who] = commitment
    elif frame.kind == Kind.COMPLAINT:
        reading.complaints[who] = set(messages.decode_shares(payload))
    elif frame.kind == Kind.ANSWER:
        reading.answers[who] = messages.decode_shares(payload)
    elif frame.kind == Kind.VOUCH:
        reading.vouches[who] = messages.decode_key(payload)
    elif frame.kind == Kind.REVEAL:
        reading.reveals[who] = messages.decode_key(payload)
    elif frame.kind == Kind.RECOVER:
        reading.recoveries[who] = messages.decode_shares(payload)


def verify(terms: ElectionTerms, board: Sequence[bytes]) -> Result:
    """The result of a finished election, recomputed from its board.

    Raises:
        MessageError: as `read`.
        NotAgreedError: fewer than the quorum vouched for the part before the reveals.
        UnrecoverableError: a nonce was neither revealed nor rebuilt.
        NoCandidateError: nobody dealt rightly.
    """
    reading = read(terms, board)
    require_quorum(terms, reading, board_digest(terms, board))
    excluded = reading.disqualified(terms)
    nonces: dict[int, bytes] = {}
    silent = set(reading.silent(terms))
    for dealer, commitment in sorted(reading.commitments.items()):
        if dealer in excluded:
            continue
        if dealer not in silent:
            nonces[dealer] = reading.reveals[dealer]
            continue
        held = [(h, table[dealer]) for h, table in reading.recoveries.items() if dealer in table]
        held += reading.answers.get(dealer, {}).items()
        valid = {
            h + 1: share
            for h, share in held
            if h in commitment.shares and share_hash(terms, dealer, h, share) == commitment.shares[h][0]
        }
        if len(valid) < terms.threshold:
            raise errors.UnrecoverableError(
                f"party {dealer} did not reveal, and {len(valid)} of its shares are there;"
                f" {terms.threshold} needed"
            )
        nonce = shares.rebuild(valid, terms.threshold)
        if nonce is not None and opens(terms, dealer, commitment, nonce):
            nonces[dealer] = nonce
        else:
            excluded.add(dealer)
    if not nonces:
        raise errors.NoCandidateError("nobody committed to a nonce properly")
    randomness = beacon(terms.session, nonces)
    return Result(succession(randomness, nonces), tuple(sorted(excluded)), randomness)


def require_quorum(terms: ElectionTerms, reading: Reading, expected: bytes) -> None:
    """Enough parties saw the same board.

    Raises:
        NotAgreedError: too few.
    """
    count = sum(vouch == expected for vouch in reading.vouches.values())
    if count < terms.quorum:
        raise errors.NotAgreedError(
            f"{count} of {terms.parties} parties vouch for this board; {terms.quorum} needed"
        )


def board_digest(terms: ElectionTerms, board: Iterable[bytes]) -> bytes:
    """What parties vouch for: everything posted before the vouching, in whatever order it was posted."""
    before = sorted(data for data in board if parse_frame(data).kind < Kind.VOUCH)
    return digest(b"board", terms.session, *before)


def deal(terms: ElectionTerms, dealer: int, nonce: bytes, holders: Iterable[int]) -> dict[int, int]:
    """Every holder's share of a nonce; the polynomial follows from the nonce."""
    stream = KeyStream(digest(b"polynomial", terms.session, dealer.to_bytes(4, "big"), nonce))
    coefficients = shares.draw_coefficients(nonce, terms.threshold, stream.take)
    return {
        point - 1: value for point, value in shares.evaluate(coefficients, (h + 1 for h in holders)).items()
    }


def nonce_hash(terms: ElectionTerms, dealer: int, nonce: bytes) -> bytes:
    """What a dealer commits to."""
    return digest(b"nonce", terms.session, dealer.to_bytes(4, "big"), nonce)


def share_hash(terms: ElectionTerms, dealer: int, holder: int, share: int) -> bytes:
    """What a dealer posts of every share."""
    ends = dealer.to_bytes(4, "big") + holder.to_bytes(4, "big")
    return digest(b"share", terms.session, ends, share.to_bytes(shares.SHARE_BYTES, "big"))


def opens(terms: ElectionTerms, dealer: int, commitment: Commitment, nonce: bytes) -> bool:
    """Whether a nonce is the one promised, and all hashed shares are its."""
    if nonce_hash(terms, dealer, nonce) != commitment.nonce:
        return False
    dealt = deal(terms, dealer, nonce, commitment.shares)
    return all(share_hash(terms, dealer, h, share) == commitment.shares[h][0] for h, share in dealt.items())

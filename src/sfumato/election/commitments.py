"""What a dealer commits to, and what opens it.

The rule that makes refusing useless: a dealer's nonce is *decided by what it posted before anybody revealed*.
Its sharing polynomial is derived from the nonce, and it posts a hash of every share. If all hashed shares are
on that one polynomial, its nonce counts, revealed by itself or rebuilt by any majority; if not, no reveal
opens it and no majority rebuilds it, and the dealer is out, whatever anybody does later. Holders who got no
proper share complain before the reveal; the dealer publishes that share or is out.

Every hash holds the dealer's number: a commitment that another party copies is opened by nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from sfumato.election.messages import Commitment
from sfumato.election.terms import ElectionTerms
from sfumato.secure_aggregation import shares
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import digest


def deal(terms: ElectionTerms, dealer: int, nonce: bytes, holders: Iterable[int]) -> dict[int, int]:
    """Share a 32-byte ``nonce``: one field element for each of ``holders``, by number of the holder.

    The sharing polynomial follows from the nonce and the ``dealer`` (a party by number), so that everybody
    can compute it once the nonce is known.
    """
    stream = KeyStream(digest(b"polynomial", terms.session, dealer.to_bytes(4, "big"), nonce))
    coefficients = shares.draw_coefficients(nonce, terms.threshold, stream.take)
    return {
        point - 1: value
        for point, value in shares.polynomial_values(coefficients, (h + 1 for h in holders)).items()
    }


def nonce_hash(terms: ElectionTerms, dealer: int, nonce: bytes) -> bytes:
    """The 32-byte hash by which ``dealer`` commits to its ``nonce`` (32 bytes)."""
    return digest(b"nonce", terms.session, dealer.to_bytes(4, "big"), nonce)


def share_hash(terms: ElectionTerms, dealer: int, holder: int, share: int) -> bytes:
    """The 32-byte hash by which ``dealer`` commits to the share that it gives to ``holder``."""
    ends = dealer.to_bytes(4, "big") + holder.to_bytes(4, "big")
    return digest(b"share", terms.session, ends, share.to_bytes(shares.SHARE_BYTES, "big"))


def is_opening(terms: ElectionTerms, dealer: int, commitment: Commitment, nonce: bytes) -> bool:
    """Whether ``nonce`` opens a ``commitment`` of ``dealer``: it has the hashes of it and of its shares."""
    if nonce_hash(terms, dealer, nonce) != commitment.nonce:
        return False
    dealt = deal(terms, dealer, nonce, commitment.shares)
    return all(share_hash(terms, dealer, h, share) == commitment.shares[h][0] for h, share in dealt.items())

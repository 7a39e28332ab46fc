"""From nonces to a winner and its successors: a uniform order that no minority can steer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sfumato.wire.errors import NoCandidateError
from sfumato.wire.key_stream import KeyStream
from sfumato.wire.keys import Entropy, digest


def draw_nonces(parties: int, entropy: Entropy) -> dict[int, bytes]:
    """Draw a random nonce of 32 bytes for each of ``parties`` parties, by number, from ``entropy``."""
    return {party: entropy(32) for party in range(parties)}


def beacon(session: bytes, nonces: Mapping[int, bytes]) -> bytes:
    """Public randomness: a 32-byte hash of the session and all ``nonces`` (by party).

    It is uniform if at least one nonce is, and the others were fixed before that one was known.
    """
    ordered = sorted(nonces.items())
    return digest(b"beacon", session, *(party.to_bytes(4, "big") + nonce for party, nonce in ordered))


def succession(randomness: bytes, candidates: Collection[int]) -> tuple[int, ...]:
    """All ``candidates`` in a uniformly random order: the first is elected, the next follows if it fails.

    The order follows from ``randomness``, the `beacon`. Indices are drawn by rejection, without modulo bias.
    """
    return tuple(KeyStream(digest(b"succession", randomness)).permutation(sorted(candidates)))


def elected(order: Sequence[int], failed: Collection[int] = ()) -> int:
    """The first party in ``order`` that is not in ``failed``.

    Raises:
        NoCandidateError: all have failed.
    """
    for party in order:
        if party not in failed:
            return party
    raise NoCandidateError(f"all {len(order)} candidates have failed")

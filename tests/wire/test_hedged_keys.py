"""Keys of a session need two secrets: a generator that repeats itself, or that is known, gives none away."""

from __future__ import annotations

import hashlib
import os

from sfumato.wire.keys import Identity, session_entropy

SESSIONS = hashlib.sha256(b"one").digest(), hashlib.sha256(b"other").digest()


def test_a_stuck_generator_gives_another_session_party_or_identity_other_keys() -> None:
    """Another identity is another machine: whoever has a copy of the generator does not compute its keys."""
    identities = Identity(), Identity()
    found = {
        session_entropy(bytes, identity, session, number)(96)
        for identity in identities
        for session in SESSIONS
        for number in (0, 1)
    }
    assert len(found) == 8
    assert session_entropy(bytes, identities[0], SESSIONS[0], 0)(96) in found


def test_whoever_has_the_signing_key_does_not_compute_what_the_generator_gave() -> None:
    identity = Identity()
    fresh = {session_entropy(os.urandom, identity, SESSIONS[0], 0)(32) for _ in range(9)}
    assert len(fresh) == 9


def test_a_secret_of_an_identity_is_no_signature_that_others_see() -> None:
    """It is a hash of one, of bytes that no frame has; another purpose or part, another secret."""
    identity, other = Identity(), Identity()
    asked = [(b"one", b"a"), (b"one", b"b"), (b"other", b"a"), (b"one", b"a", b"")]
    found = {one.secret(*parts) for one in (identity, other) for parts in asked}
    assert len(found) == 8
    assert identity.secret(*asked[0]) in found
    assert {len(secret) for secret in found} == {32}

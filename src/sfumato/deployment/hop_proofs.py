"""What proves that both ends of a hop are who the terms say, and play the same run.

TLS compares certificates with those in ``hops.yaml``, and whoever writes or carries that file could put other
ones there. So a certificate counts only with its *binding*, a signature by the key that signs the party's
frames: the one that the terms list, which consents pin and the session hashes. It is looked at before
anything is dialed. Then both ends introduce themselves over the new connection: each signs, with that same
key, the session, both certificates, and a nonce of each end. So nobody stands between them with certificates
of his own, an introduction of an earlier connection is worth nothing, also to who has got hold of the keys of
connections, and who plays another run is told apart at once.

    binding              Ed25519 over H("hop certificate", certificate)
    parent → child       its nonce, 32 bytes
    child → parent       its nonce
    parent → child       its introduction
    child → parent       its introduction
    introduction         SFMT · session, 32 bytes · Ed25519 over
                         H("hop", role, session, both certificates, both nonces)

The parent speaks first: a child that it refuses has sent nothing by then, and reads why. Roles are "parent"
and "child": neither end can send the other's introduction back to it. Of certificates and nonces the parent's
comes first. H is `wire.keys.digest`, which no two purposes or inputs share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from sfumato.deployment.frame_exchange import GREETING
from sfumato.deployment.hop_keys import HopKey
from sfumato.errors import RunError
from sfumato.wire.errors import TamperedMessageError
from sfumato.wire.keys import KEY_BYTES, SIGNATURE_BYTES, Identity, check_signature, digest

NONCE_BYTES = 32
INTRODUCTION_BYTES = len(GREETING) + KEY_BYTES + SIGNATURE_BYTES
_PARENT, _CHILD = b"parent", b"child"


@dataclass(frozen=True)
class Neighbour:
    """The party at the other end of a hop.

    Attributes:
        number: its number in the terms.
        name: by the terms.
        key: the public key of its signatures on frames, 32 bytes.
        certificate: of its connections, as bytes (DER).
    """

    number: int
    name: str
    key: bytes
    certificate: bytes


@dataclass(frozen=True)
class Nonces:
    """The nonces that both ends drew for one connection, `NONCE_BYTES` each."""

    parent: bytes
    child: bytes


def fresh_nonce() -> bytes:
    """A new random nonce for one connection, `NONCE_BYTES` long."""
    return os.urandom(NONCE_BYTES)


@dataclass(frozen=True)
class OwnEnd:
    """What a party needs to introduce itself over all its hops.

    Attributes:
        hop: the key of its connections.
        identity: that signs its frames.
        session: of the terms, 32 bytes.
    """

    hop: HopKey
    identity: Identity
    session: bytes

    def to_child(self, child: Neighbour, nonces: Nonces) -> bytes:
        """The introduction that a parent sends to a child, as bytes."""
        return self._introduction(_PARENT, self.hop.certificate, child.certificate, nonces)

    def to_parent(self, parent: Neighbour, nonces: Nonces) -> bytes:
        """The introduction that a child sends to its parent, as bytes."""
        return self._introduction(_CHILD, parent.certificate, self.hop.certificate, nonces)

    def require_child(self, child: Neighbour, said: bytes, nonces: Nonces) -> None:
        """Check that the bytes ``said`` are the introduction of ``child``, with ``nonces``.

        Errors are those of `_require`.
        """
        self._require(_CHILD, child, said, self.hop.certificate, child.certificate, nonces)

    def require_parent(self, parent: Neighbour, said: bytes, nonces: Nonces) -> None:
        """Check that the bytes ``said`` are the introduction of ``parent``, with ``nonces``.

        Errors are those of `_require`.
        """
        self._require(_PARENT, parent, said, parent.certificate, self.hop.certificate, nonces)

    def _introduction(self, role: bytes, parent: bytes, child: bytes, nonces: Nonces) -> bytes:
        """Greeting, session and own signature; ``parent`` and ``child``: certificates (DER) of the hop."""
        statement = _signed(role, self.session, parent, child, nonces)
        return GREETING + self.session + self.identity.sign(statement)

    def _require(
        self, role: bytes, other: Neighbour, said: bytes, parent: bytes, child: bytes, nonces: Nonces
    ) -> None:
        """Check what the other end said to introduce itself.

        Args:
            role: of the speaker, as it signed it.
            other: who must be speaking.
            said: the introduction: greeting, session and signature.
            parent: certificate (DER) of the parent on this hop.
            child: certificate (DER) of the child.
            nonces: of this connection, so that an introduction over another one does not count.

        Raises:
            RunError: it is not the owner of the key in the terms who speaks, or its terms are others.
        """
        session, signature = said[len(GREETING) : -SIGNATURE_BYTES], said[-SIGNATURE_BYTES:]
        try:
            if len(said) != INTRODUCTION_BYTES or not said.startswith(GREETING):
                raise TamperedMessageError
            check_signature(other.key, signature, _signed(role, session, parent, child, nonces))
        except TamperedMessageError:
            wrong = f"does not show the key {other.key.hex()[:16]}… that the terms have for it"
            raise RunError(f"{other.name}: {wrong}") from None
        if session != self.session:
            has = "has other terms: another spec, version, purpose, label or list of keys"
            raise RunError(
                f"{other.name}: {has} (session {session.hex()[:12]}, here {self.session.hex()[:12]})"
            )


def _signed(role: bytes, session: bytes, parent: bytes, child: bytes, nonces: Nonces) -> bytes:
    """What an introduction signs; ``parent`` and ``child``: their certificates."""
    return digest(b"hop", role, session, parent, child, nonces.parent, nonces.child)

"""What proves that both ends of a hop are who the terms say, and play the same run.

TLS compares certificates with those in ``hops.yaml``, and whoever writes or carries that file could put other
ones there. So a certificate counts only with its *binding*, a signature by the key that signs the party's
frames: the one that the terms list, which consents pin and the session hashes. It is looked at before
anything is dialed. Then both ends introduce themselves over the new connection: each signs, with that same
key, the session and both certificates. So nobody stands between them with certificates of his own, and who
plays another run is told apart at once.

    binding         Ed25519 over H("hop certificate", certificate)
    introduction    SFMT · session, 32 bytes · Ed25519 over H("hop", role, session, both certificates)

Roles are "parent" and "child": neither end can send the other's introduction back to it. H is
`wire.keys.digest`, which no two purposes or inputs share.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.deployment.frame_exchange import GREETING
from sfumato.deployment.hop_keys import HopKey
from sfumato.errors import RunError
from sfumato.wire.errors import TamperedMessageError
from sfumato.wire.keys import KEY_BYTES, SIGNATURE_BYTES, Identity, check_signature, digest

INTRODUCTION_BYTES = len(GREETING) + KEY_BYTES + SIGNATURE_BYTES
_PARENT, _CHILD = b"parent", b"child"


@dataclass(frozen=True)
class Neighbour:
    """Who is at the other end of a hop.

    Attributes:
        number: its own, in the terms.
        name: by which the terms know it.
        key: that it signs frames with, 32 bytes.
        certificate: of its connections, as bytes (DER).
    """

    number: int
    name: str
    key: bytes
    certificate: bytes


@dataclass(frozen=True)
class OwnEnd:
    """A party's own end of all its hops.

    Attributes:
        hop: the key of its connections.
        identity: that signs its frames.
        session: of the terms, 32 bytes.
    """

    hop: HopKey
    identity: Identity
    session: bytes

    def to_child(self, child: Neighbour) -> bytes:
        """How a parent introduces itself to a child."""
        return self._introduction(_PARENT, self.hop.certificate, child.certificate)

    def to_parent(self, parent: Neighbour) -> bytes:
        """How a child introduces itself to its parent."""
        return self._introduction(_CHILD, parent.certificate, self.hop.certificate)

    def require_child(self, child: Neighbour, said: bytes) -> None:
        """Refuse what a child says that is not its introduction; see `_require`."""
        self._require(_CHILD, child, said, self.hop.certificate, child.certificate)

    def require_parent(self, parent: Neighbour, said: bytes) -> None:
        """Refuse what a parent says that is not its introduction; see `_require`."""
        self._require(_PARENT, parent, said, parent.certificate, self.hop.certificate)

    def _introduction(self, role: bytes, parent: bytes, child: bytes) -> bytes:
        signed = digest(b"hop", role, self.session, parent, child)
        return GREETING + self.session + self.identity.sign(signed)

    def _require(self, role: bytes, other: Neighbour, said: bytes, parent: bytes, child: bytes) -> None:
        """Refuse another party, and another session.

        Raises:
            RunError: it is not the owner of the key in the terms who speaks, or its terms are others.
        """
        session, signature = said[len(GREETING) : -SIGNATURE_BYTES], said[-SIGNATURE_BYTES:]
        try:
            if len(said) != INTRODUCTION_BYTES or not said.startswith(GREETING):
                raise TamperedMessageError
            check_signature(other.key, signature, digest(b"hop", role, session, parent, child))
        except TamperedMessageError:
            wrong = f"does not show the key {other.key.hex()[:16]}… that the terms have for it"
            raise RunError(f"{other.name}: {wrong}") from None
        if session != self.session:
            has = "has other terms: another spec, version, purpose, label or list of keys"
            raise RunError(
                f"{other.name}: {has} (session {session.hex()[:12]}, here {self.session.hex()[:12]})"
            )

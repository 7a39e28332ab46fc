"""Helpers for parties that are reproducible to the byte."""

from __future__ import annotations

from collections.abc import Callable

from repeatable_entropy import repeatable

from sfumato.secure_aggregation.terms import SessionTerms, complete_terms
from sfumato.wire.keys import Entropy, Identity

_FIELD = 2**255 - 19


def other_encodings(public: bytes) -> list[bytes]:
    """Other bytes for an X25519 key: it agrees on the same secrets with everybody (RFC 7748, section 5).

    With bit 255, which is ignored; plus the point (0, 0) of order 2, which takes u to 1/u; and plus the
    field's characteristic, where that fits into 255 bits.
    """
    u = int.from_bytes(public, "little") % 2**255
    found = [u + 2**255, pow(u, -1, _FIELD)] + ([u + _FIELD] if u < 19 else [])
    return [number.to_bytes(32, "little") for number in found]


class Parties:
    """Identities and entropy from one seed."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.seed = seed
        self.identities = [Identity(repeatable(b"id %d %d" % (seed, i))) for i in range(count)]
        self.server = Identity(repeatable(b"server %d" % seed))
        self.public = tuple(identity.public for identity in self.identities)

    def entropy(self, salt: object = "") -> Callable[[int], Entropy]:
        return lambda i: repeatable(f"{self.seed} {salt} {i}".encode())

    def complete(self, length: int, threshold: int, label: str = "test", **other: object) -> SessionTerms:
        fields = {"threat_model": "malicious", "colluders": 0, **other}
        return complete_terms(
            label, self.public, self.server.public, length=length, threshold=threshold, **fields
        )

    def sparse(self, length: int, threshold: int, degree: int, shares: int, **other: object) -> SessionTerms:
        fields = {"threat_model": "semi-honest", "colluders": 0, "label": "test", **other}
        return SessionTerms(
            public_keys=self.public,
            server_key=self.server.public,
            length=length,
            threshold=threshold,
            degree=degree,
            share_threshold=shares,
            graph_seed=b"public",
            **fields,
        )

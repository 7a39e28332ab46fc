"""Helpers for parties that are reproducible to the byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sfumato.transport.secure_aggregation.keys import Entropy, Identity, repeatable
from sfumato.transport.secure_aggregation.terms import Terms, complete_terms


class Parties:
    """Identities and entropy from one seed."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.seed = seed
        self.identities = [Identity(repeatable(b"id %d %d" % (seed, i))) for i in range(count)]
        self.server = Identity(repeatable(b"server %d" % seed))
        self.public = tuple(identity.public for identity in self.identities)

    def entropy(self, salt: object = "") -> Callable[[int], Entropy]:
        return lambda i: repeatable(f"{self.seed} {salt} {i}".encode())

    def complete(self, length: int, threshold: int, label: str = "test", **other: object) -> Terms:
        return complete_terms(
            label, self.public, self.server.public, length=length, threshold=threshold, **other
        )

    def sparse(self, length: int, threshold: int, degree: int, shares: int, label: str = "test") -> Terms:
        return Terms(label, self.public, self.server.public, length, threshold, degree, shares, b"public")


@pytest.fixture(name="make_parties")
def fixture_make_parties() -> type[Parties]:
    return Parties

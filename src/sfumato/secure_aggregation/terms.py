"""What all parties of a session agree on beforehand; its hash names the session.

How the terms reach the parties untouched is outside the protocol, like the public keys in them: a party that
is handed other terms is in another session, and no message of it is accepted in this one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

from sfumato.secure_aggregation import graph
from sfumato.secure_aggregation.masks import ring_type
from sfumato.secure_aggregation.threats import ThreatModel, require_guarantee
from sfumato.wire.errors import UnsafeTermsError
from sfumato.wire.keys import KEY_BYTES, digest


@dataclass(frozen=True)
class SessionTerms:
    """Public terms of one session. What they promise against whom: `threats`.

    Attributes:
        label: run, round and zone. Whoever took part under a label takes part under it in no other session,
            whatever the terms.
        public_keys: the parties' identities in order of their numbers, Ed25519.
        server_key: the server's identity.
        length: of the vectors.
        threshold: fewest survivors whose sum may be learnt; more than half of all.
        degree: neighbours of each party; ``parties - 1`` is the complete graph.
        share_threshold: shares that rebuild a secret, of the ``degree + 1`` handed out (a party keeps one
            itself); more than half of them, else two disjoint halves could give up both secrets of a party.
        graph_seed: public randomness.
        threat_model: what the server and its colluders may do. Towards a "malicious" server parties check
            each other's signatures, and vouch for one list of survivors before they unmask (a fifth round);
            a "semi-honest" one follows the protocol and has checked signatures itself.
        colluders: parties feared to collude with the server.
        bits: of the ring: 16, 32 or 64.

    Raises:
        ValueError: a number is out of its range.
        UnsafeTermsError: the guarantee does not hold under these terms.
    """

    label: str
    public_keys: tuple[bytes, ...]
    server_key: bytes
    length: int
    threshold: int
    degree: int
    share_threshold: int
    graph_seed: bytes
    threat_model: ThreatModel
    colluders: int
    bits: int = 32

    def __post_init__(self) -> None:
        """Check all numbers.

        Raises:
            ValueError: one is out of range.
            UnsafeTermsError: nothing is guaranteed.
        """
        ring_type(self.bits)
        parties = self.parties
        if any(len(key) != KEY_BYTES for key in self.public_keys):
            raise ValueError(f"public_keys: must be of {KEY_BYTES} bytes each")
        if len(set(self.public_keys)) != parties:
            raise UnsafeTermsError("public_keys: must be distinct: nobody counts twice")
        if not 2 <= parties < 1 << 16:
            raise ValueError(f"public_keys: got {parties}; must be 2..65535 parties")
        if len(self.server_key) != KEY_BYTES:
            raise ValueError(f"server_key: got {len(self.server_key)} bytes; must be {KEY_BYTES}")
        if not 1 <= self.length < 1 << 40:
            raise ValueError(f"length: got {self.length}; must be at least 1")
        if not parties < 2 * self.threshold <= 2 * parties:
            raise ValueError(
                f"threshold: got {self.threshold}; must be more than half of {parties} and at most all"
            )
        if not self.degree + 1 < 2 * self.share_threshold <= 2 * self.degree + 2:
            raise ValueError(
                f"share_threshold: got {self.share_threshold}; must be more than half of {self.degree + 1}"
                " (neighbours and oneself) and at most all"
            )
        if self.threat_model not in ("semi-honest", "malicious"):
            raise ValueError(f"threat_model: got {self.threat_model!r}; must be 'semi-honest' or 'malicious'")
        if not 0 <= self.colluders < parties:
            raise ValueError(f"colluders: got {self.colluders}; must be in 0..{parties - 1}")
        _ = self.neighbours
        require_guarantee(
            parties=parties,
            threshold=self.threshold,
            degree=self.degree,
            share_threshold=self.share_threshold,
            threat_model=self.threat_model,
            colluders=self.colluders,
        )

    @property
    def parties(self) -> int:
        """The number of enrolled parties."""
        return len(self.public_keys)

    @cached_property
    def neighbours(self) -> list[tuple[int, ...]]:
        """The neighbours of each party in the graph, ascending, by party."""
        return graph.neighbours(self.parties, self.degree, self.graph_seed)

    @cached_property
    def session(self) -> bytes:
        """The session's 32-byte identifier: a hash of all terms."""
        numbers = struct.pack(
            ">QIIIIBB",
            self.length,
            self.threshold,
            self.degree,
            self.share_threshold,
            self.colluders,
            self.bits,
            self.threat_model == "malicious",
        )
        keys = b"".join(self.public_keys)
        return digest(b"terms", self.label.encode(), keys, self.server_key, numbers, self.graph_seed)


def complete_terms(
    label: str,
    public_keys: tuple[bytes, ...],
    server_key: bytes,
    *,
    length: int,
    threshold: int,
    threat_model: ThreatModel,
    colluders: int,
    bits: int = 32,
) -> SessionTerms:
    """The terms of a session in which every party is a neighbour of every other (Bonawitz et al. 2017).

    Args:
        label: run, round and zone; a party takes part under it in no other session.
        public_keys: the parties' Ed25519 keys, in order of their numbers.
        server_key: the server's.
        length: of the vectors.
        threshold: fewest survivors whose sum may be learnt, and shares that rebuild a secret.
        threat_model: what the server and its colluders may do.
        colluders: parties feared to collude with the server.
        bits: of the ring: 16, 32 or 64.

    Raises:
        ValueError: a number is out of its range.
        UnsafeTermsError: the guarantee does not hold under these terms.
    """
    return SessionTerms(
        label=label,
        public_keys=public_keys,
        server_key=server_key,
        length=length,
        threshold=threshold,
        degree=len(public_keys) - 1,
        share_threshold=threshold,
        graph_seed=b"",
        threat_model=threat_model,
        colluders=colluders,
        bits=bits,
    )

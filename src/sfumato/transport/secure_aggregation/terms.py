"""What all parties of a session agree on beforehand; its hash names the session.

How the terms reach the parties untouched is outside the protocol, like the public keys in them: a party that
is handed other terms is in another session, and no message of it is accepted in this one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from sfumato.transport.secure_aggregation import graph
from sfumato.transport.secure_aggregation.keys import KEY_BYTES, digest
from sfumato.transport.secure_aggregation.masks import ring_type

ServerTrust: TypeAlias = Literal["malicious", "honest-but-curious"]


@dataclass(frozen=True)
class Terms:
    """Public terms of one session.

    What is tolerated, with the complete graph of n parties (``degree = n - 1``, ``share_threshold = threshold
    = t``): an honest-but-curious server with t - 1 colluding parties, a malicious one with 2t - n - 1, and n
    - t dropouts. Over a sparse graph: `graph.choose_neighbourhood`, with overwhelming probability over
    ``graph_seed``.

    Attributes:
        label: run, round and zone: never the same twice with the same keys.
        public_keys: the parties' identities in order of their numbers, Ed25519.
        server_key: the server's identity.
        length: of the vectors.
        threshold: fewest survivors whose sum may be learnt; more than half of all.
        degree: neighbours of each party; ``parties - 1`` is the complete graph.
        share_threshold: shares that rebuild a secret, of the ``degree + 1`` handed out (a party keeps one
            itself); more than half of them, else two disjoint halves could give up both secrets of a party.
        graph_seed: public randomness.
        bits: of the ring: 16, 32 or 64.
        server: what it is trusted with. Towards a "malicious" one parties check each other's signatures, and
            vouch for one list of survivors before they unmask (a fifth round); an "honest-but-curious" one
            has done so itself.

    Raises:
        ValueError: a number is out of its range.
    """

    label: str
    public_keys: tuple[bytes, ...]
    server_key: bytes
    length: int
    threshold: int
    degree: int
    share_threshold: int
    graph_seed: bytes
    bits: int = 32
    server: ServerTrust = "malicious"

    def __post_init__(self) -> None:
        ring_type(self.bits)
        parties = self.parties
        if len(set(self.public_keys)) != parties or any(len(key) != KEY_BYTES for key in self.public_keys):
            raise ValueError(f"public_keys: must be distinct and of {KEY_BYTES} bytes each")
        if not 2 <= parties < 1 << 16:
            raise ValueError(f"public_keys: got {parties}; must be 2..65535 parties")
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
        if self.server not in ("malicious", "honest-but-curious"):
            raise ValueError(f"server: got {self.server!r}; must be 'malicious' or 'honest-but-curious'")
        _ = self.neighbours

    @property
    def parties(self) -> int:
        """How many are enrolled."""
        return len(self.public_keys)

    @cached_property
    def neighbours(self) -> list[tuple[int, ...]]:
        """Each party's neighbours."""
        return graph.neighbours(self.parties, self.degree, self.graph_seed)

    @cached_property
    def session(self) -> bytes:
        """The session's name: a hash of all terms."""
        numbers = struct.pack(
            ">QIIIBB",
            self.length,
            self.threshold,
            self.degree,
            self.share_threshold,
            self.bits,
            self.server == "malicious",
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
    bits: int = 32,
    server: ServerTrust = "malicious",
) -> Terms:
    """Terms over the complete graph: Bonawitz et al. 2017."""
    return Terms(
        label=label,
        public_keys=public_keys,
        server_key=server_key,
        length=length,
        threshold=threshold,
        degree=len(public_keys) - 1,
        share_threshold=threshold,
        graph_seed=b"",
        bits=bits,
        server=server,
    )

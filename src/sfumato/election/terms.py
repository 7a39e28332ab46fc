"""What all parties of an election agree on beforehand; its hash names the election."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

from sfumato.election.odds import Adversary, require_minority
from sfumato.wire.keys import KEY_BYTES, digest


@dataclass(frozen=True)
class ElectionTerms:
    """Public terms of one election; their hash names it.

    Attributes:
        label: run, round and zone. Whoever took part under a label takes part under it in no other election,
            whatever the terms. A repeated election is another draw: who may repeat one chooses among results.
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
        """Raise a ValueError unless keys are 3 to 65,535 distinct ones of 32 bytes.

        A TooManyColludersError for colluders that are half of the parties or more (crash), or a third
        (Byzantine).
        """
        if len(set(self.public_keys)) != self.parties or any(
            len(key) != KEY_BYTES for key in self.public_keys
        ):
            raise ValueError(f"public_keys: must be distinct and of {KEY_BYTES} bytes each")
        if not 3 <= self.parties < 1 << 16:
            raise ValueError(f"public_keys: got {self.parties}; must be 3..65535 parties")
        require_minority(self.parties, self.colluders, self.adversary)

    @property
    def parties(self) -> int:
        """The number of parties."""
        return len(self.public_keys)

    @property
    def threshold(self) -> int:
        """Shares that rebuild a nonce: a majority, more than any tolerated coalition has."""
        return self.parties // 2 + 1

    @property
    def quorum(self) -> int:
        """How many parties must vouch for the same board before anybody reveals."""
        return self.threshold if self.adversary == "crash" else 2 * self.parties // 3 + 1

    @cached_property
    def session(self) -> bytes:
        """The 32-byte identifier of the election: a hash of its terms."""
        numbers = struct.pack(">I?", self.colluders, self.adversary == "byzantine")
        return digest(b"election", self.label.encode(), b"".join(self.public_keys), numbers)

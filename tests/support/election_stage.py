"""Elections that an attacker stops and bends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from transport_parties import Parties

from sfumato.election.board import Board
from sfumato.election.messages import Commitment, ElectionMessageKind, decode_commitment
from sfumato.election.party import Candidate
from sfumato.election.terms import ElectionTerms
from sfumato.election.transcript import ElectionResult, verify_transcript
from sfumato.wire.errors import TransportError
from sfumato.wire.frames import EVERYBODY, Frame, parse_frame, seal_frame

Bend = Callable[[ElectionMessageKind, bytes | None], list[bytes]]
"""What a cheater posts instead of what the protocol would."""


class Cheater(Candidate):
    """A candidate that does not mind what of its own is on the board."""

    def _require_own_posts(self, board: Any) -> None:
        pass


class Zone:
    """An election of ten parties that can be stopped before the posts of a phase are made public."""

    def __init__(
        self,
        label: str = "zone 0, round 0",
        adversary: str = "byzantine",
        colluders: int = 3,
        count: int = 10,
        cheaters: Mapping[int, Bend] | None = None,
    ) -> None:
        self.parties = Parties(count)
        self.terms = ElectionTerms(label, self.parties.public, colluders, adversary)
        self.board = Board(self.terms)
        self.bends = dict(cheaters or {})
        entropy = self.parties.entropy()
        self.candidates = [
            (Cheater if i in self.bends else Candidate)(i, self.terms, identity, entropy(i))
            for i, identity in enumerate(self.parties.identities)
        ]
        self.made: dict[ElectionMessageKind, dict[int, bytes]] = {}
        self.rejected: list[TransportError] = []

    def make(self) -> dict[int, list[bytes]]:
        """Everybody's posts of the open phase."""
        kind, seen = self.board.phase, self.board.posts
        assert kind is not None
        own = {i: candidate.post(kind, seen) for i, candidate in enumerate(self.candidates)}
        self.made[kind] = {i: data for i, data in own.items() if data is not None}
        return {
            i: self.bends[i](kind, data) if i in self.bends else [data] if data is not None else []
            for i, data in own.items()
        }

    def until(self, stop: ElectionMessageKind | None) -> Zone:
        """Play on; posts of ``stop`` are made and not posted."""
        while self.board.phase is not None:
            posts = self.make()
            if self.board.phase is stop:
                return self
            for data in (data for own in posts.values() for data in own):
                try:
                    self.board.post(data)
                except TransportError as error:
                    self.rejected.append(error)
            self.board.close()
        return self

    @property
    def result(self) -> ElectionResult:
        """As anybody works it out."""
        return verify_transcript(self.terms, self.board.posts)

    def signed(self, kind: ElectionMessageKind, payload: bytes, party: int, /, **changes: Any) -> bytes:
        """A post that a party signs."""
        frame = Frame(kind, self.terms.session, party, EVERYBODY, payload)
        return seal_frame(dataclasses.replace(frame, **changes), self.parties.identities[party])

    def payload(self, kind: ElectionMessageKind, party: int) -> bytes:
        """Of a post that was made."""
        return parse_frame(self.made[kind][party]).payload

    def commitment(self, party: int) -> Commitment:
        """That a party posted."""
        return decode_commitment(self.payload(ElectionMessageKind.COMMIT, party))

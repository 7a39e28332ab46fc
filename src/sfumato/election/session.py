"""Drives the parties of one election over a public board, in one process; for the simulator and tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sfumato.election.board import Board
from sfumato.election.messages import ElectionMessageKind
from sfumato.election.party import Candidate
from sfumato.election.terms import ElectionTerms
from sfumato.election.transcript import ElectionResult, verify_transcript
from sfumato.wire.errors import TransportError
from sfumato.wire.keys import Entropy, Identity

Wire: TypeAlias = Callable[[ElectionMessageKind, int, bytes], Sequence[bytes]]
"""What becomes of a post: (phase, party, bytes) to what reaches the board."""


@dataclass(frozen=True)
class Election:
    """A finished election.

    Attributes:
        board: everything that was posted: `transcript.verify_transcript` repeats the result from it.
        result: order of succession, exclusions, public randomness.
        rejected: (phase, party, error) of every post that the board or its own party refused.
    """

    board: tuple[bytes, ...]
    result: ElectionResult
    rejected: tuple[tuple[ElectionMessageKind, int, TransportError], ...]


def elect(
    terms: ElectionTerms,
    identities: Sequence[Identity],
    *,
    drop: Mapping[ElectionMessageKind, Collection[int]] | None = None,
    entropy: Callable[[int], Entropy] = lambda _: os.urandom,
    wire: Wire = lambda _kind, _party, data: [data],
) -> Election:
    """Run an election in this process.

    A party that meets an error sends nothing more; the error is kept in the result.

    Args:
        terms: of the election.
        identities: the parties', in order.
        drop: phase to the parties that stop, for good, before their post of it.
        entropy: party number to its source of random bytes.
        wire: decides what arrives of each post.

    Raises:
        ElectionError: there is no result.
    """
    parties = {i: Candidate(i, terms, identity, entropy(i)) for i, identity in enumerate(identities)}
    board = Board(terms)
    silent: set[int] = set()
    rejected: list[tuple[ElectionMessageKind, int, TransportError]] = []
    while (kind := board.phase) is not None:
        silent.update((drop or {}).get(kind, ()))
        seen = board.posts
        for i, party in parties.items():
            if i in silent:
                continue
            try:
                data = party.post(kind, seen)
            except TransportError as error:
                rejected.append((kind, i, error))
                silent.add(i)
                continue
            for arriving in [] if data is None else wire(kind, i, data):
                try:
                    board.post(arriving)
                except TransportError as error:
                    rejected.append((kind, i, error))
        board.close()
    return Election(board.posts, verify_transcript(terms, board.posts), tuple(rejected))

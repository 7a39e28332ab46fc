"""Drives the parties of one election over a public board, in one process; for the simulator and tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sfumato.transport.election.messages import Kind
from sfumato.transport.election.party import Candidate
from sfumato.transport.election.transcript import ElectionTerms, Result, verify
from sfumato.transport.secure_aggregation.keys import Entropy, Identity

Wire: TypeAlias = Callable[[Kind, int, bytes], Sequence[bytes]]
"""What becomes of a post: (phase, party, bytes) to what stands on the board."""


@dataclass(frozen=True)
class Election:
    """A finished election.

    Attributes:
        board: everything that was posted: `transcript.verify` repeats the result from it.
        result: order of succession, exclusions, public randomness.
    """

    board: tuple[bytes, ...]
    result: Result


def elect(
    terms: ElectionTerms,
    identities: Sequence[Identity],
    *,
    drop: Mapping[Kind, Collection[int]] | None = None,
    entropy: Callable[[int], Entropy] = lambda _: os.urandom,
    wire: Wire = lambda _kind, _party, data: [data],
) -> Election:
    """Run an election.

    Args:
        terms: of the election.
        identities: the parties', in order.
        drop: who falls silent, for good, before its post of a phase.
        entropy: each party's, by number.
        wire: what becomes of posts.

    Raises:
        ElectionError: there is no result.
        MessageError: the board was tampered with.
    """
    parties = {i: Candidate(i, terms, identity, entropy(i)) for i, identity in enumerate(identities)}
    board: list[bytes] = []
    silent: set[int] = set()
    for kind in Kind:
        silent.update((drop or {}).get(kind, ()))
        seen = tuple(board)
        for i, party in parties.items():
            data = None if i in silent else party.post(kind, seen)
            if data is not None:
                board.extend(wire(kind, i, data))
    return Election(tuple(board), verify(terms, board))

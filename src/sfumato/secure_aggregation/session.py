"""Drives the parties of one session in one process: they share bytes, and nothing else.

For the simulator, tests and benchmarks. Whoever is listed in ``drop`` for a phase falls silent just before
its message of that phase, for good. A party that meets an error falls silent too; the error is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sfumato.secure_aggregation.client import Client
from sfumato.secure_aggregation.masks import RingVector
from sfumato.secure_aggregation.server import Phase, Server
from sfumato.secure_aggregation.terms import SessionTerms
from sfumato.wire.errors import TransportError
from sfumato.wire.keys import Entropy, Identity

Wire: TypeAlias = Callable[[Phase, int, bool, bytes], Sequence[bytes]]
"""What becomes of a message: (phase, party, upwards, bytes) to the messages that arrive, in order."""


@dataclass(frozen=True)
class Outcome:
    """What a session came to.

    Attributes:
        total: the survivors' sum modulo 2^bits, ``[length]``.
        survivors: whose vectors are in it, ascending.
        rejected: (phase, party, upwards, error) of every message that was rejected.
        bytes_up: sent by each party, all rounds.
        bytes_down: sent to each party, all rounds.
        client_seconds: computing time of each party.
        server_seconds: computing time of the server.
    """

    total: RingVector
    survivors: tuple[int, ...]
    rejected: tuple[tuple[Phase, int, bool, TransportError], ...]
    bytes_up: tuple[int, ...]
    bytes_down: tuple[int, ...]
    client_seconds: tuple[float, ...]
    server_seconds: float


def untouched(_phase: Phase, _party: int, _upwards: bool, data: bytes) -> Sequence[bytes]:
    """A wire that delivers everything once."""
    return [data]


def aggregate(
    terms: SessionTerms,
    identities: Sequence[Identity],
    server_identity: Identity,
    vectors: Mapping[int, RingVector],
    *,
    drop: Mapping[Phase, Collection[int]] | None = None,
    entropy: Callable[[int], Entropy] = lambda _: os.urandom,
    wire: Wire = untouched,
) -> Outcome:
    """Run a session from the first message to the sum.

    Args:
        terms: of the session.
        identities: the parties', in order.
        server_identity: the server's.
        vectors: ring elements ``[length]`` of every party that gets as far as masking.
        drop: who falls silent before its message of a phase.
        entropy: each party's, by number.
        wire: what becomes of messages.

    Raises:
        AbortError: there is no result.
    """
    silent: set[int] = set()
    rejected: list[tuple[Phase, int, bool, TransportError]] = []
    up, down, spent = [0] * terms.parties, [0] * terms.parties, [0.0] * terms.parties
    clock = time.perf_counter
    clients: dict[int, Client] = {}

    def answer(phase: Phase, party: int, data: bytes) -> bytes:
        client = clients[party]
        if phase is Phase.SHARE:
            return client.share_keys(data)
        if phase is Phase.MASK:
            return client.masked_input(data, vectors[party])
        return client.consent(data) if phase is Phase.CONSENT else client.unmask(data)

    started = clock()
    server = Server(terms, server_identity)
    server_seconds = clock() - started
    inbox: Mapping[int, bytes] = dict.fromkeys(range(terms.parties), b"")
    while server.phase is not Phase.DONE:
        phase = server.phase
        silent.update((drop or {}).get(phase, ()))
        for party, delivered in inbox.items():
            if party in silent:
                continue
            down[party] += len(delivered)
            replies: list[bytes] = []
            for data in [b""] if phase is Phase.ADVERTISE else wire(phase, party, False, delivered):
                started = clock()
                try:
                    if phase is Phase.ADVERTISE:
                        clients[party] = Client(party, terms, identities[party], entropy(party))
                        replies.append(clients[party].advertise())
                    else:
                        replies.append(answer(phase, party, data))
                except TransportError as error:
                    rejected.append((phase, party, False, error))
                spent[party] += clock() - started
            if not replies:
                silent.add(party)
            for reply in replies:
                up[party] += len(reply)
                for data in wire(phase, party, True, reply):
                    started = clock()
                    try:
                        server.receive(data)
                    except TransportError as error:
                        rejected.append((phase, party, True, error))
                    server_seconds += clock() - started
        started = clock()
        inbox = server.close()
        server_seconds += clock() - started
    total, survivors = server.result
    return Outcome(total, survivors, tuple(rejected), tuple(up), tuple(down), tuple(spent), server_seconds)

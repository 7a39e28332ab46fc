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
from sfumato.secure_aggregation.server import AggregationServer, Phase
from sfumato.secure_aggregation.terms import SessionTerms
from sfumato.wire.errors import TransportError
from sfumato.wire.keys import Entropy, Identity

Wire: TypeAlias = Callable[[Phase, int, bool, bytes], Sequence[bytes]]
"""What becomes of a message: (phase, party, upwards, bytes) to the messages that arrive, in order."""


@dataclass(frozen=True)
class SessionOutcome:
    """What a session came to.

    Attributes:
        total: the survivors' sum modulo 2^bits, ``[length]``.
        survivors: whose vectors are in it, ascending.
        rejected: (phase, party, upwards, error) of every message that was rejected.
        bytes_up: sent by each party, all rounds.
        bytes_down: sent to each party, all rounds.
        client_seconds: CPU time of this process for each party.
        server_seconds: CPU time of this process for the server.
    """

    total: RingVector
    survivors: tuple[int, ...]
    rejected: tuple[tuple[Phase, int, bool, TransportError], ...]
    bytes_up: tuple[int, ...]
    bytes_down: tuple[int, ...]
    client_seconds: tuple[float, ...]
    server_seconds: float


def deliver_unchanged(_phase: Phase, _party: int, _upwards: bool, data: bytes) -> Sequence[bytes]:
    """The `Wire` without an attacker: each message is delivered once, as it is; returns ``[data]``."""
    return [data]


def aggregate(
    terms: SessionTerms,
    identities: Sequence[Identity],
    server_identity: Identity,
    vectors: Mapping[int, RingVector],
    *,
    drop: Mapping[Phase, Collection[int]] | None = None,
    entropy: Callable[[int], Entropy] = lambda _: os.urandom,
    wire: Wire = deliver_unchanged,
) -> SessionOutcome:
    """Run a session in this process, with all parties and the server, from the first message to the sum.

    Args:
        terms: of the session.
        identities: the parties', in order.
        server_identity: the server's.
        vectors: ring elements ``[length]`` of every party that gets as far as masking.
        drop: phase to the parties that drop out before their message of it.
        entropy: party number to its source of random bytes.
        wire: decides what is delivered of each message; see `Wire`.

    Raises:
        AbortError: there is no result.
    """
    run = _Run(terms, identities, vectors, entropy, wire, server_identity)
    return run.to_the_end(drop or {})


class _Run:
    """One session: its parties, and what it cost so far; arguments as of `aggregate`."""

    def __init__(
        self,
        terms: SessionTerms,
        identities: Sequence[Identity],
        vectors: Mapping[int, RingVector],
        entropy: Callable[[int], Entropy],
        wire: Wire,
        server_identity: Identity,
    ) -> None:
        """Create the server; a party is created before its first message. Raises as `AggregationServer` does.

        ``vectors``: each party's ring elements ``[length]``, by number.
        """
        self._terms, self._identities, self._vectors = terms, identities, vectors
        self._entropy, self._wire = entropy, wire
        self._clients: dict[int, Client] = {}
        self._rejected: list[tuple[Phase, int, bool, TransportError]] = []
        parties = terms.parties
        self._up, self._down, self._spent = [0] * parties, [0] * parties, [0.0] * parties
        started = time.process_time()
        self._server = AggregationServer(terms, server_identity)
        self._server_seconds = time.process_time() - started

    def to_the_end(self, drop: Mapping[Phase, Collection[int]]) -> SessionOutcome:
        """Run all phases; ``drop`` says which parties fall silent before each.

        Raises:
            AbortError: there is no result.
        """
        silent: set[int] = set()
        inbox: Mapping[int, bytes] = dict.fromkeys(range(self._terms.parties), b"")
        while self._server.phase is not Phase.DONE:
            phase = self._server.phase
            silent.update(drop.get(phase, ()))
            for party, delivered in inbox.items():
                if party in silent:
                    continue
                self._down[party] += len(delivered)
                replies = self._replies(phase, party, delivered)
                if not replies:
                    silent.add(party)
                for reply in replies:
                    self._send(phase, party, reply)
            started = time.process_time()
            inbox = self._server.close()
            self._server_seconds += time.process_time() - started
        total, survivors = self._server.result
        return SessionOutcome(
            total,
            survivors,
            tuple(self._rejected),
            tuple(self._up),
            tuple(self._down),
            tuple(self._spent),
            self._server_seconds,
        )

    def _replies(self, phase: Phase, party: int, delivered: bytes) -> list[bytes]:
        """A list of the answers of ``party`` to what the wire makes of the server's message ``delivered``.

        Messages that it rejects are recorded, and its time is added up.
        """
        found: list[bytes] = []
        for data in [b""] if phase is Phase.ADVERTISE else self._wire(phase, party, False, delivered):
            started = time.process_time()
            try:
                found.append(self._answer(phase, party, data))
            except TransportError as error:
                self._rejected.append((phase, party, False, error))
            self._spent[party] += time.process_time() - started
        return found

    def _answer(self, phase: Phase, party: int, data: bytes) -> bytes:
        """The answer of ``party`` to ``data``, the server's message that begins ``phase``."""
        if phase is Phase.ADVERTISE:
            client = Client(party, self._terms, self._identities[party], self._entropy(party))
            self._clients[party] = client
            return client.advertise()
        client = self._clients[party]
        if phase is Phase.SHARE:
            return client.share_keys(data)
        if phase is Phase.MASK:
            return client.masked_input(data, self._vectors[party])
        return client.consent(data) if phase is Phase.CONSENT else client.unmask(data)

    def _send(self, phase: Phase, party: int, reply: bytes) -> None:
        """Put a party's reply on the wire to the server, and count its bytes and time."""
        self._up[party] += len(reply)
        for data in self._wire(phase, party, True, reply):
            started = time.process_time()
            try:
                self._server.receive(data)
            except TransportError as error:
                self._rejected.append((phase, party, True, error))
            self._server_seconds += time.process_time() - started

"""Sessions that an attacker stops, bends and listens to."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from transport_parties import Parties

from sfumato.secure_aggregation import messages, shares
from sfumato.secure_aggregation.client import Client, pair_mask_key, self_mask_key
from sfumato.secure_aggregation.masks import Masker
from sfumato.secure_aggregation.messages import MessageKind
from sfumato.secure_aggregation.server import AggregationServer
from sfumato.secure_aggregation.terms import SessionTerms
from sfumato.wire.errors import TransportError
from sfumato.wire.frames import SERVER, Frame, parse_frame, seal_frame
from sfumato.wire.keys import KeyPair

COUNT, LENGTH = 5, 16
UP = [MessageKind.ADVERTISE, MessageKind.SHARES, MessageKind.MASKED, MessageKind.CONSENT, MessageKind.UNMASK]
DOWN = [MessageKind.ROSTER, MessageKind.DELIVERY, MessageKind.SURVIVORS, MessageKind.CONSENTS]


@dataclass(frozen=True)
class Attack:
    """What is tried, and what it must be refused with. ``play`` ends with the step that is refused."""

    name: str
    error: type[TransportError]
    match: str
    play: Callable[[Callable[..., Any]], object]


def table() -> tuple[list[Attack], Callable[..., Callable[..., Any]]]:
    """A list of attacks, and the decorator that puts a function on it."""
    attacks: list[Attack] = []

    def refused(error: type[TransportError], match: str) -> Callable[..., Any]:
        def put(play: Callable[..., object]) -> Callable[..., object]:
            attacks.append(Attack(play.__name__, error, match, play))
            return play

        return put

    return attacks, refused


class Stage:
    """A session that can be stopped just before one kind of message is delivered.

    Party i's vector is i everywhere.
    """

    def __init__(
        self,
        parties: Parties,
        label: str = "test",
        threshold: int = 4,
        terms: SessionTerms | None = None,
    ) -> None:
        self.parties = parties
        self.terms = terms or parties.complete(LENGTH, threshold, label=label)
        self.count = self.terms.parties
        entropy = parties.entropy(label)
        self.server = AggregationServer(self.terms, parties.server)
        self.clients = [Client(i, self.terms, parties.identities[i], entropy(i)) for i in range(self.count)]
        self.sent: dict[MessageKind, dict[int, bytes]] = {}

    def answer(self, kind: MessageKind, party: int, data: bytes) -> bytes:
        """A party's answer to a message of the server."""
        client = self.clients[party]
        if kind is MessageKind.ROSTER:
            return client.share_keys(data)
        if kind is MessageKind.DELIVERY:
            return client.masked_input(data, np.full(self.terms.length, party, dtype=np.uint32))
        return client.consent(data) if kind is MessageKind.SURVIVORS else client.unmask(data)

    def until(self, stop: MessageKind, silent: Mapping[MessageKind, Collection[int]] | None = None) -> Stage:
        """Play honestly; messages of ``stop`` are made and not delivered.

        ``silent``: who falls silent before its message of a kind.
        """
        gone: set[int] = set((silent or {}).get(MessageKind.ADVERTISE, ()))
        self.sent[MessageKind.ADVERTISE] = {
            i: c.advertise() for i, c in enumerate(self.clients) if i not in gone
        }
        for up, down in zip(UP, [*DOWN, None], strict=True):
            if stop is up:
                return self
            for data in self.sent[up].values():
                self.server.receive(data)
            outgoing = self.server.close()
            if down is None:
                return self
            self.sent[down] = outgoing
            if stop is down:
                return self
            following = UP[UP.index(up) + 1]
            gone |= set((silent or {}).get(following, ()))
            self.sent[following] = {
                i: self.answer(down, i, data) for i, data in outgoing.items() if i not in gone
            }
        return self

    def deliver(self, kind: MessageKind, data: bytes, party: int = 0) -> None:
        """Hand a message to whom it is for: the server, or ``party``."""
        if kind in UP:
            self.server.receive(data)
        else:
            self.answer(kind, party, data)

    def payload(self, kind: MessageKind, party: int = 0) -> bytes:
        """What was sent."""
        return parse_frame(self.sent[kind][party]).payload

    def resigned(self, kind: MessageKind, payload: bytes, party: int = 0, /, **changes: Any) -> bytes:
        """A message by its true sender, with another content."""
        frame = parse_frame(self.sent[kind][party])
        sender = self.parties.server if kind in DOWN else self.parties.identities[party]
        fields = {**frame.__dict__, "payload": payload, **changes}
        return seal_frame(Frame(**fields), sender)

    def from_server(self, kind: MessageKind, payload: bytes, party: int = 0) -> bytes:
        """A message that the server signs."""
        return seal_frame(Frame(kind, self.terms.session, SERVER, party, payload), self.parties.server)

    def by_party(self, kind: MessageKind, payload: bytes, party: int, recipient: int) -> bytes:
        """A message that a party signs, whatever it signed before."""
        frame = Frame(kind, self.terms.session, party, recipient, payload)
        return seal_frame(frame, self.parties.identities[party])

    def survivors(self, listed: Collection[int], party: int = 0) -> bytes:
        """The server's list of survivors for a party."""
        return self.from_server(MessageKind.SURVIVORS, messages.encode_parties(sorted(listed)), party)

    def snapshot(self, party: int) -> Client:
        """A party as it stands, with all secrets: what a restored machine goes on with."""
        kept = copy.copy(self.clients[party])
        for name, value in vars(kept).items():
            if isinstance(value, dict | set):
                setattr(kept, name, value.copy())
        return kept


class Listener:
    """Adds up what a malicious server knows: colluders' shares, revealed shares, masked vectors."""

    def __init__(self, stage: Stage, colluders: Collection[int]) -> None:
        self.stage, self.colluders = stage, set(colluders)
        self.shares: tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]] = ({}, {})
        self.masked: dict[int, Any] = {}
        self.partners: dict[int, set[int]] = {}

    def corrupt(self) -> None:
        """Take the shares that colluders hold."""
        for i in self.colluders:
            for owner, pair in self.stage.clients[i]._shares.items():
                for table, share in zip(self.shares, pair, strict=True):
                    table.setdefault(owner, {})[i + 1] = share

    def hear(self, data: bytes) -> None:
        """Take what a party sent."""
        frame = parse_frame(data)
        if frame.kind == MessageKind.MASKED:
            terms = self.stage.terms
            self.masked[frame.sender] = messages.decode_vector(frame.payload, terms.length, terms.bits)
            self.partners[frame.sender] = set(self.stage.clients[frame.sender]._shares) - {frame.sender}
        if frame.kind == MessageKind.UNMASK:
            for table, told in zip(self.shares, messages.decode_reveal(frame.payload), strict=True):
                for owner, share in told.items():
                    table.setdefault(owner, {})[frame.sender + 1] = share

    def secret(self, which: int, owner: int) -> bytes | None:
        """A masking key (0) or a seed (1), if enough shares are known."""
        if owner in self.colluders:
            client = self.stage.clients[owner]
            return client._seed if which else client._masking.secret
        held, threshold = self.shares[which].get(owner, {}), self.stage.terms.share_threshold
        return shares.rebuild(held, threshold) if len(held) >= threshold else None

    def sum_of(self, targets: Collection[int]) -> Any:
        """What is left of the targets' masked vectors when all known masks are off."""
        terms, clients = self.stage.terms, self.stage.clients
        total = np.zeros(terms.length, dtype=np.uint32)
        masker = Masker(terms.length, terms.bits)
        for i in targets:
            total += self.masked[i]
            seed = self.secret(1, i)
            if seed is not None:
                masker.subtract(total, self_mask_key(terms.session, i, seed))
            for j in self.partners[i] - set(targets):
                secret = self.secret(0, j)
                if secret is not None:
                    key = pair_mask_key(terms.session, KeyPair(secret), j, i, clients[i]._masking.public)
                    (masker.subtract if i < j else masker.add)(total, key)
        return total


def flip(data: bytes, at: int) -> bytes:
    """One bit changed."""
    at %= len(data)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

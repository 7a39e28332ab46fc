"""The aggregator: forwards what it cannot read, adds up what it cannot unmask alone, and learns one sum.

`Server.receive` takes the messages of the open phase in any order; `Server.close` ends it, whoever has not
sent by then has dropped out. A message that is rejected leaves the state as it was: its sender may still send
the right one.
"""

from __future__ import annotations

import enum

import numpy as np

from sfumato.secure_aggregation import messages, shares
from sfumato.secure_aggregation.client import pair_mask_key, seed_commitment, self_mask_key, survivors_digest
from sfumato.secure_aggregation.masks import Masker, RingVector, ring_type
from sfumato.secure_aggregation.messages import Advertisement, MessageKind
from sfumato.secure_aggregation.terms import SessionTerms
from sfumato.secure_aggregation.threats import ThreatModel
from sfumato.wire import errors
from sfumato.wire.frames import EVERYBODY, SERVER, Frame, open_frame, seal_frame
from sfumato.wire.keys import Identity, KeyPair, agreement_point


class Phase(enum.IntEnum):
    """Rounds of the protocol, and its two ends; `phases_of` says which of them a session has."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    CONSENT = 3
    UNMASK = 4
    DONE = 5
    ABORTED = 6


_KINDS = {
    Phase.ADVERTISE: MessageKind.ADVERTISE,
    Phase.SHARE: MessageKind.SHARES,
    Phase.MASK: MessageKind.MASKED,
    Phase.CONSENT: MessageKind.CONSENT,
    Phase.UNMASK: MessageKind.UNMASK,
}


def phases_of(threat_model: ThreatModel) -> tuple[Phase, ...]:
    """The phases of a session in which parties send, in order: CONSENT only towards a malicious server."""
    return tuple(phase for phase in _KINDS if threat_model == "malicious" or phase is not Phase.CONSENT)


class AggregationServer:
    """The aggregator of one session.

    Args:
        terms: of the session.
        identity: its signing key; joins the session.

    Raises:
        RepeatedSessionError: the identity served in this session before.
        ChangedTermsError: it served in another session under the same label.
        SessionMemoryError: that it takes part cannot be recorded.
    """

    def __init__(self, terms: SessionTerms, identity: Identity) -> None:
        """Open the first phase of a session under ``terms``, as the server with signing key ``identity``."""
        identity.join(b"server", terms.label, terms.session)
        self.phase = Phase.ADVERTISE
        self._terms, self._identity = terms, identity
        self._phases = phases_of(terms.threat_model)
        self._alive: dict[Phase, list[int]] = {phase: [] for phase in self._phases}
        self._seen: set[tuple[int, int]] = set()
        self._adverts: dict[int, tuple[bytes, Advertisement]] = {}
        self._agreement_points: set[bytes] = set()
        self._boxes: dict[int, dict[int, bytes]] = {}
        self._consents: list[bytes] = []
        self._mask_shares: dict[int, dict[int, int]] = {}
        self._seed_shares: dict[int, dict[int, int]] = {}
        self._total: RingVector = np.zeros(terms.length, dtype=ring_type(terms.bits))

    @property
    def result(self) -> tuple[RingVector, tuple[int, ...]]:
        """The sum of the survivors' vectors modulo 2^bits, ``[length]``, and their numbers, ascending.

        Raises:
            OutOfOrderMessageError: the session has not ended with a sum.
        """
        if self.phase is not Phase.DONE:
            raise errors.OutOfOrderMessageError(f"no result: the session stands at {self.phase.name.lower()}")
        return self._total, tuple(sorted(self._alive[Phase.MASK]))

    def receive(self, data: bytes) -> None:
        """Check and keep ``data``, one party's message of the open phase.

        Raises:
            MessageError: the message is rejected.
            InconsistentSurvivorsError: its sender signed another list of survivors.
        """
        if self.phase not in _KINDS:
            raise errors.OutOfOrderMessageError("the session has ended")
        terms, kind = self._terms, _KINDS[self.phase]
        frame = open_frame(
            data,
            session=terms.session,
            keys=dict(enumerate(terms.public_keys)),
            recipient=EVERYBODY if kind in (MessageKind.ADVERTISE, MessageKind.CONSENT) else SERVER,
            expected=kind,
            seen=self._seen,
        )
        party, place = frame.sender, self._phases.index(self.phase)
        if place and party not in self._alive[self._phases[place - 1]]:
            raise errors.OutOfOrderMessageError(f"party {party} dropped out before")
        {
            MessageKind.ADVERTISE: self._take_advert,
            MessageKind.SHARES: self._take_boxes,
            MessageKind.MASKED: self._take_masked,
            MessageKind.CONSENT: self._take_consent,
            MessageKind.UNMASK: self._take_reveal,
        }[kind](frame, data)
        self._seen.add((frame.kind, party))
        self._alive[self.phase].append(party)

    def close(self) -> dict[int, bytes]:
        """End the open phase; returns the messages to send next, by party; {} after the last phase.

        Raises:
            AbortError: too few are left, or their shares do not fit; the session has ended.
        """
        phase = self.phase
        if phase not in _KINDS:
            raise errors.OutOfOrderMessageError("the session has ended")
        alive = sorted(self._alive[phase])
        self.phase = Phase.ABORTED  # unless all goes well
        if phase is Phase.UNMASK:
            self._unmask()
            self.phase = Phase.DONE
            return {}
        if len(alive) < self._terms.threshold:
            raise errors.BelowThresholdError(
                f"{phase.name.lower()}: {len(alive)} of {self._terms.parties} parties are left;"
                f" {self._terms.threshold} needed; nothing is revealed"
            )
        outgoing = {
            Phase.ADVERTISE: self._roster_messages,
            Phase.SHARE: self._delivery_messages,
            Phase.MASK: self._survivors_messages,
            Phase.CONSENT: self._consents_messages,
        }[phase](alive)
        self.phase = self._phases[self._phases.index(phase) + 1]
        return outgoing

    def _take_advert(self, frame: Frame, data: bytes) -> None:
        """Keep a party's public keys, which it may advertise once; ``data``: the bytes of ``frame``."""
        advert = messages.decode_advertisement(frame.payload)
        points = {agreement_point(advert.sealing), agreement_point(advert.masking)}
        is_new = len(points) == 2 and not points & self._agreement_points
        messages.require(is_new, "a public key was advertised twice")
        self._agreement_points |= points
        self._adverts[frame.sender] = data, advert

    def _take_boxes(self, frame: Frame, _: bytes) -> None:
        """Keep a party's sealed shares, one for each of its neighbours."""
        boxes = messages.decode_boxes(frame.payload)
        allowed = set(self._terms.neighbours[frame.sender]) & set(self._alive[Phase.ADVERTISE])
        messages.require(
            boxes.keys() == allowed, f"party {frame.sender}: shares are not for exactly its neighbours"
        )
        self._boxes[frame.sender] = boxes

    def _take_masked(self, frame: Frame, _: bytes) -> None:
        """Add the masked vector in a party's message to the total."""
        vector = messages.decode_vector(frame.payload, self._terms.length, self._terms.bits)
        np.add(self._total, vector, out=self._total)

    def _take_consent(self, frame: Frame, data: bytes) -> None:
        """Keep a party's signature of the list of survivors; ``data``, bytes of ``frame``, are passed on.

        Raises:
            InconsistentSurvivorsError: it signed another list.
        """
        listed = survivors_digest(self._terms.session, sorted(self._alive[Phase.MASK]))
        if frame.payload != listed:
            raise errors.InconsistentSurvivorsError(f"party {frame.sender} signed another list of survivors")
        self._consents.append(data)

    def _take_reveal(self, frame: Frame, _: bytes) -> None:
        """Keep the shares of others' secrets that a party's message reveals."""
        mask_shares, seed_shares = messages.decode_reveal(frame.payload)
        held = {*self._terms.neighbours[frame.sender], frame.sender} & set(self._alive[Phase.SHARE])
        survivors = set(self._alive[Phase.MASK])
        messages.require(
            seed_shares.keys() == held & survivors and mask_shares.keys() == held - survivors,
            f"party {frame.sender}: not exactly the shares asked for",
        )
        for table, collected in ((mask_shares, self._mask_shares), (seed_shares, self._seed_shares)):
            for party, share in table.items():
                collected.setdefault(party, {})[frame.sender + 1] = share

    def _roster_messages(self, alive: list[int]) -> dict[int, bytes]:
        """For each party in ``alive`` a message with the public keys of its neighbours."""

        def of(party: int) -> bytes:
            known = [self._adverts[j][0] for j in self._terms.neighbours[party] if j in self._adverts]
            return self._send(MessageKind.ROSTER, party, messages.encode_blobs(known))

        return {party: of(party) for party in alive}

    def _delivery_messages(self, alive: list[int]) -> dict[int, bytes]:
        """For each party in ``alive`` a message with the boxes that its neighbours sealed for it."""

        def of(party: int) -> bytes:
            boxes = {j: self._boxes[j][party] for j in self._terms.neighbours[party] if j in self._boxes}
            return self._send(MessageKind.DELIVERY, party, messages.encode_boxes(boxes))

        return {party: of(party) for party in alive}

    def _survivors_messages(self, alive: list[int]) -> dict[int, bytes]:
        """For each party in ``alive`` a message with the list of those whose vectors are in the total."""
        payload = messages.encode_parties(alive)
        return {party: self._send(MessageKind.SURVIVORS, party, payload) for party in alive}

    def _consents_messages(self, alive: list[int]) -> dict[int, bytes]:
        """For each party in ``alive`` a message with as many signed consents as the threshold."""
        payload = messages.encode_blobs(self._consents[: self._terms.threshold])
        return {party: self._send(MessageKind.CONSENTS, party, payload) for party in alive}

    def _send(self, kind: MessageKind, party: int, payload: bytes) -> bytes:
        """The signed bytes of a message of the server to ``party`` with the content ``payload``."""
        return seal_frame(Frame(kind, self._terms.session, SERVER, party, payload), self._identity)

    def _unmask(self) -> None:
        """Remove the masks of survivors, and those that they share with dropped parties, from the total.

        Raises:
            BelowThresholdError: too few shares of a secret; nothing is revealed.
        """
        terms, survivors = self._terms, set(self._alive[Phase.MASK])
        sharers = set(self._alive[Phase.SHARE])
        total = self._total
        dropped = [j for j in sorted(sharers - survivors) if survivors & set(terms.neighbours[j])]
        self._total = np.zeros_like(total)  # masked sums are of no use to anybody
        for j in [*sorted(survivors), *dropped]:
            table = self._seed_shares if j in survivors else self._mask_shares
            if len(table.get(j, ())) < terms.share_threshold:
                raise errors.BelowThresholdError(
                    f"unmask: {len(table.get(j, ()))} shares of party {j}'s secret;"
                    f" {terms.share_threshold} needed; nothing is revealed"
                )
        masker = Masker(terms.length, terms.bits)
        for j in sorted(survivors):
            seed = shares.rebuild(self._seed_shares[j], terms.share_threshold)
            if seed is None or seed_commitment(terms.session, j, seed) != self._adverts[j][1].seed_commitment:
                raise errors.InconsistentSharesError(f"the shares of party {j}'s seed do not rebuild it")
            masker.subtract(total, self_mask_key(terms.session, j, seed))
        for j in dropped:
            secret = shares.rebuild(self._mask_shares[j], terms.share_threshold)
            pair = None if secret is None else KeyPair(secret)
            if pair is None or pair.public != self._adverts[j][1].masking:
                raise errors.InconsistentSharesError(
                    f"the shares of party {j}'s masking key do not rebuild it"
                )
            for i in sorted(survivors & set(terms.neighbours[j])):
                key = pair_mask_key(terms.session, pair, j, i, self._adverts[i][1].masking)
                (masker.subtract if i < j else masker.add)(total, key)
        self._total = total

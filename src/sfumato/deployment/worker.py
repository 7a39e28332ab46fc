"""A worker of groups: asked by all of its masters, it answers each with whole numbers. Bytes in, bytes out.

In a round in which groups exchange what they learnt, a worker starts from the mean of all its groups' models.
So in every round it answers nobody until all of its masters have asked. Then it trains once for every group,
and records all answers at once. Each master gets its own answer when it asks, again if it asked too early: no
frame for one of them passes another one, to whom it may tell more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.deployment.consent import Agreement
from sfumato.deployment.device import noised_message, require_own_key
from sfumato.deployment.group_terms import GroupTerms
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import Model, RoundPosition, decode_answer, question_hash
from sfumato.deployment.parent_hop import ParentHop
from sfumato.deployment.randomness import Randomness, answer_context, round_context
from sfumato.wire.errors import DuplicateMessageError, OutOfOrderMessageError, UnknownSenderError
from sfumato.wire.frames import parse_frame
from sfumato.wire.keys import Identity, digest

if TYPE_CHECKING:
    from sfumato.deployment.worker_data import WorkerData

_ALL = digest(b"questions of all masters")
"""What the memory knows the answers of a round by; each of them names the question that it answers."""


class WorkerParty:
    """The state machine of one worker.

    Args:
        agreement: of this worker to the terms of the run.
        data: its own.
        identity: its signing key.
        memory: of its answers, on disk.
        randomness: its secret choices.

    Raises:
        UnsafeTermsError: the identity is not the one that the terms name.
    """

    def __init__(
        self,
        agreement: Agreement,
        data: WorkerData,
        identity: Identity,
        memory: PartyMemory,
        randomness: Randomness,
    ) -> None:
        self.number, terms, self._agreement = agreement.device, agreement.terms, agreement
        require_own_key(terms, self.number, identity)
        assert isinstance(terms, GroupTerms)  # devices of trees are `device.DeviceParty`
        self._terms, self._data, self._identity = terms, data, identity
        self._memory, self._randomness = memory, randomness
        self._hops = {
            master: ParentHop(self.number, master, terms, identity, memory, on_survivors=None)
            for master in terms.parents(self.number)
        }
        self._asked: dict[int, tuple[RoundPosition, Model]] = {}

    def receive(self, data: bytes) -> list[bytes]:
        """Answer ``data``, a question of a master; returns no frames until all of its masters have asked.

        A round that was answered before gets the same whole numbers again.

        Raises:
            TransportError: the frame is rejected; nothing is sent, and no answer has changed.
            ConsentRefusedError: other runs have used up the total meanwhile; nothing is sent.
            SessionMemoryError: the answers cannot be recorded, or a copy of this worker gave others; nothing
                is sent.
        """
        terms, session, master = self._terms, self._terms.session, parse_frame(data).sender
        if master not in self._hops:
            raise UnknownSenderError(
                f"{terms.name(self.number)}: a frame of party {master}: no master of its"
            )
        position, _, model = self._hops[master].question(data)
        if position.aggregation != terms.group(master):
            raise OutOfOrderMessageError(f"{position}: is not that of {terms.name(master)}")
        own = RoundPosition(position.round, 0)
        kept = self._memory.answer(session, own, _ALL)
        if kept is None:
            terms.require_turn(position, self._memory.last(session))
            others = {one: what for one, what in self._asked.items() if what[0].round == position.round}
            self._asked = others | {master: (position, model)}
            if len(self._asked) < len(self._hops):
                return []
            kept = self._answers(position.round)
            self._agreement.book()  # does nothing where this run is booked
            self._memory.record(session, own, _ALL, kept)
            self._asked = {}
        frame = self._answer_to(master, kept)
        _, answered, _ = decode_answer(parse_frame(frame).payload, terms.parameters)
        if answered != question_hash(position, model):
            raise DuplicateMessageError(f"{position}: another question was answered before")
        self._agreement.notes.answer(own, self._memory.commitment(session, own))
        return [frame]

    def _answer_to(self, master: int, kept: bytes) -> bytes:
        """The frame for ``master`` (a party number) in ``kept``, the answers of a round.

        All answers are equally long.
        """
        length, place = len(kept) // len(self._hops), list(self._hops).index(master)
        return kept[place * length : (place + 1) * length]

    def _answers(self, number: int) -> bytes:
        """The frames that answer all masters in round ``number``, one after the other."""
        terms, own = self._terms, self._identity
        context = round_context(own, terms.session, self.number, number)
        batches = self._randomness.batches(terms.plan, number, self._data.size, len(self._hops), context)
        starts = self._data.starts(number, np.stack([self._asked[master][1] for master in self._hops]))
        frames = []
        for row, (master, hop) in enumerate(self._hops.items()):
            position, model = self._asked[master]
            question = question_hash(position, model)
            message = self._data.message(position, starts[row], batches.of(slice(row, row + 1)))
            key = self._randomness.noise_key(
                position, answer_context(own, terms.session, self.number, position, question)
            )
            steps = noised_message(terms, self.number, position, message, key)
            frames.append(hop.kept(position, question, steps))
        return b"".join(frames)

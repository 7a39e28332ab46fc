"""The cloud: it asks its children once a round and learns the sum of their answers. Bytes in, bytes out.

Masters of groups do the same: `AskingParty` is the state machine of both.
"""

from __future__ import annotations

from sfumato.deployment.collecting import Collection, with_own_noise, without_child
from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.device import require_own_key
from sfumato.deployment.masked_sums import collection_of
from sfumato.deployment.memory import PartyMemory
from sfumato.deployment.messages import IntArray, Model, question_hash, steps_as_bytes, steps_from_bytes
from sfumato.deployment.randomness import Randomness, answer_context
from sfumato.deployment.terms import DeploymentTerms
from sfumato.errors import SfumatoError
from sfumato.wire.errors import OutOfOrderMessageError
from sfumato.wire.keys import Identity


class AskingParty:
    """The state machine of an aggregator without a parent: the cloud, or the master of a group.

    Args:
        number: its number in the terms.
        terms: of the run.
        identity: its signing key.
        memory: of the sums that it released, on disk.
        randomness: its secret choices.

    Raises:
        UnsafeTermsError: the identity is not the one that the terms name.
    """

    def __init__(
        self,
        number: int,
        terms: CommonTerms,
        identity: Identity,
        memory: PartyMemory,
        randomness: Randomness,
    ) -> None:
        require_own_key(terms, number, identity)
        self.number, self._terms, self._identity = number, terms, identity
        self._memory, self._randomness = memory, randomness
        self._collection: Collection | None = None
        self._question = b""
        self._released: IntArray | None = None

    def ask(self, number: int, model: Model) -> list[bytes]:
        """The frames that ask all children in round ``number`` (from 0), which begins with ``model`` ``[M]``.

        If the round was finished before, there are none, and `released` has its sum.

        Raises:
            MessageError: the round was finished with another model, or another round is next.
            SessionMemoryError: the memory cannot be read.
        """
        terms, position = self._terms, self._terms.asked_in(number, self.number)
        question = question_hash(position, model)
        earlier = self._memory.answer(terms.session, position, question)
        if earlier is not None:
            self._released, self._collection = steps_from_bytes(earlier), None
            return []
        last = self._memory.last(terms.session)
        if number != terms.round_after(last):
            raise OutOfOrderMessageError(f"{position}: {last or 'nothing'} was finished before")
        self._question, self._released = question, None
        self._collection = collection_of(
            terms, self.number, position, model, self._identity, self._memory, self._randomness
        )
        return self._collection.questions()

    def receive(self, data: bytes) -> list[bytes]:
        """Take ``data``, a frame of a child; returns the frames to send: none, except in secure aggregation.

        Raises:
            TransportError: the frame is rejected; nothing has changed.
            SessionMemoryError: the sum of the round cannot be recorded.
        """
        if self._collection is None:
            raise OutOfOrderMessageError(f"{self._terms.name(self.number)}: an answer to no question")
        following = self._collection.add(data)
        self._release_if_all_have_answered()
        return following

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without device ``child``, which does not answer because of ``error``; returns frames to send.

        Raises:
            SfumatoError: ``error``, if the child may not be lost; or too few are left, or the sum of the
                round cannot be recorded.
        """
        following = without_child(self._collection, self._terms, self.number, child, error)
        self._release_if_all_have_answered()
        return following

    def _release_if_all_have_answered(self) -> None:
        """Once no answer is missing any more, add this aggregator's noise to the sum and record it."""
        if self._collection is None or self._collection.missing:
            return
        position = self._collection.position
        context = answer_context(self._identity, self._terms.session, self.number, position, self._question)
        key = self._randomness.noise_key(position, context)
        released = with_own_noise(self._terms, self.number, position, self._collection.total, key)
        self._memory.record(self._terms.session, position, self._question, steps_as_bytes(released))
        self._released, self._collection = released, None

    @property
    def missing(self) -> list[int]:
        """Numbers of the children whose answer to the last question is still missing."""
        return [] if self._collection is None else self._collection.missing

    @property
    def released(self) -> IntArray | None:
        """The sum of the answers in the round that `ask` began, plus the noise of this aggregator, ``[M]``.

        In steps of the grid; ``None`` while a child that is not lost has yet to answer.
        """
        return self._released


class CloudParty(AskingParty):
    """The state machine of the cloud; the arguments are those of `AskingParty`."""

    def __init__(
        self, terms: DeploymentTerms, identity: Identity, memory: PartyMemory, randomness: Randomness
    ) -> None:
        super().__init__(terms.cloud, terms, identity, memory, randomness)

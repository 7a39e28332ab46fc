"""What an aggregator does over a plain hop: it asks its children and adds their answers and its noise."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Protocol

import numpy as np

from sfumato.deployment.common_terms import CommonTerms
from sfumato.deployment.messages import (
    FrameKind,
    IntArray,
    Model,
    RoundPosition,
    decode_answer,
    encode_question,
    question_hash,
)
from sfumato.errors import RunError, SfumatoError, first_line
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from sfumato.wire.errors import MalformedMessageError, OutOfOrderMessageError, ReplayedMessageError
from sfumato.wire.frames import Frame, open_frame, seal_frame
from sfumato.wire.keys import Identity

LOG = logging.getLogger("sfumato")
_ROOM = 2**62  # a sum of 64 bits has room for as much again: the aggregator's own noise


class Collection(Protocol):
    """The answers of an aggregator's children to one question, as they arrive."""

    @property
    def position(self) -> RoundPosition:
        """The aggregation that the question is about."""

    @property
    def missing(self) -> list[int]:
        """Numbers of the children that still have to send something; empty as soon as `total` is known."""

    @property
    def total(self) -> IntArray:
        """The sum of all answers, in steps of the grid ``[M]``; only when nobody is missing."""

    def questions(self) -> list[bytes]:
        """The frames that ask every child."""

    def add(self, data: bytes) -> list[bytes]:
        """Take ``data``, a frame of a child; returns the frames to send then.

        Raises:
            TransportError: the frame is rejected; the sum is unchanged.
        """

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without a child that does not answer; returns the frames to send then.

        Args:
            child: its number.
            error: why it does not answer.

        Raises:
            SfumatoError: too few are left: there is no sum.
        """


class PlainCollection:
    """Answers that the aggregator reads one by one; see `Collection`.

    Args:
        terms: of the run.
        node: number of the aggregator.
        position: of the aggregation.
        model: that children start from ``[M]``.
        identity: of the aggregator.
        counted: numbers of the children whose answers are added up; those of others are read, and left out.
    """

    def __init__(
        self,
        terms: CommonTerms,
        node: int,
        position: RoundPosition,
        model: Model,
        identity: Identity,
        counted: Container[int],
    ) -> None:
        self._terms, self._node, self.position = terms, node, position
        self._model, self._identity = model, identity
        self._question = question_hash(position, model)
        self._children, self._counted = terms.children(node), counted
        self._seen: set[tuple[int, int]] = set()
        self._lost: set[int] = set()
        self.total: IntArray = np.zeros(terms.parameters, np.int64)

    @property
    def missing(self) -> list[int]:
        """Numbers of the children that have not answered yet."""
        done = {sender for _, sender in self._seen} | self._lost
        return [number for number in self._children if number not in done]

    def questions(self) -> list[bytes]:
        """The frames that ask every child for its answer to the model."""
        payload = encode_question(self.position, self._model)
        return questions_for(self._children, self._terms, self._node, payload, self._identity)

    def add(self, data: bytes) -> list[bytes]:
        """Add the answer in ``data``, a frame of a child, to the sum; returns [], as nothing is sent.

        Raises:
            MessageError: the answer is rejected; the sum is unchanged.
        """
        frame = open_frame(
            data,
            session=self._terms.session,
            keys=self._children,
            recipient=self._node,
            expected=FrameKind.ANSWER,
            seen=self._seen,
        )
        name = self._terms.name(frame.sender)
        position, question, steps = decode_answer(frame.payload, self._terms.parameters)
        require_position(name, position, self.position)
        if question != self._question:
            raise ReplayedMessageError(f"{name}: answers another question about {position}")
        most_steps = _ROOM // len(self._children)
        if not (-most_steps <= int(steps.min()) and int(steps.max()) <= most_steps):
            raise MalformedMessageError(f"{name}: more than {most_steps:,} steps")
        longest = self._terms.longest(frame.sender, position)
        if float(np.linalg.norm(steps.astype(np.float64))) > longest:
            raise MalformedMessageError(f"{name}: a message is longer than the declared {longest:,.0f} steps")
        self.total += steps * int(frame.sender in self._counted)  # the same work for all
        self._seen.add((frame.kind, frame.sender))
        return []

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without ``child``, which does not answer because of ``error``; returns [].

        Raises:
            RunError: there are several children, and none has answered: that is a broken network, not
                dropout.
        """
        self._lost.add(child)
        if not self.missing and not self._seen and len(self._children) > 1:
            name = self._terms.name(self._node)
            last = lost_party(self._terms, child, error)
            raise RunError(f"{name}: {self.position}: nobody answers; the last was {last}")
        return []


def questions_for(
    children: Iterable[int], terms: CommonTerms, node: int, payload: bytes, identity: Identity
) -> list[bytes]:
    """The signed frames of an aggregator that ask each of ``children``, one for each.

    Args:
        children: their numbers.
        terms: of the run.
        node: number of the aggregator.
        payload: of the question.
        identity: of the aggregator.
    """
    return [
        seal_frame(Frame(FrameKind.QUESTION, terms.session, node, child, payload), identity)
        for child in children
    ]


def without_child(
    collection: Collection | None, terms: CommonTerms, node: int, child: int, error: SfumatoError
) -> list[bytes]:
    """The frames that an aggregator sends when a child does not answer and may be lost.

    If its answer is not awaited any more (it was received, or there is no open collection), that is only
    logged and there are no frames.

    Args:
        collection: the open one; ``None`` if there is none.
        terms: of the run.
        node: number of the aggregator.
        child: its number.
        error: why it does not answer.

    Raises:
        SfumatoError: ``error``, if the child may not be lost; or too few are left.
    """
    if not terms.may_lose_children(node):
        raise error
    if collection is None or child not in collection.missing:
        LOG.warning("%s: throws away what %s sends", terms.name(node), lost_party(terms, child, error))
        return []
    LOG.warning("%s: goes on without %s", collection.position, lost_party(terms, child, error))
    return collection.lose(child, error)


def lost_party(terms: CommonTerms, child: int, error: SfumatoError) -> str:
    """The name of a child that does not answer, with the reason in brackets, for messages."""
    name = terms.name(child)
    return f"{name} ({first_line(error).removeprefix(f'{name}: ')})"


def require_position(name: str, position: RoundPosition, asked: RoundPosition) -> None:
    """Check that a message of the party ``name`` is about the aggregation that was ``asked`` for.

    Raises:
        MessageError: it is about another one.
    """
    if position != asked:
        error = ReplayedMessageError if position < asked else OutOfOrderMessageError
        raise error(f"{name}: answers {position}; asked is {asked}")


def with_own_noise(
    terms: CommonTerms, node: int, position: RoundPosition, total: IntArray, key: bytes
) -> IntArray:
    """A sum with the noise that the plan makes its aggregator add, in steps of the grid ``[M]``.

    Args:
        terms: of the run.
        node: number of the aggregator.
        position: of the aggregation.
        total: the sum, in steps of the grid ``[M]``; private.
        key: 32 bytes; private, used once.
    """
    steps = terms.noise_steps(node, position)
    if steps == 0:
        return total
    noised = total[None].copy()
    DiscreteGaussianNoise().add_(noised, np.array([steps]), lambda _: key)
    released: IntArray = noised[0]
    return released

"""What an aggregator does: asks its children, adds their answers up, adds its noise."""

from __future__ import annotations

import numpy as np

from sfumato.deployment.messages import (
    FrameKind,
    IntArray,
    Model,
    RoundPosition,
    decode_answer,
    encode_question,
)
from sfumato.deployment.terms import DeploymentTerms
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from sfumato.wire.errors import MalformedMessageError, OutOfOrderMessageError, ReplayedMessageError
from sfumato.wire.frames import Frame, open_frame, seal_frame
from sfumato.wire.keys import Identity

_ROOM = 2**62  # a sum of 64 bits has room for as much again: the aggregator's own noise


class Collection:
    """The answers of an aggregator's children to one question, added up as they come.

    Args:
        terms: of the run.
        node: the aggregator.
        position: what is asked about.
    """

    def __init__(self, terms: DeploymentTerms, node: int, position: RoundPosition) -> None:
        self._terms, self._node, self.position = terms, node, position
        self._children = terms.children(node)
        self._seen: set[tuple[int, int]] = set()
        self.total: IntArray = np.zeros(terms.parameters, np.int64)

    @property
    def missing(self) -> list[int]:
        """Who has not answered yet."""
        there = {sender for _, sender in self._seen}
        return [number for number in self._children if number not in there]

    def questions(self, model: Model, identity: Identity) -> list[bytes]:
        """The frames that ask every child for its answer to ``model`` ``[M]``."""
        payload = encode_question(self.position, model)
        return [
            seal_frame(Frame(FrameKind.QUESTION, self._terms.session, self._node, child, payload), identity)
            for child in self._children
        ]

    def add(self, data: bytes) -> None:
        """Add one answer.

        Raises:
            MessageError: rejected; the sum is as before.
        """
        frame = open_frame(
            data,
            session=self._terms.session,
            keys=self._children,
            recipient=self._node,
            expected=FrameKind.ANSWER,
            seen=self._seen,
        )
        position, steps = decode_answer(frame.payload, self._terms.parameters)
        if position != self.position:
            late = position < self.position
            error = ReplayedMessageError if late else OutOfOrderMessageError
            raise error(f"{self._terms.name(frame.sender)}: answers {position}; asked is {self.position}")
        room = _ROOM // len(self._children)
        if not (-room <= int(steps.min()) and int(steps.max()) <= room):
            raise MalformedMessageError(f"{self._terms.name(frame.sender)}: more than {room:,} steps")
        self.total += steps
        self._seen.add((frame.kind, frame.sender))


def with_own_noise(
    terms: DeploymentTerms, node: int, position: RoundPosition, total: IntArray, key: bytes
) -> IntArray:
    """A sum with the noise that the plan has its aggregator add.

    Args:
        terms: of the run.
        node: the aggregator.
        position: of the aggregation.
        total: in steps of the grid ``[M]``; private.
        key: 32 bytes; private, used once.
    """
    tier, index = terms.place(node)
    std = float(terms.plan.releases.steps[position.aggregation].node_std[tier][index])
    if std == 0:
        return total
    grid, noised = terms.grid(position), total[None].copy()
    steps = grid.node_steps(tier, index, std * grid.unit)
    DiscreteGaussianNoise().add_(noised, np.array([steps]), lambda _: key)
    released: IntArray = noised[0]
    return released

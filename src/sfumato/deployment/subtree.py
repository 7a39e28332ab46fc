"""An aggregator that carries the frames between itself and its own children: they do not pass its parent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from sfumato.deployment.carrier import AggregatingParty, FrameReceiver
from sfumato.errors import SfumatoError
from sfumato.wire.errors import MessageError
from sfumato.wire.frames import parse_frame


class Subtree:
    """An aggregator with all below it, as its parent meets it: one frame in, what is for the parent out.

    Args:
        node: the aggregator.
        children: by number, as it reaches them.
    """

    def __init__(self, node: AggregatingParty, children: Mapping[int, FrameReceiver]) -> None:
        self._node, self._children = node, children

    def receive(self, data: bytes) -> list[bytes]:
        """Take a frame of the parent, and let all below do what follows from it; see `FrameReceiver`.

        Raises:
            SfumatoError: the aggregator refuses a frame, or cannot do without a child that does not answer.
        """
        upwards: list[bytes] = []
        under_way = deque(self._node.receive(data))
        while under_way:
            frame = under_way.popleft()
            number = parse_frame(frame).recipient
            if number in self._children:
                under_way.extend(self._exchanged(number, frame))
            else:
                upwards.append(frame)
        return upwards

    def _exchanged(self, number: int, frame: bytes) -> list[bytes]:
        """What the aggregator sends when a child has got a frame of it and has answered, or has not."""
        try:
            replies = self._children[number].receive(frame)
        except SfumatoError as error:
            return self._node.lose(number, error)
        following: list[bytes] = []
        for reply in replies:
            try:
                following += self._node.receive(reply)
            except MessageError as error:
                following += self._node.lose(number, error)
        return following

"""An aggregator that carries the frames between itself and its own children: they do not pass its parent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from sfumato.deployment.carrier import FrameReceiver
from sfumato.wire.frames import parse_frame


class Subtree:
    """An aggregator with all below it, as its parent meets it: one frame in, what is for the parent out.

    Args:
        node: the aggregator.
        children: by number, as it reaches them.
    """

    def __init__(self, node: FrameReceiver, children: Mapping[int, FrameReceiver]) -> None:
        self._node, self._children = node, children

    def receive(self, data: bytes) -> list[bytes]:
        """Take a frame of the parent, and let all below do what follows from it; see `FrameReceiver`.

        Raises:
            SfumatoError: the aggregator or one of its children refuses a frame, or does not answer.
        """
        upwards: list[bytes] = []
        under_way = deque(self._node.receive(data))
        while under_way:
            frame = under_way.popleft()
            child = self._children.get(parse_frame(frame).recipient)
            if child is None:
                upwards.append(frame)
                continue
            for reply in child.receive(frame):
                under_way.extend(self._node.receive(reply))
        return upwards

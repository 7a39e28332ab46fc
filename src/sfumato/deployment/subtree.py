"""An aggregator that carries the frames between itself and its own children: they do not pass its parent."""

from __future__ import annotations

from collections.abc import Mapping

from sfumato.deployment.calls import Calls, in_turn
from sfumato.deployment.carrier import AggregatingParty, FrameReceiver, InProcess


class Subtree:
    """An aggregator with all below it, as one `FrameReceiver` for its parent.

    Args:
        node: the aggregator.
        children: by number, as it reaches them.
        calls: makes calls to children: `in_turn`, or `at_once` where they are in processes of their own.
    """

    def __init__(
        self, node: AggregatingParty, children: Mapping[int, FrameReceiver], calls: Calls = in_turn
    ) -> None:
        self._node = node
        parents = dict.fromkeys(children, node.number)
        self._carrier = InProcess({node.number: node, **children}, parents, calls)

    def receive(self, data: bytes) -> list[bytes]:
        """Take ``data``, a frame of the parent, and carry all frames below; returns those for the parent.

        Raises:
            SfumatoError: the aggregator refuses a frame, or cannot go on without a child that does not
                answer.
        """
        return self._carrier.delivered(self._node.receive(data))

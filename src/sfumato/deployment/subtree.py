"""An aggregator that carries the frames between itself and its own children: they do not pass its parent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeAlias

from sfumato.deployment.carrier import FrameReceiver
from sfumato.wire.errors import MisroutedMessageError
from sfumato.wire.frames import parse_frame

Call: TypeAlias = Callable[[], list[bytes]]
Calls: TypeAlias = Callable[[Sequence[Call]], list[list[bytes]]]


class Subtree:
    """An aggregator with all below it, as its parent meets it: one frame in, what is for the parent out.

    The aggregator gets what children send in the order in which they were asked, also where they are asked at
    the same time. For the cloud, which has no parent, this is a `Carrier`.

    Args:
        node: the aggregator.
        children: by number, as it reaches them.
        calls: makes calls to children: `in_turn`, or `together` where they are in processes of their own.

    Attributes:
        bytes_up: that children have sent so far.
        bytes_down: that were sent to children so far.
    """

    def __init__(
        self, node: FrameReceiver, children: Mapping[int, FrameReceiver], calls: Calls | None = None
    ) -> None:
        self._node, self._children, self._calls = node, children, calls or in_turn
        self.bytes_up = self.bytes_down = 0

    def receive(self, data: bytes) -> list[bytes]:
        """Take a frame of the parent, and let all below do what follows from it; see `FrameReceiver`.

        Raises:
            SfumatoError: the aggregator or one of its children refuses a frame, or does not answer.
        """
        return self._settled(self._node.receive(data))

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver frames to children, and all that follows from them; see `Carrier`.

        Raises:
            SfumatoError: as `receive`.
            MisroutedMessageError: something is for a parent.
        """
        for frame in self._settled(frames):
            recipient = parse_frame(frame).recipient
            raise MisroutedMessageError(f"a frame for party {recipient}: there is no such party")

    def _settled(self, frames: Sequence[bytes]) -> list[bytes]:
        """Let the children answer until nothing is under way; the frames for the parent."""
        upwards: list[bytes] = []
        while frames:
            asked: dict[int, list[bytes]] = {}
            for frame in frames:
                recipient = parse_frame(frame).recipient
                (asked.setdefault(recipient, []) if recipient in self._children else upwards).append(frame)
            self.bytes_down += sum(len(frame) for several in asked.values() for frame in several)
            replies = self._calls([partial(self._told, child, several) for child, several in asked.items()])
            self.bytes_up += sum(len(reply) for several in replies for reply in several)
            frames = [
                following
                for several in replies
                for reply in several
                for following in self._node.receive(reply)
            ]
        return upwards

    def _told(self, child: int, frames: Sequence[bytes]) -> list[bytes]:
        """What a child sends when it gets frames, one after the other."""
        return [reply for frame in frames for reply in self._children[child].receive(frame)]


def in_turn(calls: Sequence[Call]) -> list[list[bytes]]:
    """What all calls return, made one after the other in this thread."""
    return [call() for call in calls]


def together(calls: Sequence[Call]) -> list[list[bytes]]:
    """What all calls return, made at the same time; of several that fail the first one's error is raised.

    All have ended then: nobody uses a connection any more. Threads are daemons: an interrupt does not wait.
    """
    if len(calls) == 1:
        return [calls[0]()]
    futures: list[Future[list[bytes]]] = [Future() for _ in calls]

    def make(call: Call, future: Future[list[bytes]]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    for call, future in zip(calls, futures, strict=True):
        threading.Thread(target=make, args=(call, future), daemon=True).start()
    wait(futures)
    return [future.result() for future in futures]

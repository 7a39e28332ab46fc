"""A party that dials all of its parents: a worker of groups has a connection to each of its masters.

Every connection is served in a thread of its own. All frames go to the party in the thread that began this,
one after the other: the party's files belong to that thread. What a frame is answered with goes back over the
connection that it came over, and a connection is for frames of the one parent at its other end: a frame that
another one has signed is refused there, so no parent gets the answer to another one by showing its question.

A worker answers nobody until all of its masters have asked (`worker`). A question that comes too early is
kept for `_KEPT_S`, and answered as soon as the last one is there. Otherwise its answer has no frame, and the
master asks again (`asked_again`): so a connection that was lost meanwhile is noticed at both ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import NoReturn

from sfumato.deployment.carrier import FrameReceiver
from sfumato.deployment.neighbours import DialedParent, Neighbours
from sfumato.deployment.rare_lines import RareLines
from sfumato.deployment.tls_hops import answer_parent
from sfumato.errors import SfumatoError
from sfumato.wire.errors import MisroutedMessageError
from sfumato.wire.frames import parse_frame

_KEPT_S = 20.0
_POLL_S = 0.5


def answer_parents(
    party: FrameReceiver,
    hops: Neighbours,
    most_bytes: Callable[[int], int],
    on_event: Callable[[str], object],
    on_refusal: Callable[[SfumatoError], object],
) -> NoReturn:
    """Answer frames of all parents until the process is ended; lost connections are made again.

    Args:
        party: that answers.
        hops: of the party, which has at least one parent.
        most_bytes: of a frame of a parent, by its number.
        on_event: see `answer_parent`; also called, once in a while, with a sentence on whom it waits for.
        on_refusal: see `answer_parent`.
    """
    if len(hops.parents) == 1:
        (parent,) = hops.parents
        answer_parent(party, hops.own, parent, most_bytes(parent.number), on_event, on_refusal)
    turns: Queue[_Asked | BaseException] = Queue()

    def serve(parent: DialedParent) -> None:
        try:
            most = most_bytes(parent.number)
            answer_parent(_Face(parent, turns), hops.own, parent, most, on_event, on_refusal)
        except BaseException as error:  # ends the party, as it does where there is one parent
            turns.put(error)

    for parent in hops.parents:
        threading.Thread(target=serve, args=(parent,), daemon=True).start()
    _InTurn(party, {parent.number: parent.name for parent in hops.parents}, on_event).answer(turns)


@dataclass(frozen=True)
class _Asked:
    """A frame that waits for its answer.

    Attributes:
        parent: number of the parent that it came from.
        data: the frame.
        until: when it is answered without a frame, of the monotonic clock.
        answer: the frames that go back, or why there are none.
    """

    parent: int
    data: bytes
    until: float
    answer: Future[list[bytes]] = field(default_factory=Future)


class _Face:
    """A party as one of its parents reaches it: its frames wait for their turn; see `FrameReceiver`."""

    def __init__(self, parent: DialedParent, turns: Queue[_Asked | BaseException]) -> None:
        self._parent, self._turns = parent, turns

    def receive(self, data: bytes) -> list[bytes]:
        """Wait for the turn of ``data``, a frame of this parent; returns the party's frames in answer.

        Raises:
            MisroutedMessageError: the frame is of another party.
            SfumatoError: the party refuses it.
        """
        sender = parse_frame(data).sender
        if sender != self._parent.number:
            raise MisroutedMessageError(f"a frame of party {sender}, by {self._parent.name}")
        asked = _Asked(sender, data, time.monotonic() + _KEPT_S)
        self._turns.put(asked)
        return asked.answer.result()


class _InTurn:
    """Gives the frames of all parents to a party; keeps those that it does not answer yet."""

    def __init__(
        self, party: FrameReceiver, names: Mapping[int, str], on_event: Callable[[str], object]
    ) -> None:
        self._party, self._names = party, names
        self._lines = RareLines(on_event, most=1)
        self._kept: list[_Asked] = []

    def answer(self, turns: Queue[_Asked | BaseException]) -> NoReturn:
        """Answer the frames that come through ``turns``, one after the other, without end.

        Raises:
            BaseException: whatever ended the thread of a connection.
        """
        while True:
            try:
                asked = turns.get(timeout=_POLL_S if self._kept else None)
            except Empty:
                self._let_go()
                continue
            if isinstance(asked, BaseException):
                raise asked
            self._kept.append(asked)
            if self._is_answered(asked):
                self._kept = [one for one in self._kept if not (one is asked or self._is_answered(one))]
            self._let_go()

    def _is_answered(self, asked: _Asked) -> bool:
        """Give the frame that was asked to the party; returns whether it has answered or refused it."""
        try:
            frames = self._party.receive(asked.data)
        except SfumatoError as error:
            asked.answer.set_exception(error)
            return True
        if frames:
            asked.answer.set_result(frames)
        return bool(frames)

    def _let_go(self) -> None:
        """Answer frames without one that were kept long enough."""
        late = [asked for asked in self._kept if time.monotonic() >= asked.until]
        if not late:
            return
        there = {asked.parent for asked in self._kept}
        missing = ", ".join(name for parent, name in self._names.items() if parent not in there)
        self._lines.say("", f"waits for a question of {missing}")
        for asked in late:
            self._kept.remove(asked)
            asked.answer.set_result([])

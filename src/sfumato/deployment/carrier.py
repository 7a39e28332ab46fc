"""How frames get from party to party. What carries them sees bytes: frames are signed from end to end.

Who a frame says that it is from is not believed: a carrier knows which party handed it in. A frame that says
another sender, or goes neither to the parent nor to a child of its sender, is refused, and counts against the
party that handed it in. So no party makes an aggregator do without another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

from sfumato.deployment.calls import Answers, Calls, in_turn
from sfumato.errors import SfumatoError
from sfumato.wire.errors import MessageError, MisroutedMessageError, UnknownSenderError
from sfumato.wire.frames import parse_frame


class FrameReceiver(Protocol):
    """A party as a state machine: bytes of a frame in, bytes of the frames sent in answer out."""

    def receive(self, data: bytes) -> list[bytes]:
        """Take one frame, ``data``; returns the frames that the party sends in answer.

        They name their recipients; there may be none.

        Raises:
            SfumatoError: the frame is refused; nothing is sent.
        """


class AggregatingParty(FrameReceiver, Protocol):
    """A party with children. It may be able to go on without some of them."""

    @property
    def number(self) -> int:
        """The party's number in the terms of the run."""

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without a child that does not answer, or whose answer is refused; returns the frames sent.

        Args:
            child: its number.
            error: why.

        Raises:
            SfumatoError: ``error``, if the child may not be lost; or too few are left.
        """


def told(party: FrameReceiver, frames: Sequence[bytes]) -> Answers:
    """Give frames to a party, one after the other; stops at the first that it refuses.

    Returns:
        The frames that the party sent up to then, and the error with which it refused a frame; ``None`` if it
        refused none.
    """
    sent: list[bytes] = []
    for data in frames:
        try:
            sent += party.receive(data)
        except SfumatoError as error:
            return sent, error
    return sent, None


class Carrier(Protocol):
    """Carries frames between parties."""

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver frames, and all frames sent in answer to them, until none is left.

        Raises:
            SfumatoError: a party fails, or cannot go on without another one.
        """

    @property
    def bytes_up(self) -> int:
        """Bytes carried towards the cloud so far."""

    @property
    def bytes_down(self) -> int:
        """Bytes carried towards the devices so far."""


@dataclass
class InProcess:
    """A carrier among parties that this process calls itself: one at the top, and others below it.

    Frames go in waves: those for parents are delivered one by one, those for children all by one use of
    `calls`. Parents get answers in the order in which their children were asked.

    Attributes:
        parties: by number.
        parents: of every party but the one at the top, by number.
        calls: makes calls to children: `in_turn`, or `at_once` where each is in a process of its own.
    """

    parties: Mapping[int, FrameReceiver]
    parents: Mapping[int, int]
    calls: Calls = in_turn
    bytes_up: int = field(default=0, init=False)
    bytes_down: int = field(default=0, init=False)

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver frames of the cloud, and all frames sent in answer to them; see `Carrier`.

        Raises:
            SfumatoError: an aggregator fails, or cannot go on without a child that failed or was refused.
        """
        for data in self.delivered(frames):
            raise MisroutedMessageError(
                f"a frame for party {parse_frame(data).recipient}: there is no such party"
            )

    def delivered(self, frames: Sequence[bytes]) -> list[bytes]:
        """Deliver frames of the party at the top, and all frames sent in answer to them.

        Returns:
            Frames of the party at the top for parties that are not its children.

        Raises:
            SfumatoError: see `carry`.
        """
        (top,) = self.parties.keys() - self.parents.keys()
        wave, for_others = [(top, data) for data in frames], list[bytes]()
        while wave:
            next_wave: list[tuple[int, bytes]] = []
            asked: dict[int, list[bytes]] = {}
            for origin, data in wave:
                parent = self.parents.get(origin)
                try:
                    recipient = self._recipient(origin, data)
                except MessageError as error:
                    if parent is None:
                        raise
                    next_wave += self._without(parent, origin, error)
                    continue
                if recipient == parent:
                    next_wave += self._up(origin, parent, data)
                elif self.parents.get(recipient) == origin:
                    asked.setdefault(recipient, []).append(data)
                else:
                    for_others.append(data)
            wave = next_wave + self._down(asked)
        return for_others

    def _recipient(self, origin: int, data: bytes) -> int:
        """The number of the party that frame ``data``, handed in by party ``origin``, is for.

        It may be the parent or a child of ``origin``; for the party at the top anybody.

        Raises:
            MessageError: it is no frame, says another sender, or is for somebody else.
        """
        frame = parse_frame(data)
        if frame.sender != origin:
            raise UnknownSenderError(f"a frame of party {origin} that says it is of party {frame.sender}")
        parent = self.parents.get(origin)
        if parent not in (None, frame.recipient) and self.parents.get(frame.recipient) != origin:
            raise MisroutedMessageError(f"a frame for party {frame.recipient}, of party {origin}")
        return frame.recipient

    def _up(self, child: int, parent: int, data: bytes) -> list[tuple[int, bytes]]:
        """Deliver ``data``, a frame of ``child``, to its ``parent``.

        Returns:
            The frames that the parent sends in answer, each with the parent's number. If it refuses the
            frame, those that it sends when it goes on without the child.

        Raises:
            SfumatoError: the aggregator has failed, or cannot do without the child.
        """
        self.bytes_up += len(data)
        try:
            return [(parent, sent) for sent in self.parties[parent].receive(data)]
        except MessageError as error:
            return self._without(parent, child, error)

    def _down(self, asked: Mapping[int, Sequence[bytes]]) -> list[tuple[int, bytes]]:
        """Deliver the frames ``asked``, by number of the child they are for, and collect what is sent then.

        Returns:
            Frames, each with the number of its sender: of the children, and of the parents of children that
            failed.

        Raises:
            SfumatoError: an aggregator cannot do without a child.
        """
        self.bytes_down += sum(len(data) for several in asked.values() for data in several)
        answers = self.calls(
            [partial(told, self.parties[child], several) for child, several in asked.items()]
        )
        sent: list[tuple[int, bytes]] = []
        for child, (frames, error) in zip(asked, answers, strict=True):
            sent += [(child, data) for data in frames]
            if error is not None:
                sent += self._without(self.parents[child], child, error)
        return sent

    def _without(self, parent: int, child: int, error: SfumatoError) -> list[tuple[int, bytes]]:
        """Tell ``parent`` that ``child`` is refused or does not answer, because of ``error``.

        Returns:
            The frames that the parent sends when it goes on, each with its number.

        Raises:
            SfumatoError: ``error``, if the aggregator cannot do without the child.
        """
        return [(parent, sent) for sent in cast(AggregatingParty, self.parties[parent]).lose(child, error)]

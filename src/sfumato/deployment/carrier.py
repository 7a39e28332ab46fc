"""How frames get from party to party. What carries them sees bytes: frames are signed from end to end.

Who a frame says that it is from is not believed: a carrier knows which party handed it in. A frame that says
another sender, or goes neither to the parent nor to a child of its sender, is refused, and counts against the
party that handed it in. So no party makes an aggregator do without another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from sfumato.errors import SfumatoError
from sfumato.wire.errors import MessageError, MisroutedMessageError, UnknownSenderError
from sfumato.wire.frames import parse_frame


class FrameReceiver(Protocol):
    """A party: a state machine from bytes to bytes."""

    def receive(self, data: bytes) -> list[bytes]:
        """Take one frame; the frames that it sends then, which name their recipients.

        Raises:
            SfumatoError: the frame is refused; nothing is sent.
        """


class AggregatingParty(FrameReceiver, Protocol):
    """A party with children, some of which it may do without."""

    @property
    def number(self) -> int:
        """Its own, in the terms."""

    def lose(self, child: int, error: SfumatoError) -> list[bytes]:
        """Go on without a child that does not answer, or whose answer is refused; what is sent then.

        Args:
            child: its number.
            error: why.

        Raises:
            SfumatoError: ``error``, if the child may not be lost; or too few are left.
        """


class Carrier(Protocol):
    """Carries frames."""

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver frames, and all that follows from them, until nothing is under way any more."""

    @property
    def bytes_up(self) -> int:
        """Carried towards the cloud so far."""

    @property
    def bytes_down(self) -> int:
        """Carried towards the devices so far."""


@dataclass
class InProcess:
    """Parties in this process, one frame at a time: one at the top, and others below it.

    Attributes:
        parties: by number.
        parents: of every party but the one at the top, by number.
    """

    parties: Mapping[int, FrameReceiver]
    parents: Mapping[int, int]
    bytes_up: int = field(default=0, init=False)
    bytes_down: int = field(default=0, init=False)

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver frames of the cloud, and all that follows from them; see `Carrier`.

        Raises:
            SfumatoError: an aggregator fails, or cannot do without a child that is refused or refuses.
        """
        for data in self.delivered(frames):
            raise MisroutedMessageError(
                f"a frame for party {parse_frame(data).recipient}: there is no such party"
            )

    def delivered(self, frames: Sequence[bytes]) -> list[bytes]:
        """Deliver frames of the party at the top, and all that follows from them.

        Returns:
            What the party at the top sends to others than its children.

        Raises:
            SfumatoError: see `carry`.
        """
        (top,) = self.parties.keys() - self.parents.keys()
        under_way, beyond = deque((top, data) for data in frames), list[bytes]()
        while under_way:
            origin, data = under_way.popleft()
            parent = self.parents.get(origin)
            try:
                recipient = self._recipient(origin, data)
            except MessageError as error:
                if parent is None:
                    raise
                under_way.extend(self._without(parent, origin, error))
                continue
            if recipient == parent:
                under_way.extend(self._up(origin, parent, data))
            elif self.parents.get(recipient) == origin:
                under_way.extend(self._down(origin, recipient, data))
            else:
                beyond.append(data)
        return beyond

    def _recipient(self, origin: int, data: bytes) -> int:
        """Whom a frame is for that ``origin`` handed in: its parent or a child, or of the top anybody.

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
        """What an aggregator sends, and its number, when it has got a frame of a child.

        Raises:
            SfumatoError: the aggregator has failed, or cannot do without the child.
        """
        self.bytes_up += len(data)
        try:
            return [(parent, sent) for sent in self.parties[parent].receive(data)]
        except MessageError as error:
            return self._without(parent, child, error)

    def _down(self, parent: int, child: int, data: bytes) -> list[tuple[int, bytes]]:
        """What a child sends, and its number, when it has got a frame of its parent; or what the parent does
        without it.

        Raises:
            SfumatoError: the aggregator cannot do without the child.
        """
        self.bytes_down += len(data)
        try:
            return [(child, sent) for sent in self.parties[child].receive(data)]
        except SfumatoError as error:
            return self._without(parent, child, error)

    def _without(self, parent: int, child: int, error: SfumatoError) -> list[tuple[int, bytes]]:
        """What an aggregator sends, and its number, when a child is refused or does not answer.

        Raises:
            SfumatoError: ``error``, if the aggregator cannot do without the child.
        """
        return [(parent, sent) for sent in cast(AggregatingParty, self.parties[parent]).lose(child, error)]

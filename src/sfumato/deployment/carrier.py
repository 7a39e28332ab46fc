"""How frames get from party to party. What carries them sees bytes: frames are signed from end to end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from sfumato.errors import SfumatoError
from sfumato.wire.errors import MessageError, MisroutedMessageError
from sfumato.wire.frames import Frame, parse_frame


class FrameReceiver(Protocol):
    """A party: a state machine from bytes to bytes."""

    def receive(self, data: bytes) -> list[bytes]:
        """Take one frame; the frames that it sends then, which name their recipients.

        Raises:
            SfumatoError: the frame is refused; nothing is sent.
        """


class AggregatingParty(FrameReceiver, Protocol):
    """A party with children, some of which it may do without."""

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
    """All parties in this process, one frame at a time.

    Attributes:
        parties: by number.
        parents: of every party but the cloud, by number.
    """

    parties: Mapping[int, FrameReceiver]
    parents: Mapping[int, int]
    bytes_up: int = field(default=0, init=False)
    bytes_down: int = field(default=0, init=False)

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver frames, and all that follows from them; see `Carrier`.

        Raises:
            SfumatoError: a party refuses one.
        """
        under_way = deque(frames)
        while under_way:
            data = under_way.popleft()
            frame = parse_frame(data)
            if self.parents.get(frame.sender) == frame.recipient:
                self.bytes_up += len(data)
            else:
                self.bytes_down += len(data)
            if frame.recipient not in self.parties:
                raise MisroutedMessageError(f"a frame for party {frame.recipient}: there is no such party")
            try:
                under_way.extend(self.parties[frame.recipient].receive(data))
            except SfumatoError as error:
                under_way.extend(self._without_child(frame, error))

    def _without_child(self, frame: Frame, error: SfumatoError) -> list[bytes]:
        """What an aggregator sends when ``frame``, to or from a child, is refused or not answered.

        Raises:
            SfumatoError: ``error``, if the aggregator itself has failed, or cannot do without the child.
        """
        upwards = self.parents.get(frame.sender) == frame.recipient
        if upwards and not isinstance(error, MessageError):
            raise error
        node, child = (frame.recipient, frame.sender) if upwards else (frame.sender, frame.recipient)
        return cast(AggregatingParty, self.parties[node]).lose(child, error)

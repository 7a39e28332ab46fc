"""How frames get between the masters and the workers of groups; see `carrier` for trees.

As there, a carrier sees signed bytes, and knows which party handed in a frame: one that says another sender,
or is for somebody who shares no group with its sender, is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sfumato.deployment.calls import Calls, in_turn
from sfumato.deployment.carrier import FrameReceiver, told
from sfumato.wire.errors import MisroutedMessageError, UnknownSenderError
from sfumato.wire.frames import parse_frame


@dataclass
class BetweenGroups:
    """Masters and workers that this process reaches itself.

    Frames go in waves: questions of all masters, then the answers of all workers.

    Attributes:
        masters: by number.
        workers: by number.
        masters_of: the masters of every worker, by their numbers.
        calls: makes calls to workers: `in_turn`, or `at_once` where each is in a process of its own.
    """

    masters: Mapping[int, FrameReceiver]
    workers: Mapping[int, FrameReceiver]
    masters_of: Mapping[int, Collection[int]]
    calls: Calls = in_turn
    bytes_up: int = field(default=0, init=False)
    bytes_down: int = field(default=0, init=False)

    def carry(self, frames: Sequence[bytes]) -> None:
        """Deliver questions of masters, and the answers to them; see `carrier.Carrier`.

        Raises:
            SfumatoError: a party refuses a frame, or a frame is not for whom it may be.
        """
        asked: dict[int, list[bytes]] = {}
        for data in frames:
            frame = parse_frame(data)
            if frame.sender not in self.masters_of.get(frame.recipient, ()):
                raise MisroutedMessageError(f"a frame for party {frame.recipient}, of party {frame.sender}")
            asked.setdefault(frame.recipient, []).append(data)
        self.bytes_down += sum(len(data) for several in asked.values() for data in several)
        answers = self.calls([partial(told, self.workers[one], several) for one, several in asked.items()])
        for worker, (sent, error) in zip(asked, answers, strict=True):
            if error is not None:
                raise error
            for data in sent:
                self._up(worker, data)

    def _up(self, worker: int, data: bytes) -> None:
        """Deliver an answer of a worker to the master that it is for.

        Raises:
            SfumatoError: the master refuses it, or it says another sender or is for somebody else.
        """
        frame = parse_frame(data)
        if frame.sender != worker:
            raise UnknownSenderError(f"a frame of party {worker} that says it is of party {frame.sender}")
        if frame.recipient not in self.masters_of[worker]:
            raise MisroutedMessageError(f"a frame for party {frame.recipient}, of party {worker}")
        self.bytes_up += len(data)
        self.masters[frame.recipient].receive(data)

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
    """A carrier between masters and workers that this process calls itself.

    A worker answers nobody until all of its masters have asked; earlier questions are then delivered again.

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
        waiting: dict[int, dict[int, bytes]] = {}
        for data in frames:
            frame = parse_frame(data)
            if frame.sender not in self.masters_of.get(frame.recipient, ()):
                raise MisroutedMessageError(f"a frame for party {frame.recipient}, of party {frame.sender}")
            waiting.setdefault(frame.recipient, {})[frame.sender] = data
        while waiting:
            waiting = self._still_waiting(waiting)

    def _still_waiting(self, asked: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
        """Deliver open questions to workers, and the answers to masters.

        Args:
            asked: the questions, by worker and master.

        Returns:
            Those that still wait for an answer, likewise. A worker that answered nobody has none: some of its
            masters have not asked yet.

        Raises:
            SfumatoError: as a worker or a master raised it.
        """
        self.bytes_down += sum(len(data) for several in asked.values() for data in several.values())
        answers = self.calls(
            [partial(told, self.workers[worker], list(several.values())) for worker, several in asked.items()]
        )
        left: dict[int, dict[int, bytes]] = {}
        for (worker, several), (sent, error) in zip(asked.items(), answers, strict=True):
            if error is not None:
                raise error
            answered = {self._up(worker, data) for data in sent}
            rest = {master: data for master, data in several.items() if master not in answered}
            if answered and rest:
                left[worker] = rest
        return left

    def _up(self, worker: int, data: bytes) -> int:
        """Deliver ``data``, an answer of ``worker``, to the master it is for; returns the master's number.

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
        return frame.recipient

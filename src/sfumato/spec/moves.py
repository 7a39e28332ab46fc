"""``topology.moves``: devices that change their edge from one round to another."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sfumato.spec.base import Rate, Section, count_limit
from sfumato.spec.limits import MAX_DEVICES, MAX_MOVES, MAX_ROUNDS
from sfumato.spec.refusals import Refusals

_Round = Annotated[
    int,
    Field(ge=2, le=MAX_ROUNDS),
    count_limit(MAX_ROUNDS, "in round 1 everybody is where topology says", least=2),
]
_Device = Annotated[int, Field(ge=0, lt=MAX_DEVICES), count_limit(MAX_DEVICES - 1, least=0)]

Move = tuple[_Round, _Device, _Device]
"""From which round on (from 1), which device, under which edge."""


class TopologyMoves(Section):
    """Exactly one of: ``rate``, ``trace``, ``file``. Who is where is public."""

    rate: Rate | None = Field(
        default=None,
        description="before each round but the first, a device goes to another edge with this probability",
    )
    trace: tuple[Move, ...] | None = Field(
        default=None, description="[round, device, edge]: from that round on the device is under that edge"
    )
    file: str | None = Field(
        default=None, description="a CSV or Parquet file with the columns round, device, edge"
    )
    drawn_at: Rate | None = Field(
        default=None, description="written into run folders: the rate that the trace was drawn at"
    )

    def refusals(self) -> Refusals:
        """Rows as of `Section.refusals`.

        They refuse none or several of ``rate``, ``trace`` and ``file``, ``drawn_at`` without ``trace``, too
        many moves, and a device that moves twice in a round.
        """
        ways = {"rate": self.rate, "trace": self.trace, "file": self.file}
        written = [key for key, value in ways.items() if value is not None]
        found = " and ".join(written) or "none of them"
        yield len(written) != 1, "", None, f"give exactly one of rate, trace, file; found {found}"
        yield self.drawn_at is not None and self.trace is None, "drawn_at", self.drawn_at, "goes with trace"
        trace = self.trace or ()
        most = f"must have at most {MAX_MOVES:,} moves, not {len(trace):,}"
        yield len(trace) > MAX_MOVES, "trace", None, most
        seen: set[tuple[int, int]] = set()
        for number, (round_number, device, _) in enumerate(trace):
            if (round_number, device) in seen:
                allowed = f"device {device} is placed in round {round_number} already"
                yield True, f"trace[{number}]", list(trace[number]), allowed
            seen.add((round_number, device))

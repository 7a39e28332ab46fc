"""``topology.moves``: devices that change their edge from one round to another."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from sfumato.spec.base import Rate, Section, count_limit, refuse
from sfumato.spec.limits import MAX_DEVICES, MAX_MOVES, MAX_ROUNDS

_Round = Annotated[
    int,
    Field(ge=2, le=MAX_ROUNDS),
    count_limit(MAX_ROUNDS, "in round 1 everybody is where topology says", least=2),
]
_Device = Annotated[int, Field(ge=0, lt=MAX_DEVICES), count_limit(MAX_DEVICES - 1, least=0)]

Move = tuple[_Round, _Device, _Device]
"""From which round on (from 1), which device, under which edge."""


class Moves(Section):
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

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Moves:
        ways = {"rate": self.rate, "trace": self.trace, "file": self.file}
        written = [key for key, value in ways.items() if value is not None]
        if len(written) != 1:
            found = " and ".join(written) or "none of them"
            raise refuse("", None, f"give exactly one of rate, trace, file; found {found}")
        if self.drawn_at is not None and self.trace is None:
            raise refuse("drawn_at", self.drawn_at, "goes with trace")
        if self.trace is not None:
            self._no_device_twice(self.trace)
        return self

    def _no_device_twice(self, trace: tuple[Move, ...]) -> None:
        if len(trace) > MAX_MOVES:
            raise refuse("trace", None, f"must have at most {MAX_MOVES:,} moves, not {len(trace):,}")
        seen: set[tuple[int, int]] = set()
        for number, (round_number, device, _) in enumerate(trace):
            if (round_number, device) in seen:
                allowed = f"device {device} is placed in round {round_number} already"
                raise refuse(f"trace[{number}]", list(trace[number]), allowed)
            seen.add((round_number, device))

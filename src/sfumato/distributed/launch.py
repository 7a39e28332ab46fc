"""Which rank this process is, as torchrun says it in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from sfumato.errors import SpecError

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Launch:
    """How this process was started.

    Attributes:
        rank: its number among the processes of the run, from 0.
        count: how many processes the run has.
        local: its number among those on this machine.
    """

    rank: int = 0
    count: int = 1
    local: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """The rank of this process and the number of ranks, as torchrun's variables say; alone without them.

        Raises:
            SpecError: a variable is no whole number, or ``RANK`` is not below ``WORLD_SIZE``.
        """
        if not all(environment.get(name) for name in _NEEDED):
            return cls()
        rank, count, local = (_whole(environment, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        if count < 1 or rank >= count:
            raise SpecError("RANK", rank, f"must be below WORLD_SIZE, which is {count}")
        return cls(rank, count, local)

    @property
    def alone(self) -> bool:
        """Whether this process is the whole run."""
        return self.count == 1


def _whole(environment: Mapping[str, str], name: str) -> int:
    """The whole number from 0 in the environment variable ``name``, 0 if it is not set; else `SpecError`."""
    text = environment.get(name, "0")
    if not (text.isascii() and text.isdecimal()):
        raise SpecError(name, text, "must be a whole number from 0; torchrun sets it")
    return int(text)

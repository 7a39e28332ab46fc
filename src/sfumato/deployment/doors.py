"""Where the parties of one machine listen, and where their aggregators reach them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.sockets import SOCKET


@dataclass(frozen=True)
class Doors:
    """The sockets of all parties of one machine, by number. Nobody connects to the cloud.

    Attributes:
        own: where each party listens.
        reached: where its aggregator connects: a relay's socket, from which frames get to the party.
        relay_user: user id of the relays; ``None`` without relays, and then ``reached`` is ``own``.
    """

    own: Sequence[Path]
    reached: Sequence[Path]
    relay_user: int | None = None

    @classmethod
    def of_folders(cls, folders: Sequence[Path]) -> Doors:
        """A socket in each party's folder, without relays."""
        sockets = [folder.resolve() / SOCKET for folder in folders]
        return cls(sockets, sockets)

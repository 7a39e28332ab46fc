"""Where the parties of one machine listen, and where their aggregators reach them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.sockets import SOCKET


@dataclass(frozen=True)
class Doors:
    """The sockets of all parties, by number. Nobody connects to the cloud.

    Attributes:
        own: where a party listens.
        reached: where its aggregator connects: to a relay, which takes what comes there to the party.
        relay_user: the number of the relay's user; left out: there is no relay, and the sockets are the same.
    """

    own: Sequence[Path]
    reached: Sequence[Path]
    relay_user: int | None = None

    @classmethod
    def of_folders(cls, folders: Sequence[Path]) -> Doors:
        """A socket in each party's folder, to which its aggregator connects itself."""
        sockets = [folder.resolve() / SOCKET for folder in folders]
        return cls(sockets, sockets)

"""What a device notes in its owner's ledger before it sends: its answers, its coins, the lists that it signs.

The ledger refuses a second, other note of the same kind about an aggregation. Answers and coins are noted by
commitments of the device's memory (`PartyMemory.commitment`), which only that memory can make again: a device
that was killed between its memory and the ledger goes on, and one whose memory was put back does not,
whatever it answers or draws then. A list of survivors is noted by its hash: it is told to all who are on it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sfumato.deployment.ledger import OwnersLedger
from sfumato.deployment.messages import RoundPosition
from sfumato.wire.keys import digest


@dataclass(frozen=True)
class OwnersNotes:
    """Notes in the owner's ledger on what one device sends in one run.

    Attributes:
        ledger: path of the owner's ledger.
        session: of the run.
        device: its number there.
    """

    ledger: Path
    session: bytes
    device: int

    def answer(self, position: RoundPosition, commitment: bytes) -> None:
        """Note an answer before it is sent; ``commitment``: from `PartyMemory.commitment`.

        Raises:
            SessionMemoryError: a copy of this device gave another answer.
        """
        self._note(self.session, position, commitment)

    def coin(self, number: int, commitment: bytes) -> None:
        """Note, before the device answers, whether it drew to take part in round ``number``.

        ``commitment``: from `PartyMemory.commitment`.

        Raises:
            SessionMemoryError: a copy of this device has made another draw.
        """
        self._note(digest(b"takes part", self.session), RoundPosition(number, 0), commitment)

    def survivors(self, position: RoundPosition, listed: bytes) -> None:
        """Note a list of survivors before it is signed; ``listed``: packed as in its message.

        Raises:
            SessionMemoryError: a copy of this device signed another one.
        """
        self._note(digest(b"signs survivors", self.session), position, digest(b"signed", listed))

    def _note(self, what: bytes, position: RoundPosition, content: bytes) -> None:
        """Enter ``content``, 32 bytes, into the ledger as the note of kind ``what`` about ``position``."""
        with closing(OwnersLedger(self.ledger)) as ledger:
            ledger.note(what, self.device, position, content)

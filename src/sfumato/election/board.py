"""The public board of one election: it takes posts of the open phase, and refuses by name what is not one.

A post that is refused leaves the board as it was: nobody can spoil an election for the others by posting
nonsense, twice, or late. What parties must trust the board for: that it takes everybody's posts until a phase
closes, and ends the election. That it shows all of them the same, and omits nothing that a voucher posted,
they check themselves.
"""

from __future__ import annotations

from sfumato.election.messages import ElectionMessageKind
from sfumato.election.reading import Reading, open_post
from sfumato.election.terms import ElectionTerms
from sfumato.wire import errors


class Board:
    """What was posted in one election.

    Args:
        terms: of the election.
    """

    def __init__(self, terms: ElectionTerms) -> None:
        """Start an empty board on which parties may post their public keys."""
        self._terms = terms
        self._reading = Reading(terms)
        self._seen: set[tuple[int, int]] = set()
        self._posts: list[bytes] = []
        self.phase: ElectionMessageKind | None = ElectionMessageKind.KEY

    @property
    def posts(self) -> tuple[bytes, ...]:
        """A tuple of all accepted posts, as bytes, in the order in which they came."""
        return tuple(self._posts)

    def post(self, data: bytes) -> None:
        """Check ``data``, a post of the open phase, and append it to the board.

        Raises:
            MessageError: it is not authentic, not of this election, late, early, the second of its kind,
                malformed, or does not follow from what was posted before.
            ElectionError: its content copies or wrongly opens a commitment, or vouches for another board.
        """
        if self.phase is None:
            raise errors.OutOfOrderMessageError("the election is over")
        frame = open_post(self._terms, data, expected=self.phase, seen=self._seen)
        self._reading.admit(frame, data)
        self._seen.add((frame.kind, frame.sender))
        self._posts.append(data)

    def close(self) -> None:
        """End the open phase and open the next; after the last phase nothing can be posted."""
        if self.phase is not None:
            self.phase = (
                None if self.phase is ElectionMessageKind.RECOVER else ElectionMessageKind(self.phase + 1)
            )

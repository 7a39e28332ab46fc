"""What the ranks of a run exchange. Every rank calls the same exchanges in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class Ranks(Protocol):
    """The processes of one run, seen from one of them."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def count(self) -> int:
        """How many processes there are."""

    def added(self, values: Tensor) -> Tensor:
        """The sums over all ranks of what they give, in the memory of ``values``; they must be exact.

        Args:
            values: int64, of the same shape on every rank.
        """

    def largest(self, value: int) -> int:
        """The largest of what the ranks give; at most 2^63 - 1."""

    def share_rows_(self, values: Tensor, owners: Sequence[Tensor]) -> None:
        """Fill in, on every rank, the rows that the other ranks own.

        Args:
            values: ``[p, ...]``, of the same shape and type on every rank.
            owners: for each rank, the rows it owns, int64 on the CPU; each row at most once.
        """

    def gather(self, value: T) -> list[T]:
        """What every rank gives, in the order of ranks; small objects that can be pickled."""

    def of_first(self, value: T) -> T:
        """What rank 0 gives; the others' is ignored."""


class Alone:
    """One process: whatever is exchanged stays as it is."""

    rank = 0
    count = 1

    def added(self, values: Tensor) -> Tensor:
        """See `Ranks`."""
        return values

    def largest(self, value: int) -> int:
        """See `Ranks`."""
        return value

    def share_rows_(self, values: Tensor, owners: Sequence[Tensor]) -> None:
        """See `Ranks`."""

    def gather(self, value: T) -> list[T]:
        """See `Ranks`."""
        return [value]

    def of_first(self, value: T) -> T:
        """See `Ranks`."""
        return value


ALONE: Ranks = Alone()

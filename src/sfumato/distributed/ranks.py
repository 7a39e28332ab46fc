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

    def sum_(self, values: Tensor) -> None:
        """Replace ``values`` by their sums over all ranks, which must be exact: int64, or one rank's at most.

        Args:
            values: of the same shape on every rank. Where they are floats, every element is 0 on all ranks
                but one, so that no sum is rounded.
        """

    def maximum(self, value: float) -> float:
        """The largest of what the ranks give; a NaN counts as infinite."""

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

    def sum_(self, values: Tensor) -> None:
        """See `Ranks`."""

    def maximum(self, value: float) -> float:
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

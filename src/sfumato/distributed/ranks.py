"""What the ranks of a run exchange. Every rank calls the same exchanges in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Ranks(Protocol):
    """The processes of one run, seen from one of them."""

    @property
    def rank(self) -> int:
        """The number of this process among the ranks, from 0."""

    @property
    def count(self) -> int:
        """The number of ranks, which are the processes of the run."""

    def added(self, values: IntArray) -> IntArray:
        """All-reduce by sum: the sums of ``values`` over all ranks, entry by entry, on every rank.

        ``values`` has the same shape on every rank, and may be overwritten by the sums.
        """

    def largest(self, values: IntArray) -> IntArray:
        """All-reduce by maximum: as `added`, with the largest of ``values`` in place of the sum."""

    def share_rows_(self, values: Tensor, owners: Sequence[Tensor]) -> None:
        """Fill in, on every rank and in place, the rows of ``values`` that other ranks own.

        Args:
            values: ``[p, ...]``, of the same shape and type on every rank.
            owners: for each rank, the rows it owns, int64 on the CPU; each row at most once.
        """

    def moved(self, values: Tensor, going: Sequence[int], coming: Sequence[int]) -> Tensor:
        """Send rows of ``values`` to other ranks, and receive theirs.

        Args:
            values: ``[p, M]``, in the order of the ranks that they are for.
            going: how many rows are for each rank.
            coming: how many rows each rank sends here.

        Returns:
            The rows that came, in the order of the ranks that sent them.
        """

    def gather(self, value: T) -> list[T]:
        """Each rank's ``value``, in the order of ranks; small objects that can be pickled."""

    def of_first(self, value: T) -> T:
        """Broadcast from rank 0: its ``value``, on every rank; what the others pass is ignored.

        ``value``: a small object that can be pickled.
        """


class Alone:
    """One process: whatever is exchanged stays as it is."""

    rank = 0
    count = 1

    def added(self, values: IntArray) -> IntArray:
        """The sums over all ranks: ``values`` itself, as there is one rank."""
        return values

    def largest(self, values: IntArray) -> IntArray:
        """The largest over all ranks, entry by entry: ``values`` itself, as there is one rank."""
        return values

    def share_rows_(self, values: Tensor, owners: Sequence[Tensor]) -> None:
        """Do nothing: this rank owns all rows of ``values``, whatever ``owners`` says."""

    def moved(self, values: Tensor, going: Sequence[int], coming: Sequence[int]) -> Tensor:
        """``values`` itself: the only rank sends all rows to itself.

        ``going`` and ``coming`` are not used.
        """
        return values

    def gather(self, value: T) -> list[T]:
        """The values of all ranks: a list with ``value`` alone, as there is one rank."""
        return [value]

    def of_first(self, value: T) -> T:
        """The value of rank 0: ``value`` itself, as there is one rank."""
        return value


ALONE: Ranks = Alone()


def filled_in(ranks: Ranks, figures: FloatArray) -> FloatArray:
    """The ranks' ``figures`` put together, on every rank; each entry is known to one rank.

    Their bits are added as whole numbers, so that no entry is rounded.

    Args:
        ranks: of the run.
        figures: float64, of the same shape on every rank; 0 where another rank knows the entry.
    """
    return ranks.added(figures.view(np.int64)).view(np.float64)

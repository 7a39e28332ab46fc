"""Sums of messages that depend on nothing but their own messages: whole numbers on a grid.

Additions of floats depend on their order, and so on threads, chunks and processes; additions of whole numbers
do not. Every message is rounded to the grid, towards zero, before it is added. Where messages have a bound
the grid is the plan's (`schedule.message_grid`). Where they have none it follows from the largest magnitude
in each sum by itself: a number is written with digits of 32 bits, and a sum keeps the first digit that any of
its messages reaches and the one below it, so that it is exact to 2^-32 of the largest, whatever comes first.
Another sum's messages change nothing of it: what is not passed on is not known (docs/leakage.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sfumato.distributed.ranks import ALONE, Ranks
from sfumato.errors import EnvelopeError
from sfumato.schedule.message_grid import WIDEST, AnyFloatArray, Grid, MessageGrid

IntArray = npt.NDArray[np.int64]

_DIGIT = 32  # bits
_LEAST = -160 // _DIGIT  # the digit that the smallest float32 reaches
_EXACT = 2.0**53  # whole numbers up to here are exact in float64
_AT_ONCE = 1 << 18  # numbers worked on at once, few enough for a core's cache
_ROWS = 64


class Sums:
    """Sums of messages, one for each leaf or group.

    Args:
        count: of sums.
        length: of a message.
        grid: of messages that have a bound; ``None`` where they have none.
        ranks: each of which holds some of the messages.
    """

    def __init__(self, count: int, length: int, grid: MessageGrid | None, ranks: Ranks = ALONE) -> None:
        self._shape, self._grid, self._ranks = (count, length), grid, ranks
        self._digit = np.full(count, _LEAST, np.int64)  # of each sum by itself: none tells of another one
        # ranks exchange everything at once
        self._exchanged = np.zeros((1 if grid else 2, count, length + 1), np.int64)
        self._sums = list(self._exchanged[:, :, :length])
        self._not_finite = self._exchanged[0, :, length]

    def _grids(self, number: int) -> list[Grid]:
        """List the grids on which the parts of sum ``number`` count, the coarsest first.

        One grid with a clip, two without.
        """
        if self._grid is not None:
            return [self._grid]
        digit = int(self._digit[number])
        return [Grid(_DIGIT * digit, WIDEST), Grid(_DIGIT * (digit - 1), WIDEST)]

    def rounded(self, messages: Tensor) -> Tensor:
        """``messages`` ``[p, M]`` rounded to the grid on which a sum adds them up, float32.

        Every coordinate is rounded towards zero. Without a grid the messages are unchanged.
        """
        if self._grid is None:
            return messages
        step = self._grid.step
        return (messages.double() / step).trunc_().mul_(step).float()

    def add(self, which: IntArray, messages: Tensor) -> None:
        """Add ``messages`` ``[p, M]``, the i-th to the sum of index ``which[i]``, int64 ``[p]``.

        Raises:
            EnvelopeError: a message is too large for its grid; nothing is wrapped.
        """
        values = messages.cpu().numpy()
        for start, stop in pairwise([*np.flatnonzero(np.diff(which, prepend=-1)), len(which)]):
            self._add_rows(int(which[start]), values[start:stop])

    def _add_rows(self, number: int, rows: AnyFloatArray) -> None:
        """Add ``rows`` ``[p, M]`` to sum ``number`` as whole units, block by block.

        Raises:
            EnvelopeError: a coordinate is too large for the grid.
        """
        if self._grid is None and not self._make_room(number, rows):
            return
        limit = math.inf if self._grid is None else self._grid.limit
        for some, columns in _blocks(*rows.shape):
            rest = rows[some, columns]
            for grid, sums in zip(self._grids(number), self._sums, strict=True):
                whole = grid.whole(rest)
                largest = max(float(whole.max()), -float(whole.min()))
                if not largest <= limit:
                    raise EnvelopeError(
                        f"a message has a coordinate of {largest * grid.step:.3g}, but sums of messages "
                        f"have room for {limit * grid.step:.3g}; nothing of this round was sent"
                    )
                if largest * len(rest) < _EXACT:
                    sums[number, columns] += whole.astype(np.float64, copy=False).sum(axis=0).astype(np.int64)
                else:
                    sums[number, columns] += whole.astype(np.int64).sum(axis=0)
                if self._grid is None:
                    rest = rest - whole.astype(np.float64) * grid.step

    def _make_room(self, number: int, rows: AnyFloatArray) -> bool:
        """Raise the unit of sum ``number`` so that ``rows`` ``[p, M]`` fit.

        Returns:
            Whether the rows are finite. If not, they are counted, which makes the sum NaN.
        """
        largest = max(float(rows.max(initial=0.0)), -float(rows.min(initial=0.0)))
        if not math.isfinite(largest):
            self._not_finite[number] += 1
            return False
        self._raise_to(number, math.ceil(math.frexp(largest)[1] / _DIGIT) - 1 if largest else _LEAST)
        return True

    def _raise_to(self, number: int, digit: int) -> None:
        """Make room for larger numbers in sum ``number``, which keeps two digits of 32 bits each.

        Nothing happens if ``digit`` is not above the present place of the higher digit. Else what no longer
        fits, below the lower digit, is dropped.

        Args:
            number: of the sum.
            digit: place of the higher digit from now on, in powers of 2^32; negative for fractions.
        """
        raised = digit - int(self._digit[number])
        if raised > 0:
            first, second = self._sums
            second[number] = first[number] if raised == 1 else 0
            first[number] = 0
            self._digit[number] = digit

    def values(self) -> Tensor:
        """The sums, float64 ``[count, M]``, added up over all ranks; NaN where a message was not finite.

        It may be called once.
        """
        if self._grid is None:
            for number, digit in enumerate(self._ranks.largest(self._digit.copy()).tolist()):
                self._raise_to(number, digit)
        total = np.zeros(self._shape)
        steps = np.array([[grid.step for grid in self._grids(number)] for number in range(self._shape[0])])
        found = self._ranks.added(self._exchanged)
        for level, sums in enumerate(found[:, :, :-1]):
            total += sums * steps[:, level, None]
        total[found[0, :, -1] > 0] = np.nan
        return torch.from_numpy(total)


def _blocks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Yield pairs of a slice of rows and one of columns that cover an array, each of at most 2^18 numbers."""
    for first in range(0, rows, _ROWS):
        some = slice(first, min(first + _ROWS, rows))
        wide = _AT_ONCE // (some.stop - some.start)
        for start in range(0, columns, wide):
            yield some, slice(start, min(start + wide, columns))

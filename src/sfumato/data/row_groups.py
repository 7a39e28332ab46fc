"""Features of tables that are read group by group: row groups of Parquet files, batches of Arrow files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import FLOAT32, Array, RowNumbers

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT_BYTES = 1 << 26  # of groups that were read last: parts of a test set are neighbours


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The groups that the rows of a table come in.

    Attributes:
        sizes: rows of each group, in order.
        read: columns of numbers of one group, by its number and their names.
    """

    sizes: Sequence[int]
    read: Callable[[int, Sequence[str]], Mapping[str, pa.ChunkedArray]]


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows of a table whose groups are read when a row of them is used.

    Attributes:
        groups: of the table.
        names: columns of features.
        convert: makes features ``[n, names]`` of columns, and of the numbers of their rows for messages.
    """

    groups: RowGroups
    names: Sequence[str]
    convert: Callable[[Mapping[str, pa.ChunkedArray], RowNumbers], NDArray[np.float32]]
    dtype: np.dtype[Any] = FLOAT32
    _kept: OrderedDict[int, NDArray[np.float32]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, F)``: number of rows of all groups, and of columns of features."""
        return sum(self.groups.sizes), len(self.names)

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the features of ``rows`` to ``out``; groups that have one of them are read as a whole.

        Arguments and errors as of `FeatureSource.take`.
        """
        starts = np.concatenate([[0], np.cumsum(self.groups.sizes)]).astype(np.int64)
        cuts = np.searchsorted(rows, starts)
        for group in np.flatnonzero(np.diff(cuts)).tolist():
            part = slice(cuts[group], cuts[group + 1])
            out[part] = self._group(group, int(starts[group]))[rows[part] - starts[group]]

    def _group(self, group: int, first: int) -> NDArray[np.float32]:
        """The features ``[n, F]`` of group number ``group``, which begins with row ``first``."""
        with self._lock:
            if group in self._kept:
                self._kept.move_to_end(group)
                return self._kept[group]
            numbers = first + np.arange(self.groups.sizes[group])
            found = self.convert(self.groups.read(group, self.names), numbers)
            self._kept[group] = found
            while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)
            return found

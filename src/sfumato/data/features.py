"""Features of examples: in memory, or taken from a `FeatureSource` when they are used.

Where data do not fit in memory, or few of the examples are used, a source stands for the array: mapped files
(`mapped`), row groups (`row_groups`), draws (`synthetic`), or an object of a factory's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import DataError
from sfumato.spec.limits import MAX_ROWS

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Array: TypeAlias = NDArray[np.float32] | NDArray[np.int64]
RowNumbers: TypeAlias = NDArray[np.integer[Any]]
FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)

LARGEST_IN_MEMORY = 1 << 28
"""Bytes of features that are read into memory at once from files of which parts can be read."""


class FeatureSource(Protocol):
    """Features of N examples that are taken when they are used. Several threads may take at once.

    Only rows of devices that take part are taken, each time they do: nothing else needs to exist.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """``[N, ...]``, the shape that one array of all features would have."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that `take` writes: float32, or int64 for token ids."""

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the features of ``rows`` into ``out``.

        Args:
            rows: row numbers from 0, ascending, each once, at least one, ``[n]``.
            out: ``[n, ...]``, of `dtype`; overwritten.

        Raises:
            DataError: the features cannot be read, or one is not finite.
        """


Features: TypeAlias = Array | FeatureSource


def row_numbers(count: int) -> RowNumbers:
    """``[count]``: 0, 1, ..., ``count`` - 1, in int32 if ``count`` is at most `MAX_ROWS`, else int64."""
    return np.arange(count, dtype=np.int32 if count <= MAX_ROWS else np.int64)


def in_memory(features: Features) -> TypeIs[Array]:
    """Whether ``features`` are an array in memory; false for mapped arrays and for a `FeatureSource`."""
    return isinstance(features, np.ndarray) and not isinstance(features, np.memmap)


def take_rows(features: Features, rows: RowNumbers) -> Array:
    """A new array ``[n, ...]`` of the features of ``rows`` [n], which ascend and hold each number once."""
    if isinstance(features, np.ndarray):
        return features[rows]
    out: Array = np.empty((len(rows), *features.shape[1:]), features.dtype)
    if len(rows):
        features.take(rows, out)
    return out


def read_all(features: Features) -> Array:
    """All features as one array ``[N, ...]`` in memory: not a copy if they are one already."""
    return features if in_memory(features) else take_rows(features, row_numbers(features.shape[0]))


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Some rows of a source.

    Attributes:
        source: of all rows.
        rows: the chosen ones, ascending, ``[N]``.
    """

    source: FeatureSource
    rows: RowNumbers

    @property
    def shape(self) -> tuple[int, ...]:
        """``[N, ...]``: the number of chosen rows, then the shape of one row of the source."""
        return len(self.rows), *self.source.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the source."""
        return self.source.dtype

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the features of ``rows``, which count the chosen rows from 0, to ``out``.

        Arguments and errors as of `FeatureSource.take`.
        """
        self.source.take(self.rows[rows], out)


@dataclass(frozen=True, eq=False)
class StandardisedRows:
    """Images of a source, less a mean and over a deviation for each channel, as `datasets` scales them."""

    source: FeatureSource
    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @property
    def shape(self) -> tuple[int, ...]:
        """``[N, C, H, W]``, the shape of the source."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the source."""
        return self.source.dtype

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write (features - mean) / std of ``rows`` to ``out``; errors as of `FeatureSource.take`."""
        self.source.take(rows, out)
        standardise_(out, self.mean, self.std)


def standardise_(features: Array, mean: NDArray[np.float32], std: NDArray[np.float32]) -> None:
    """Subtract ``mean`` from images ``[n, C, H, W]``, divide by ``std``, both ``[C, 1, 1]``, in place."""
    features -= mean
    features /= std


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """Rows of a source that others made, refused where they are not finite.

    Attributes:
        source: gives float32.
        name: of it, for messages.
    """

    source: FeatureSource
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        """``[N, ...]``, the shape of the source."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the source."""
        return self.source.dtype

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the features of ``rows`` to ``out``; see `FeatureSource.take`.

        Raises:
            DataError: one of them is not finite.
        """
        self.source.take(rows, out)
        refuse_not_finite(out, self.name, rows, "")


def refuse_not_finite(
    values: Array, name: str, rows: RowNumbers, what: str, *, kind: str = "feature"
) -> None:
    """Refuse features that are missing, infinite or too large for their type.

    Args:
        values: features, [n, ...].
        name: of the source, for the message, which names the first such row.
        rows: number of each row in the source, from 0, [n].
        what: what the message adds to the row's number, such as ``, column 'age'``; "" for nothing.
        kind: what the message calls a value: feature, or label.

    Raises:
        DataError: a value is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if len(bad):
        where = f"row {rows[bad[0]] + 1:,}{what}"
        raise DataError(
            f"{name}: {where}: the value is missing, NaN or beyond what a {kind} may be; "
            f"every {kind} must be a finite number ({len(bad):,} such rows of "
            f"the {len(values):,} that were read); leave such rows out of the data, or fill them in, before"
        )

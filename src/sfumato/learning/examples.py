"""Examples as training and evaluation see them: all of them in memory, or taken for a few devices at a time.

No bit of an update depends on which: what is taken are the same numbers in another place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from sfumato.data.dataset import Targets
from sfumato.data.features import FeatureSource, RowNumbers, take_rows
from sfumato.learning.batches import BatchPlan


class Slices(Protocol):
    """Features or targets of a test set, by parts: a tensor, or `TakenSlices`."""

    def __len__(self) -> int:
        """How many examples there are."""

    def __getitem__(self, part: slice, /) -> Tensor:
        """The features or targets of the examples in the slice ``part``, ``[n, ...]``."""


@dataclass(frozen=True, eq=False)
class TakenSlices:
    """Features that are taken from a source part by part, and put on a device of torch."""

    source: FeatureSource
    device: torch.device

    def __len__(self) -> int:
        """How many examples there are."""
        return self.source.shape[0]

    def __getitem__(self, part: slice, /) -> Tensor:
        """The features of the examples in the slice ``part``, ``[n, ...]``, on `device`."""
        rows = np.arange(*part.indices(len(self)))
        return torch.from_numpy(take_rows(self.source, rows)).to(self.device)


def slices_of(values: Targets, device: str) -> Tensor | TakenSlices:
    """Features or targets ``values`` ``[T, ...]`` of a test set, to be sliced on ``device``.

    An array is moved there whole; of a source each part is taken when it is asked for.
    """
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values).to(device)
    return TakenSlices(values, torch.device(device))


def as_trained_on(values: Targets) -> Tensor | FeatureSource:
    """Features or targets ``values`` ``[N, ...]`` in the form that engines take.

    An array as a CPU tensor that shares its memory; a source as it is.
    """
    return torch.from_numpy(values) if isinstance(values, np.ndarray) else values


def examples_at(values: Tensor | FeatureSource, rows: RowNumbers, device: str) -> Tensor:
    """The features or targets of some rows of a data set, ``[n, ...]``, on ``device``.

    Args:
        values: as `as_trained_on` gives them.
        rows: the n rows, in any order, each once.
        device: of torch.
    """
    if isinstance(values, Tensor):
        return values[torch.from_numpy(rows.astype(np.int64)).to(values.device)].to(device)
    order = np.argsort(rows)
    ascending = take_rows(values, rows[order])
    found = np.empty_like(ascending)
    found[order] = ascending
    return torch.from_numpy(found).to(device)


@dataclass(frozen=True, eq=False)
class LoadedExamples:
    """Examples that some devices train on.

    Attributes:
        features: ``[n, ...]``, on the device that trains.
        targets: ``[n, ...]`` alike.
        rows: which rows of the data set they are, ascending; ``None``: all of them, in order.
    """

    features: Tensor
    targets: Tensor
    rows: Tensor | None = None

    def places_of(self, batches: BatchPlan) -> BatchPlan:
        """``batches`` with each row of the data set replaced by its place in `features`."""
        if self.rows is None:
            return batches
        found = torch.searchsorted(self.rows, batches.rows)
        return replace(batches, rows=found.clamp_(max=len(self.rows) - 1).to(torch.int32))


@dataclass(frozen=True, eq=False)
class Examples:
    """The training examples of a data set.

    Attributes:
        features: ``[N, ...]``, on the device that trains; or a source of them.
        targets: labels ``[N]``, or what the loss takes ``[N, ...]``, on the device if the features are. A
            source of features may stand for itself here.
        device: that trains.
    """

    features: Tensor | FeatureSource
    targets: Tensor | FeatureSource
    device: torch.device

    @classmethod
    def of(cls, features: Tensor | FeatureSource, targets: Tensor | FeatureSource, device: str) -> Examples:
        """The examples of a data set; tensors are moved to ``device``, a source is kept as it is.

        ``features`` ``[N, ...]``; ``targets``: labels ``[N]``, or what the loss takes ``[N, ...]``.
        """
        if isinstance(features, Tensor):
            assert isinstance(targets, Tensor)  # beside features in memory
            features, targets = features.to(device), targets.to(device)
        return cls(features, targets, torch.device(device))

    @property
    def none(self) -> tuple[Tensor, Tensor]:
        """Features and targets of zero examples, ``[0, ...]``, with the data's shapes and types."""
        if isinstance(self.features, Tensor):
            assert isinstance(self.targets, Tensor)
            return self.features[:0], self.targets[:0]
        return self._taken(np.zeros(0, np.int64))

    def loads(
        self, batches: BatchPlan, tiles: Sequence[Tensor], most_bytes: int
    ) -> Iterator[tuple[Sequence[Tensor], LoadedExamples]]:
        """Yield the tiles in order, as many at a time as memory allows, with the examples that they train on.

        Args:
            batches: of all devices.
            tiles: devices that train side by side, each int64 ``[n]``.
            most_bytes: what the features of a load may take; a single tile that needs more is loaded all the
                same.

        Yields:
            Some of the tiles, in order, and their examples. Features in memory are one load with all of them.
        """
        if isinstance(self.features, Tensor):
            assert isinstance(self.targets, Tensor)
            yield tiles, LoadedExamples(self.features, self.targets)
            return
        a_row = int(np.prod(self.features.shape[1:])) * self.features.dtype.itemsize
        held: list[Tensor] = []
        rows = np.zeros(0, np.int32)
        for tile in tiles:
            more = _rows_used(batches.of(tile))
            if held and (len(rows) + len(more)) * a_row > most_bytes:
                yield held, self._loaded(rows)
                held, rows = [], rows[:0]
            held.append(tile)
            rows = np.union1d(rows, more)
        if held:
            yield held, self._loaded(rows)

    def _loaded(self, rows: np.ndarray[tuple[int], np.dtype[np.int32]]) -> LoadedExamples:
        """Load the examples of ``rows``, ascending; a single example of zeros where there are no rows."""
        features, targets = self._taken(rows)
        if not len(rows):
            features, targets = (part.new_zeros(1, *part.shape[1:]) for part in (features, targets))
            rows = np.zeros(1, np.int32)
        return LoadedExamples(features, targets, torch.from_numpy(rows).to(self.device))

    def _taken(self, rows: np.ndarray[tuple[int], np.dtype[np.integer]]) -> tuple[Tensor, Tensor]:
        """Features and targets of ``rows`` ``[n]``, ascending, on the device that trains, ``[n, ...]``."""
        assert not isinstance(self.features, Tensor)
        features = torch.from_numpy(take_rows(self.features, rows)).to(self.device)
        if isinstance(self.targets, Tensor):
            targets = self.targets[torch.from_numpy(rows)]
            return features, (targets if targets.is_floating_point() else targets.long()).to(self.device)
        return features, features


def _rows_used(batches: BatchPlan) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The rows that some devices use, ascending, each once: not those that only fill a batch up."""
    return np.unique(batches.rows[batches.used].numpy())

"""Rows of a user's own data as every reader of them gives them, and the checks that all share.

Of the features only the shape is known until they are asked for: sizes are told without reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.data.features import (
    INT64,
    Array,
    ChosenRows,
    Features,
    FeatureSource,
    RowNumbers,
    row_numbers,
    take_rows,
)
from sfumato.data.locate import Columns, Request
from sfumato.data.persons import refuse_divided, refuse_trained_and_tested
from sfumato.data.splits import RowSplit, split_rows
from sfumato.errors import DataError
from sfumato.spec.limits import MAX_DATA_VALUES, MAX_ROWS


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one split.

    Attributes:
        name: of the source, for messages.
        labels: as stored, integers or strings, [N].
        shape: of the features of one row.
        read_features: reads the features of the rows with these numbers, ascending, [n, *shape].
        source: where features are taken when they are used; ``None``: they are all read at once.
        is_image: whether the features are pixels in [0, 1].
        groups: natural group of each row, numbered from 0, [N].
        sites: name of the site of each row, [N].
        is_test: the rows that are tested on, [N], if the source says it row by row.
        targets: what a model learns to predict, [N, K], where that is not the label; labels are 0 then.
        feature_columns: of a table, the names of its features.
        persons: name of the person of each row, [N].
    """

    name: str
    labels: NDArray[Any]
    shape: tuple[int, ...]
    read_features: Callable[[RowNumbers], NDArray[np.float32]]
    source: FeatureSource | None = None
    is_image: bool = False
    groups: NDArray[np.int64] | None = None
    sites: NDArray[np.str_] | None = None
    is_test: NDArray[np.bool_] | None = None
    targets: NDArray[np.float32] | None = None
    feature_columns: tuple[str, ...] = ()
    persons: NDArray[np.str_] | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        """Text of each class's label, in the order of class numbers; empty where labels are numbers."""
        return () if self.labels.dtype.kind in "iu" else tuple(map(str, np.unique(self.labels)))


def split_of(train: Rows, test: Rows | None, request: Request) -> RowSplit:
    """Check the rows of a source, and say which are trained on and which are tested on.

    Args:
        train: the rows; a share of them is held out if there are no others to test on.
        test: the source's own test rows.
        request: says which share to hold out, 10 % by default, and whether of all rows or within groups.

    Raises:
        SpecError: a share to hold out beside a test split, or within groups that there are not.
        DataError: no rows, too much data, test rows of another shape, or with a label that no other row has;
            a person with rows at two sites, in two groups, or to train on and to test on.
    """
    for part in (train,) if test is None else (train, test):
        if not len(part.labels):
            raise DataError(f"{part.name}: has no rows")
        refuse_too_many(part.name, len(part.labels))
        if part.source is None and len(part.labels) * int(np.prod(part.shape)) > MAX_DATA_VALUES:
            size = f"{len(part.labels):,} rows of {int(np.prod(part.shape)):,} numbers"
            raise DataError(f"{part.name}: {size} are too many; at most {MAX_DATA_VALUES:,} numbers in all")
    if test is not None and test.shape != train.shape:
        raise DataError(f"{test.name}: rows of shape {test.shape}, but {train.shape} in {train.name}")
    if test is not None:
        _known_labels(train.labels, test.labels, test.name, np.arange(len(test.labels)))
    elif train.is_test is not None:
        own, others = train.labels[~train.is_test], train.labels[train.is_test]
        _known_labels(own, others, train.name, np.flatnonzero(train.is_test))
    if train.persons is not None:
        _refuse_divided_persons(train, test)
    return split_rows(
        train.labels,
        None if test is None else test.labels,
        test_fraction=request.test_fraction,
        within_groups=request.test_within_groups,
        groups=train.groups,
        sites=train.sites,
        is_test=train.is_test,
        persons=train.persons,
    )


def _refuse_divided_persons(train: Rows, test: Rows | None) -> None:
    """Raise `DataError` if a person has rows at two sites, in two groups, or to train on and to test on."""
    assert train.persons is not None
    for parts, what in ((train.sites, "site"), (train.groups, "group")):
        if parts is not None:
            refuse_divided(train.name, train.persons, parts, what)
    if test is not None and test.persons is not None:
        refuse_trained_and_tested(test.name, train.persons, test.persons)
    elif train.is_test is not None:
        refuse_trained_and_tested(train.name, train.persons[~train.is_test], train.persons[train.is_test])


def refuse_too_many(name: str, rows: int) -> None:
    """Refuse more than `MAX_ROWS` rows.

    Raises:
        DataError: there are more; the message begins with ``name``, the source.
    """
    if rows > MAX_ROWS:
        raise DataError(f"{name}: {rows:,} rows are too many; at most {MAX_ROWS:,}")


def features_of(train: Rows, test: Rows | None, split: RowSplit) -> tuple[Features, Features]:
    """The features of the training rows and of the test rows.

    Without ``test``, the test rows are those that ``split`` holds out of ``train``. Rows with a source are
    read when they are used; others come as arrays.
    """

    def part(rows: Rows, chosen: RowNumbers) -> Features:
        if rows.source is None:
            return rows.read_features(chosen)
        is_all = len(chosen) == len(rows.labels)  # in order, as all that are chosen
        return rows.source if is_all else ChosenRows(rows.source, chosen)

    if test is None:
        return part(train, split.rows), part(train, split.held_out)
    return part(train, split.rows), part(test, row_numbers(len(test.labels)))


def targets_of_split(
    train: Rows, test: Rows | None, split: RowSplit
) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """The targets of the training rows ``[N, K]``, and of the test rows ``[M, K]``.

    ``None`` where labels or tokens are learnt.

    Raises:
        DataError: the rows to test on have another number of targets.
    """
    if train.targets is None:
        return None
    if test is None:
        return train.targets[split.rows], train.targets[split.held_out]
    assert test.targets is not None  # read by the same rule
    if test.targets.shape[1] != train.targets.shape[1]:
        counts = f"{test.targets.shape[1]} labels, but {train.targets.shape[1]} in {train.name}"
        raise DataError(f"{test.name}: {counts}")
    return train.targets[split.rows], test.targets


def no_sequences_error(name: str, shape: tuple[int, ...]) -> DataError:
    """The error for token ids of the source ``name`` whose ``shape`` is not [N, T]."""
    return DataError(f"{name}: token ids must have the shape [N, T], not {shape}")


def target_columns(columns: Columns, values: NDArray[Any], name: str) -> NDArray[np.float32]:
    """``values`` as targets ``[N, K]`` in float32, for the task regression or multi-label.

    Args:
        columns: its ``task`` says which of the two.
        values: as stored, ``[N]`` or ``[N, K]``.
        name: of the source, for messages.

    Raises:
        DataError: a value is no finite number, or of a label set neither 0 nor 1.
    """
    if values.dtype.kind not in "iufb" or values.ndim not in (1, 2):
        what = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{name}: labels of task {columns.task} must be numbers [N] or [N, K], not {what}")
    with np.errstate(over="ignore"):
        found = np.asarray(values, np.float32).reshape(len(values), -1)
    bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
    if len(bad):
        raise DataError(
            f"{name}: row {bad[0] + 1:,}: every label must be a finite number with task regression"
        )
    if columns.task == "multi-label":
        bad = np.flatnonzero(~np.isin(found, (0.0, 1.0)).all(axis=1))
        if len(bad):
            got = found[bad[0]].tolist()
            raise DataError(
                f"{name}: row {bad[0] + 1:,}: got {got}; labels of task multi-label must be 0 or 1"
            )
    return found


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Rows of a source as token ids; see `token_ids`."""

    source: FeatureSource
    vocabulary: int
    name: str
    dtype: np.dtype[Any] = INT64

    @property
    def shape(self) -> tuple[int, ...]:
        """``[N, T]``, the shape of the source."""
        return self.source.shape

    def take(self, rows: RowNumbers, out: Array) -> None:
        """Write the token ids of ``rows`` to ``out``.

        Arguments as of `FeatureSource.take`, errors as of `token_ids`.
        """
        out[...] = token_ids(take_rows(self.source, rows), self.vocabulary, self.name, rows)


def token_ids(
    features: Array, vocabulary: int, name: str, rows: RowNumbers | None = None
) -> NDArray[np.int64]:
    """Features as token ids ``[N, T]`` in int64.

    Args:
        features: ``[N, T]``.
        vocabulary: how many tokens there are.
        name: of the source, for messages.
        rows: number of each row in the source [N], for messages; by default 0, 1, ...

    Raises:
        DataError: examples are no sequences, or a value is no whole number from 0 to ``vocabulary`` - 1.
    """
    if features.ndim != 2:
        raise no_sequences_error(name, features.shape)
    found = features.astype(np.int64)
    bad = (found != features) | (found < 0) | (found >= vocabulary)
    if bad.any():
        row, place = np.argwhere(bad)[0].tolist()
        number = row if rows is None else int(rows[row])
        raise DataError(
            f"{name}: row {number + 1:,}, place {place + 1:,}: got {features[row, place]:g}; with "
            f"data.vocabulary every feature must be a token id, a whole number from 0 to {vocabulary - 1:,}"
        )
    return found


def _known_labels(known: NDArray[Any], tested: NDArray[Any], name: str, rows: NDArray[np.int64]) -> None:
    """Raise `DataError` if a test row has a label that no training row has, or there are no rows.

    ``known`` and ``tested``: labels of training and of test rows; ``name`` of the source is for the message.
    """
    if not len(known) or not len(tested):
        raise DataError(f"{name}: {'no rows to train on' if not len(known) else 'no rows to test on'}")
    unknown = np.flatnonzero(~np.isin(tested, known))
    if len(unknown):
        values = np.unique(known).tolist()
        listed = ", ".join(map(str, values[:20])) + (", ..." if len(values) > 20 else "")
        raise DataError(
            f"{name}: row {rows[unknown[0]] + 1:,}, to be tested on, has the label "
            f"{tested[unknown[0]].item()!r}; the labels of the rows to train on are {listed}"
        )

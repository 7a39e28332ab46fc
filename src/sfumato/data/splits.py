"""Which rows are trained on and which are tested on, and the sizes that follow; features are not needed.

Test sets: the source's own. Without one, a share of the training rows (``test_fraction``, 10 %
unless said otherwise, rounded half up) is held out, the same rows whatever the run's seed: of all rows, or
of the rows of each natural group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.data.builtin_datasets import (
    DEFAULT_TEST_FRACTION,
    HAS_TEST_SPLIT,
    DatasetFacts,
    held_out_count,
    held_out_within_error,
    refuse_test_fraction,
)
from sfumato.data.features import RowNumbers, row_numbers
from sfumato.data.persons import counts_of_persons, numbered_persons
from sfumato.data.sites import sort_sites
from sfumato.errors import DataError, SpecError
from sfumato.random import Stream, generator

# Set apart from the addresses partitions use; the seed is fixed so that runs share a test set.
_HELD_OUT_SEED, _HELD_OUT_KEY = 0, 1_000_000
_COUNTED_AT_ONCE = 1 << 20


class RowSplit(NamedTuple):
    """Labels, groups and sites of the rows to train on, labels of those to test on.

    ``rows`` and ``held_out`` say which rows of the training split they are; nothing is held out
    where there is a test split. ``sites`` are numbered as in ``site_names``, ``persons`` from 0.
    ``test_persons``: how many persons the rows that are held out are of, where persons matter.
    """

    labels: NDArray[np.integer[Any]]
    test_labels: NDArray[np.integer[Any]]
    groups: NDArray[np.int64] | None
    rows: RowNumbers
    held_out: RowNumbers
    sites: NDArray[np.int64] | None = None
    site_names: tuple[str, ...] = ()
    persons: NDArray[np.int64] | None = None
    test_persons: int | None = None


def split_rows(
    labels: NDArray[Any],
    test_labels: NDArray[Any] | None,
    *,
    test_fraction: float | None,
    within_groups: bool = False,
    groups: NDArray[np.int64] | None = None,
    sites: NDArray[np.str_] | None = None,
    is_test: NDArray[np.bool_] | None = None,
    persons: NDArray[np.str_] | None = None,
) -> RowSplit:
    """Divide the rows of a source into training and test rows.

    Args:
        labels: as stored, integers or strings, [N].
        test_labels: of the source's own test split [M], if it has one.
        test_fraction: share to hold out where there is neither a test split nor ``is_test``; ``None``: 10 %.
        within_groups: whether the share is held out of each natural group, and not of all rows at once.
        groups: natural group of each row [N], numbered from 0.
        sites: name of the site of each row [N].
        is_test: the rows to test on [N], where the source says it row by row.
        persons: name of the person of each row [N]; a share is then held out of persons, not of rows.

    Raises:
        SpecError: a share is given for a source that has a test split of its own, or leaves one part empty;
            rows are to be held out within groups, and there are none.
        DataError: a label is negative.
    """
    has_split = test_labels is not None or is_test is not None
    refuse_test_fraction(test_fraction, has_split)
    if within_groups:
        if has_split:
            raise held_out_within_error(HAS_TEST_SPLIT)
        if groups is None:
            raise held_out_within_error("a data set with a group column (group_column)")
        is_test = _held_out_within(groups, test_fraction)
    if test_labels is not None:
        both = class_numbers(np.concatenate([labels, test_labels]))
        own, other = both[: len(labels)], both[len(labels) :]
        rows = row_numbers(len(labels))
        codes, names = _sites(sites, rows)
        return RowSplit(own, other, groups, rows, np.arange(0), codes, names, numbered_persons(persons, rows))
    if is_test is None and persons is not None:
        names_of_persons, whose = np.unique(persons, return_inverse=True)
        is_test = np.isin(whose, _held_out(len(names_of_persons), test_fraction)[0])
    if is_test is not None:
        numbers = row_numbers(len(labels))
        held_out, rows = numbers[is_test], numbers[~is_test]
    else:
        held_out, rows = _held_out(len(labels), test_fraction)
    found = class_numbers(labels)
    if groups is not None:
        # Numbered anew: a group may have lost all its rows to the test set.
        groups = np.unique(groups[rows], return_inverse=True)[1].astype(np.int64)
    codes, names = _sites(sites, rows)
    of_persons = numbered_persons(persons, rows)
    tested = None if persons is None else len(np.unique(persons[held_out]))
    return RowSplit(found[rows], found[held_out], groups, rows, held_out, codes, names, of_persons, tested)


def _held_out(count: int, test_fraction: float | None) -> tuple[RowNumbers, RowNumbers]:
    """Which of ``count`` rows or persons are held out, and which are left, ascending; 10 % by default.

    ``test_fraction``: the share; ``None``: the default.
    """
    most = held_out_count(count, DEFAULT_TEST_FRACTION if test_fraction is None else test_fraction)
    shuffled = generator(_HELD_OUT_SEED, Stream.PARTITION, _HELD_OUT_KEY).permutation(row_numbers(count))
    return np.sort(shuffled[:most]), np.sort(shuffled[most:])


def _held_out_within(groups: NDArray[np.int64], test_fraction: float | None) -> NDArray[np.bool_]:
    """Which rows are held out, ``[N]``, so that each natural group has its share, rounded half up.

    A group keeps at least one row to train on.

    Args:
        groups: natural group of each row ``[N]``, numbered from 0.
        test_fraction: the share; ``None``: the default.

    Raises:
        SpecError: no group is large enough to hold a row out.
    """
    share = DEFAULT_TEST_FRACTION if test_fraction is None else test_fraction
    counts = np.bincount(groups)
    most = np.minimum((counts * share + 0.5).astype(np.int64), np.maximum(counts - 1, 0))
    if not most.any():
        allowed = f"a share that holds out a row of some group (the largest has {counts.max(initial=0):,})"
        raise SpecError("data.test_fraction", share, allowed)
    shuffled = generator(_HELD_OUT_SEED, Stream.PARTITION, _HELD_OUT_KEY).permutation(len(groups))
    by_group = shuffled[np.argsort(groups[shuffled], kind="stable")]
    place = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_test = np.zeros(len(groups), np.bool_)
    is_test[by_group[place < np.repeat(most, counts)]] = True
    return is_test


def class_numbers(labels: NDArray[Any]) -> NDArray[np.integer[Any]]:
    """Labels as class numbers from 0, ``[N]``: integers as they are, strings numbered in sorted order.

    Raises:
        DataError: one is negative.
    """
    if labels.dtype.kind in "iu":
        if len(labels) and labels.min() < 0:
            raise DataError("labels must be 0, 1, 2, ...; a negative one usually means 'unlabelled'")
        return labels
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def facts_of(
    name: str, split: RowSplit, input_shape: tuple[int, ...], targets: int | None = None
) -> DatasetFacts:
    """The sizes of the data set ``name`` with this split.

    ``input_shape``: of the features of one example; ``targets``: how many quantities are predicted; ``None``:
    classes are.

    Raises:
        DataError: a part is empty, or a label is no class number.
    """
    labels, test_labels = split.labels, split.test_labels
    if not len(labels) or not len(test_labels):
        raise DataError(f"{name}: no rows to train or to test on")
    classes = int(max(labels.max(), test_labels.max())) + 1
    if classes > len(labels) + len(test_labels):
        raise DataError(
            f"{name}: a label of {classes - 1:,} in a set of {len(labels):,} rows is not a class number"
        )
    counts = tuple(count_occurrences(labels, classes).tolist())
    groups = None if split.groups is None else tuple(np.bincount(split.groups).tolist())
    sites = None
    if split.sites is not None:
        per_site = np.bincount(split.sites, minlength=len(split.site_names)).tolist()
        sites = tuple(zip(split.site_names, per_site, strict=True))
    persons = None
    if split.persons is not None:
        persons = counts_of_persons(split.persons, split.groups, split.sites, len(split.site_names))
    shape = tuple(map(int, input_shape))
    sizes = (len(labels), len(test_labels), classes)
    return DatasetFacts(name, *sizes, shape, counts, groups, sites, targets, persons=persons)


def count_occurrences(numbers: NDArray[np.integer[Any]], least: int = 0) -> NDArray[np.int64]:
    """How often each of 0, 1, ... occurs in ``numbers`` ``[n]``, int64.

    The result has ``least`` entries, or one more than the largest number. Counts block by block:
    ``numpy.bincount`` would copy all numbers to int64 at once.
    """
    found = np.zeros(max(least, int(numbers.max()) + 1 if len(numbers) else 0), np.int64)
    for first in range(0, len(numbers), _COUNTED_AT_ONCE):
        found += np.bincount(numbers[first : first + _COUNTED_AT_ONCE].astype(np.int64), minlength=len(found))
    return found


def in_smallest_type(numbers: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """``numbers``, none negative, in the smallest unsigned type that holds them; copied if it differs."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))), copy=False)


def _sites(
    sites: NDArray[np.str_] | None, rows: RowNumbers
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """The number of the site of each of ``rows``, and the names of all sites; (``None``, ()) without sites.

    ``rows`` ``[n]``: of the split; ``sites``: of all rows. A site may have test rows only.
    """
    if sites is None:
        return None, ()
    names = sort_sites(np.unique(sites).tolist())
    number = {name: code for code, name in enumerate(names)}
    return np.array([number[name] for name in sites[rows].tolist()], dtype=np.int64), names

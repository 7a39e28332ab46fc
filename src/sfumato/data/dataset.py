"""A data set, and how one is made of arrays or of sources of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data.builtin_datasets import DatasetFacts
from sfumato.data.features import CheckedRows, Features, in_memory
from sfumato.data.mapped import ArrayRows
from sfumato.data.splits import class_numbers, facts_of, in_smallest_type, split_rows
from sfumato.errors import DataError
from sfumato.spec.model import Task

Labels: TypeAlias = NDArray[np.integer[Any]]
Targets: TypeAlias = NDArray[np.float32] | Labels | Features


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: labels in memory, and features there or taken when they are used.

    Attributes:
        facts: its sizes, all of them known.
        train_features: [N, C, H, W] or [N, F], scaled as `datasets` says; token ids [N, T] in int64.
        train_labels: [N], from 0 to ``facts.classes`` - 1; 0 where no classes are learnt. int64, and of the
            smallest type that holds them where features are taken when they are used.
        test_features: [M, ...] alike.
        test_labels: [M] alike, int64.
        train_groups: natural group of each training row [N], numbered from 0, if a group column was
            asked for.
        train_sites: site of each training row [N], numbered as in ``facts.site_counts``, if there are
            sites.
        train_targets: what a model learns to predict where that is not the label: numbers, or labels of a
            set as 0 and 1, [N, K].
        test_targets: [M, K] alike.
        train_persons: whose row each training row is [N], numbered from 0, if the data name persons.
        test_persons: how many persons the test rows are of, where the training split holds them out.
    """

    facts: DatasetFacts
    train_features: Features
    train_labels: Labels
    test_features: Features
    test_labels: NDArray[np.int64]
    train_groups: NDArray[np.int64] | None = None
    train_sites: NDArray[np.int64] | None = None
    train_targets: NDArray[np.float32] | None = None
    test_targets: NDArray[np.float32] | None = None
    train_persons: NDArray[np.int64] | None = None
    test_persons: int | None = None

    @property
    def test_label_counts(self) -> dict[str, int]:
        """Label to number of test examples with it, in the order of classes.

        A label is given by its text, or by its number as text where labels are numbers.
        """
        counts = np.bincount(self.test_labels, minlength=self.facts.classes).tolist()
        names = self.facts.label_names or map(str, range(len(counts)))
        return dict(zip(names, counts, strict=True))

    def targets_for(self, task: Task) -> tuple[Targets, Targets]:
        """What a model learns to predict with ``task``: of the training rows, and of the test rows.

        Labels [N] with ``classification``, the features, token ids [N, T], with ``next-token``, else targets
        [N, K].
        """
        if task == "classification":
            return self.train_labels, self.test_labels
        if task == "next-token":
            return self.train_features, self.test_features
        assert self.train_targets is not None and self.test_targets is not None  # noqa: PT018
        return self.train_targets, self.test_targets


def dataset_of(
    name: str,
    train_features: Features,
    train_labels: Labels,
    test_features: Features,
    test_labels: NDArray[np.int64],
    train_groups: NDArray[np.int64] | None = None,
    train_sites: Sequence[str] | None = None,
    *,
    train_targets: NDArray[np.float32] | None = None,
    test_targets: NDArray[np.float32] | None = None,
) -> Dataset:
    """Check arrays of training and test rows, and make the data set ``name`` of them.

    Shapes are those of the attributes of `Dataset`; ``train_sites`` is the name of each training row's site
    [N]. Features may be mapped arrays (``numpy.load(..., mmap_mode="r")``) or `FeatureSource`s: then only
    those of devices that take part are taken, each time they do, and checked then.

    Raises:
        DataError: arrays of other types or of unequal lengths, values not finite, negative labels.
    """
    for part, features, labels in (
        ("train", train_features, train_labels),
        ("test", test_features, test_labels),
    ):
        wrong = features.dtype not in (np.float32, np.int64) or len(features.shape) < 2
        if wrong or labels.dtype != np.int64 or labels.ndim != 1:
            what = f"{part} features must be float32 [N, ...] or token ids int64 [N, T]"
            raise DataError(f"{name}: {what}, {part} labels int64 [N]")
        if features.shape[0] != len(labels):
            raise DataError(f"{name}: {features.shape[0]:,} {part} examples but {len(labels):,} labels")
        if in_memory(features) and not np.isfinite(features).all():
            raise DataError(f"{name}: some {part} features are not finite")
        class_numbers(labels)
    if train_features.shape[1:] != test_features.shape[1:]:
        shapes = f"training examples {train_features.shape[1:]}, test examples {test_features.shape[1:]}"
        raise DataError(f"{name}: {shapes}")
    targets = _checked_targets(name, train_targets, test_targets, len(train_labels), len(test_labels))
    sites = None if train_sites is None else np.array([str(site) for site in train_sites], dtype=np.str_)
    if sites is not None and len(sites) != len(train_labels):
        raise DataError(f"{name}: {len(train_labels):,} train examples but {len(sites):,} sites")
    split = split_rows(train_labels, test_labels, test_fraction=None, groups=train_groups, sites=sites)
    facts = facts_of(name, split, train_features.shape[1:], targets)
    return Dataset(
        facts,
        _checked_when_taken(train_features, f"{name}: train features"),
        train_labels,
        _checked_when_taken(test_features, f"{name}: test features"),
        test_labels,
        train_groups,
        split.sites,
        train_targets,
        test_targets,
    )


def _checked_when_taken(features: Features, name: str) -> Features:
    """Features that are not in memory, in a form that refuses values that are not finite when they are taken.

    ``name`` of the source stands in the message.
    """
    if isinstance(features, np.memmap):
        return ArrayRows(name, features, features.shape, dtype=features.dtype)
    if in_memory(features):
        return features
    return features if isinstance(features, ArrayRows | CheckedRows) else CheckedRows(features, name)


def stored_labels(labels: Labels, features: Features) -> Labels:
    """Labels in int64 if ``features`` are in memory, else in the smallest unsigned type that holds them."""
    return labels.astype(np.int64, copy=False) if in_memory(features) else in_smallest_type(labels)


def _checked_targets(
    name: str,
    train: NDArray[np.float32] | None,
    test: NDArray[np.float32] | None,
    rows: int,
    test_rows: int,
) -> int | None:
    """The number of targets of an example; ``None`` without targets.

    ``rows``, ``test_rows``: numbers of training and test rows. ``name`` of the source stands in the message.

    Raises:
        DataError: targets do not fit the rows or each other, or are not finite.
    """
    if train is None and test is None:
        return None
    for part, count in ((train, rows), (test, test_rows)):
        if part is None or part.dtype != np.float32 or part.ndim != 2 or len(part) != count:
            raise DataError(f"{name}: targets must be float32 [N, K], for the rows to train and to test on")
        if not np.isfinite(part).all():
            raise DataError(f"{name}: some targets are not finite")
    assert train is not None and test is not None  # noqa: PT018
    if train.shape[1] != test.shape[1]:
        raise DataError(f"{name}: {train.shape[1]} targets to train on, {test.shape[1]} to test on")
    return int(train.shape[1])


def checked_dataset(made: Dataset, name: str) -> Dataset:
    """The data set ``made``, which a user's code returned, after all checks of `dataset_of`.

    Args:
        made: its arrays are checked; its facts are counted anew.
        name: of the source, for messages.

    Raises:
        DataError: as of `dataset_of`.
    """
    sites = None
    if made.train_sites is not None and made.facts.site_counts is not None:
        sites = np.array([site for site, _ in made.facts.site_counts])[made.train_sites].tolist()
    arrays = (made.train_features, made.train_labels, made.test_features, made.test_labels)
    return dataset_of(
        name,
        *arrays,
        made.train_groups,
        sites,
        train_targets=made.train_targets,
        test_targets=made.test_targets,
    )

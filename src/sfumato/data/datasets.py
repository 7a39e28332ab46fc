"""Loads data sets by name, folder or Hub id, and counts those that are not tabulated: the table of readers.

Scaling: pixels are brought to [0, 1] (bytes over 255, digits over 16), then (x - mean) / std with
the published per-channel constants of the catalogue, or 1/2 and 1/2 where it has none. None is
ever computed from the data at hand: that would be a release nobody accounts for. Columns that are
not images are taken as they are (bytes over 255), or on a scale that the spec states. `splits` says which
rows are tested on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from sfumato.data import hub
from sfumato.data.builtin_datasets import (
    BuiltIn,
    DatasetFacts,
    check_published,
    pixel_scaling,
    tabulated_facts,
)
from sfumato.data.cifar import CIFAR_SHAPE, read_cifar_labels, read_cifar_split
from sfumato.data.dataset import Dataset, checked_dataset, stored_labels
from sfumato.data.features import Features, StandardisedRows, in_memory, standardise_
from sfumato.data.forms import Form
from sfumato.data.given import given_data
from sfumato.data.hub import HubSplit
from sfumato.data.idx import read_idx_labels, read_idx_shape, read_idx_split
from sfumato.data.locate import AS_FOUND, ENVIRONMENT_VARIABLE, Columns, DataLocation, Request, locate
from sfumato.data.own_rows import own_rows
from sfumato.data.rows import (
    TokenRows,
    features_of,
    no_sequences_error,
    refuse_too_many,
    split_of,
    targets_of_split,
    token_ids,
)
from sfumato.data.splits import RowSplit, facts_of, split_rows
from sfumato.data.synthetic import make_synthetic, synthetic_facts
from sfumato.errors import DataError, SpecError
from sfumato.user_code import call_user_code, find_factory, user_code_is_allowed


@dataclass(frozen=True)
class DataReader:
    """Reads sources of one form.

    Attributes:
        load: the data set.
        describe: its sizes, from as little of it as tells them.
    """

    load: Callable[[DataLocation, Request], Dataset]
    describe: Callable[[DataLocation, Request], DatasetFacts]


def load_dataset(source: str, request: Request = AS_FOUND) -> Dataset:
    """Load ``source`` into memory, downloading it if need be; `READERS` says how each form is read.

    Args:
        source: a name in ``BUILT_IN``, ``"synthetic"``, a file (.csv, .parquet, .arrow, .npz, .json, .h5), a
            folder (IDX, CIFAR's binary, LEAF's, HDF5 or ``.npy`` files, written by ``datasets.save_to_disk``,
            or images), a Hub id ``"org/name"``, or ``"package.module:factory"``, a callable that returns a
            `Dataset`. Named sets are sought in ``$SFUMATO_DATA/NAME``, in ``/usr/share/datasets/NAME``, then
            on the Hub, if it has them.
        request: what is to be read of it.

    Raises:
        SpecError: the source is none of these, or an option does not fit it.
        MissingExtraError: it needs an extra.
        DataError: it is absent, damaged, or not of its tabulated size.
    """
    place = locate(source, request)
    return READERS[place.form].load(place, request)


def _load_synthetic(place: DataLocation, request: Request) -> Dataset:
    """Make the synthetic data set, with as many examples as ``request`` says."""
    refuse_too_many(place.source, place.examples)
    return Dataset(synthetic_facts(place.examples), *make_synthetic(place.examples, seed=request.seed))


def _load_from_factory(place: DataLocation, request: Request) -> Dataset:
    """The data set that a factory of the user's own returns, checked.

    Raises:
        SpecError: the factory is not found, fails, or returns something else than a `Dataset`.
        DataError: the parts of the data set do not fit together.
    """
    where = "data.source"
    factory = find_factory(where, place.source)
    made = call_user_code(where, place.source, "the factory failed", lambda: factory())
    if not isinstance(made, Dataset):
        raise SpecError(where, place.source, f"must return a Dataset, not {type(made).__name__}")
    return _checked_for_task(checked_dataset(made, place.source), request.columns)


def _checked_for_task(data: Dataset, columns: Columns) -> Dataset:
    """``data`` that were made elsewhere, as the task needs them.

    Raises:
        DataError: they have targets where none are learnt, or the other way round.
        SpecError: a column of persons is named, which no `Dataset` has.
    """
    if columns.person is not None:
        allowed = "goes with a table or a data frame: a Dataset has no named columns"
        raise SpecError("data.person_column", columns.person, allowed)
    has, wants = data.train_targets is not None, columns.task in ("regression", "multi-label")
    if has != wants:
        there = "has targets" if has else "has no train_targets and test_targets"
        raise DataError(f"{data.facts.name}: {there}, with task {columns.task}")
    if data.train_groups is not None and data.facts.group_counts is None:
        counts = tuple(np.bincount(data.train_groups).tolist())
        data = replace(data, facts=replace(data.facts, group_counts=counts))
    if columns.vocabulary is None and data.train_features.dtype != np.float32:
        raise DataError(f"{data.facts.name}: has features in int64; token ids need data.vocabulary")
    return _as_tokens(data, columns)


def _as_tokens(data: Dataset, columns: Columns) -> Dataset:
    """``data`` with features as int64 token ids, if there is a vocabulary; otherwise unchanged."""
    vocabulary = columns.vocabulary
    if vocabulary is None:
        return data
    facts = replace(data.facts, targets=vocabulary) if columns.task == "next-token" else data.facts

    def tokens(features: Features, which: str) -> Features:
        name = f"{facts.name}, rows to {which} on"
        if in_memory(features):
            return token_ids(features, vocabulary, name)
        if len(features.shape) != 2:
            raise no_sequences_error(name, features.shape)
        return TokenRows(features, vocabulary, name)

    return replace(
        data,
        facts=facts,
        train_features=tokens(data.train_features, "train"),
        test_features=tokens(data.test_features, "test"),
    )


def _target_count(columns: Columns, targets: NDArray[np.float32] | None) -> int | None:
    """The number of outputs of a task without classes; ``None`` for a task with classes."""
    if columns.task == "next-token":
        return columns.vocabulary
    return None if targets is None else int(targets.shape[1])


def _describe_from_factory(place: DataLocation, request: Request) -> DatasetFacts:
    """The sizes of what a factory returns.

    Raises:
        DataError: code of users must not run here, as in accounting.
    """
    if not user_code_is_allowed():
        raise DataError(
            f"{place.source}: the sizes of data that a factory returns are known in a run only; "
            "accounting runs no code that a spec names"
        )
    return _load_from_factory(place, request).facts


def _standardised(data: Dataset, place: DataLocation, request: Request) -> Dataset:
    """A data set of images with standardised features, of the size that the catalogue says."""
    check_published(data.facts, place.built_in)
    return _scaled(data, place.built_in)


def _load_table(place: DataLocation, request: Request) -> Dataset:
    """The data set in a saved folder or on the Hub."""
    train, test = _open_hub_splits(place, request.columns, download=True)
    data = _load_hub(train, test, place.source, request)
    return (
        _standardised(data, place, request)
        if hub.is_image_table(train)
        else _as_tokens(data, request.columns)
    )


def _describe_idx(place: DataLocation, request: Request) -> DatasetFacts:
    """The sizes of a data set in IDX files, from their labels and headers."""
    labels = read_idx_labels(place.folder, "train")
    test_labels = read_idx_labels(place.folder, "test")
    split = split_rows(labels, test_labels, test_fraction=None)
    return facts_of(place.source, split, (1, *read_idx_shape(place.folder, "train")[1:]))


def _describe_cifar(place: DataLocation, request: Request) -> DatasetFacts:
    """The sizes of a data set in CIFAR's binary files."""
    labels, test_labels = (read_cifar_labels(place.folder, split) for split in ("train", "test"))
    return facts_of(place.source, split_rows(labels, test_labels, test_fraction=None), CIFAR_SHAPE)


def _describe_table(place: DataLocation, request: Request) -> DatasetFacts:
    """The sizes of a data set in a saved folder or on the Hub, without reading its features."""
    train, test = _open_hub_splits(place, request.columns, download=False)
    split = _split_labels(train, test, request)
    shape = hub.read_features(train, split.rows[:1]).shape[1:]
    facts = facts_of(place.source, split, shape, _target_count(request.columns, hub.read_targets(train)))
    check_published(facts, place.built_in)
    return facts


def _load_own(place: DataLocation, request: Request) -> Dataset:
    """Load the data set in the user's own files or arrays, split into training and test rows."""
    if place.form == "given" and isinstance(made := given_data(place.source), Dataset):
        return _checked_for_task(checked_dataset(made, place.source), request.columns)
    train, test = own_rows(place, request)
    split = split_of(train, test, request)
    features, test_features = features_of(train, test, split)
    targets = targets_of_split(train, test, split) or (None, None)
    facts = facts_of(place.source, split, train.shape, _target_count(request.columns, targets[0]))
    facts = replace(facts, feature_columns=train.feature_columns, label_names=train.label_names)
    labels, test_labels = stored_labels(split.labels, features), split.test_labels.astype(np.int64)
    arrays = (features, labels, test_features, test_labels, split.groups, split.sites)
    data = Dataset(facts, *arrays, targets[0], targets[1], split.persons, split.test_persons)
    return _standardised(data, place, request) if train.is_image else _as_tokens(data, request.columns)


def _describe_own(place: DataLocation, request: Request) -> DatasetFacts:
    """The sizes of a data set in the user's own files or arrays."""
    if place.form == "given" and isinstance(made := given_data(place.source), Dataset):
        return _checked_for_task(checked_dataset(made, place.source), request.columns).facts
    train, test = own_rows(place, request)
    split = split_of(train, test, request)
    facts = facts_of(place.source, split, train.shape, _target_count(request.columns, train.targets))
    check_published(facts, place.built_in)
    return replace(facts, feature_columns=train.feature_columns, label_names=train.label_names)


def _refuse_absent(place: DataLocation, request: Request) -> NoReturn:
    """Raise `DataError`: ``place`` is a built-in set that is fetched by hand, and is not on this machine."""
    assert place.built_in is not None  # only such sets are absent
    where = f"${ENVIRONMENT_VARIABLE}/{place.source}"
    raise DataError(f"{place.source}: not in {place.tried}; put {place.built_in.to_fetch} into {where}")


_OWN = DataReader(_load_own, _describe_own)
READERS: Mapping[Form, DataReader] = {
    "synthetic": DataReader(_load_synthetic, lambda place, request: synthetic_facts(place.examples)),
    "digits": DataReader(
        lambda place, request: _standardised(_load_digits(), place, request),
        lambda place, request: tabulated_facts(place.source),
    ),
    "factory": DataReader(_load_from_factory, _describe_from_factory),
    "idx": DataReader(lambda place, request: _standardised(_load_idx(place), place, request), _describe_idx),
    "cifar": DataReader(
        lambda place, request: _standardised(_load_cifar(place), place, request), _describe_cifar
    ),
    "folder": DataReader(_load_table, _describe_table),
    "hub": DataReader(_load_table, _describe_table),
    "csv": _OWN,
    "parquet": _OWN,
    "arrow": _OWN,
    "npz": _OWN,
    "npy": _OWN,
    "images": _OWN,
    "leaf": _OWN,
    "tff": _OWN,
    "given": _OWN,
    "absent": DataReader(_refuse_absent, _refuse_absent),
}


def _open_hub_splits(
    place: DataLocation, columns: Columns, *, download: bool
) -> tuple[HubSplit, HubSplit | None]:
    """The training split and, where there is one, the test split of a Hub data set.

    ``download``: whether the network may be used.
    """
    if place.form == "folder":
        return hub.open_folder(place.folder, columns)
    hub_id = place.source
    if place.built_in is not None and place.built_in.hub_id is not None:
        hub_id = place.built_in.hub_id
        columns = replace(
            columns,
            image=columns.image or place.built_in.image_column,
            label=columns.label or place.built_in.label_column,
        )
    return hub.open_hub(hub_id, columns, tried=place.tried, download=download)


def _load_digits() -> Dataset:
    """Load the digits of scikit-learn, with a fixed test set."""
    pixels, digits = _stored_digits()
    features = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = digits.astype(np.int64)
    # Every fifth row of each class goes to the test set: scikit-learn's order follows the writers,
    # so the last fifth of all rows would be other people's hands.
    is_test = np.zeros(len(labels), bool)
    is_test[np.argsort(labels, kind="stable")[::5]] = True
    split = split_rows(labels, None, test_fraction=None, is_test=is_test)
    facts = facts_of("digits", split, features.shape[1:])
    return Dataset(facts, features[~is_test], labels[~is_test], features[is_test], labels[is_test])


@cache
def _stored_digits() -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Pixels ``[N, 64]`` from 0 to 16 and labels ``[N]`` of scikit-learn's digits, read once a process.

    The arrays are shared, and must not be changed.
    """
    import sklearn.datasets

    bunch = sklearn.datasets.load_digits()
    return bunch.data, bunch.target


def _load_idx(place: DataLocation) -> Dataset:
    """Load the images and labels in IDX files, pixels from 0 to 1."""
    train, labels = read_idx_split(place.folder, "train")
    test, test_labels = read_idx_split(place.folder, "test")
    if train.shape[1:] != test.shape[1:]:
        raise DataError(f"{place.folder}: training images {train.shape[1:]}, test images {test.shape[1:]}")
    return _of_bytes(place.source, (train[:, None], labels), (test[:, None], test_labels))


def _load_cifar(place: DataLocation) -> Dataset:
    """Load the images and labels in CIFAR's binary files, pixels from 0 to 1."""
    train, test = (read_cifar_split(place.folder, split) for split in ("train", "test"))
    return _of_bytes(place.source, train, test)


_Images = tuple[NDArray[np.uint8], NDArray[np.int64]]  # [N, C, H, W] in bytes, and labels [N]


def _of_bytes(source: str, train: _Images, test: _Images) -> Dataset:
    """The data set, named ``source``, of two splits of images in bytes, with pixels from 0 to 1."""
    (images, labels), (test_images, test_labels) = train, test
    facts = facts_of(source, split_rows(labels, test_labels, test_fraction=None), images.shape[1:])
    pixels, test_pixels = (np.divide(each, 255, dtype=np.float32) for each in (images, test_images))
    return Dataset(facts, pixels, labels, test_pixels, test_labels)


def _load_hub(train: HubSplit, test: HubSplit | None, source: str, request: Request) -> Dataset:
    """The data set, named ``source``, in the splits ``train`` and ``test`` of a Hub data set.

    Raises:
        DataError: training and test examples differ in shape, or rows do not suit the request.
    """
    split = _split_labels(train, test, request)
    if test is None:
        features = hub.read_features(train, split.rows)
        test_features = hub.read_features(train, split.held_out)
    else:
        features, test_features = hub.read_features(train), hub.read_features(test)
    if features.shape[1:] != test_features.shape[1:]:
        raise DataError(
            f"{source}: training examples {features.shape[1:]}, test examples {test_features.shape[1:]}"
        )
    targets = hub.read_targets(train)
    tested = targets if test is None else hub.read_targets(test)
    if targets is not None and tested is not None:
        targets, tested = targets[split.rows], tested[split.held_out] if test is None else tested
    facts = facts_of(source, split, features.shape[1:], _target_count(request.columns, targets))
    labels, test_labels = split.labels.astype(np.int64), split.test_labels.astype(np.int64)
    arrays = (features, labels, test_features, test_labels, split.groups, split.sites)
    return Dataset(facts, *arrays, targets, tested)


def _split_labels(train: HubSplit, test: HubSplit | None, request: Request) -> RowSplit:
    """Which rows are trained on and tested on, with their labels, groups and sites.

    ``request``: says what to hold out where there is no test split.
    """
    return split_rows(
        hub.read_labels(train),
        None if test is None else hub.read_labels(test),
        test_fraction=request.test_fraction,
        within_groups=request.test_within_groups,
        groups=hub.read_groups(train),
        sites=hub.read_row_sites(train),
    )


def _scaled(data: Dataset, built_in: BuiltIn | None) -> Dataset:
    """``data`` of images, less the data set's published mean and over its standard deviation."""
    by, over = (np.asarray(one, np.float32)[:, None, None] for one in pixel_scaling(built_in))

    def standardised(features: Features) -> Features:
        if not in_memory(features):
            return StandardisedRows(features, by, over)
        # In place: the arrays are still ours alone, and two copies of the largest sets do not fit.
        standardise_(features, by, over)
        return features

    return replace(
        data, train_features=standardised(data.train_features), test_features=standardised(data.test_features)
    )

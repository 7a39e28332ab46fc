"""How many examples there are, as far as the schedule needs it: tabulated or counted, never loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import numpy as np

from sfumato.data import partition as division
from sfumato.data.builtin_datasets import BUILT_IN, DatasetFacts, tabulated_facts
from sfumato.data.locate import AS_FOUND, SEPARATORS, Columns, CsvFormat, Request, locate
from sfumato.data.split_counts import IntArray
from sfumato.errors import DataError, SpecError
from sfumato.network.tree import Tree
from sfumato.spec.data import (
    DATA_SUFFIXES,
    Data,
    DirichletPartition,
    FlowerPartition,
    IidPartition,
    LabelsPartition,
    NaturalPartition,
    PartitionRule,
    TwoLevelPartition,
)
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_EXAMPLES
from sfumato.user_code import GIVEN

_DECLARED: ContextVar[DatasetFacts | None] = ContextVar("declared sizes of a data set", default=None)


@contextmanager
def declaring(facts: DatasetFacts) -> Iterator[None]:
    """Context in which `dataset_facts` answers ``facts`` for every spec: no data are opened or looked up."""
    token = _DECLARED.set(facts)
    try:
        yield
    finally:
        _DECLARED.reset(token)


def request_of(data: Data, devices: int, *, seed: int = 0) -> Request:
    """What is to be read according to the data section of a spec.

    Args:
        data: the section.
        devices: how many there are; a synthetic set has ``examples_per_device`` times that many rows.
        seed: of the run; only the values of synthetic data depend on it, so it may be left out for counting.
    """
    columns = Columns(
        data.image_column,
        data.label_column,
        _group_column(data),
        data.feature_columns,
        data.site_column,
        data.test_column,
        tuple((name, *bounds) for name, bounds in (data.scale or {}).items()),
        data.task,
        data.vocabulary,
        data.person_column,
    )
    examples = None if data.examples_per_device is None else data.examples_per_device * devices
    written = CsvFormat(SEPARATORS[data.separator or ","], data.decimal or ".")
    within = data.test_within == "group"
    return Request(columns, data.test_fraction, data.test_file, examples, seed, written, within)


def _rules(data: Data) -> dict[str, PartitionRule]:
    """The rules of partition by their place in the spec: that of the section, and those of its two levels."""
    rules = {"": data.partition}
    if isinstance(data.partition, TwoLevelPartition):
        rules |= {".edge": data.partition.edge, ".device": data.partition.device}
    return {f"{division.PLACE}{inner}": rule for inner, rule in rules.items()}


def _group_column(data: Data) -> str | None:
    """The column of natural groups to read; ``None`` if none is needed.

    It is that of a `natural` rule, or else ``data.group_column``, or the built-in data set's own. Rows that
    are held out within groups need it, too.
    """
    natural = [rule for rule in _rules(data).values() if isinstance(rule, NaturalPartition)]
    if not natural and data.test_within is None:
        return data.group_column
    built_in = BUILT_IN[data.source].group_column if data.source in BUILT_IN else None
    return next((rule.column for rule in natural if rule.column), data.group_column) or built_in


def describe_dataset(source: str, request: Request = AS_FOUND) -> DatasetFacts:
    """Sizes of ``source`` without loading its features and without the network.

    Built-in sets come from a table; others, and group and site counts, from the labels, groups and sites of
    the copy on this machine (of the features only the types of columns and one row are looked at, for their
    shape). Arguments as of `load_dataset`.

    Raises:
        SpecError: the source is of no known form, or an option does not fit it.
        MissingExtraError: it needs an extra.
        DataError: it is damaged, or neither built in nor on this machine.
    """
    place, columns = locate(source, request), request.columns
    if place.built_in is not None and columns.group is None and columns.site is None:
        return tabulated_facts(source, test_fraction=request.test_fraction)
    from sfumato.data.datasets import READERS  # with all readers of files

    return READERS[place.form].describe(place, request)


def dataset_facts(data: Data, devices: int) -> DatasetFacts:
    """Sizes of the data set that a spec's section ``data`` names; within `declaring`, those declared.

    ``devices``: how many there are; a synthetic set grows with them.

    Raises:
        SpecError: the section does not fit the data set.
        DataError: the set is neither built in nor on this machine.
        MissingExtraError: the set needs an extra.
    """
    if (declared := _DECLARED.get()) is not None:
        return declared
    request = request_of(data, devices)
    if data.source.startswith(GIVEN):
        return describe_dataset(data.source, request)  # the name says nothing about what was given
    return _facts(data.source, request, tuple(map(state_of_file, (data.source, data.test_file))))


@lru_cache(maxsize=8)
def _facts(source: str, request: Request, stamps: tuple[object, ...]) -> DatasetFacts:
    """`describe_dataset` of ``source``, cached as long as ``stamps``, the state of the files, is the same."""
    return describe_dataset(source, request)


def state_of_file(path: str | None) -> object:
    """When the file at ``path`` was changed (ns) and its size (bytes); ``None`` if there is none."""
    try:
        found = os.stat(os.path.expanduser(path or ""))
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size


def check_population(spec: Spec, tree: Tree) -> tuple[str, ...]:
    """Check from counts alone that the data can be divided over the devices of ``tree`` as the spec says.

    Returns notes for the user, one line each. A data set that is not on this machine is left for the run to
    check: accounting never downloads.

    Raises:
        SpecError: more labels than exist, more devices than examples, and the like.
        DataError: the source is a file that cannot be read.
    """
    each = spec.data.examples_per_device or 0
    if each * tree.device_count > MAX_EXAMPLES:
        allowed = f"must make at most {MAX_EXAMPLES:,} examples with {tree.device_count:,} devices"
        raise SpecError("data.examples_per_device", each, f"{allowed}: sums of them must stay exact")
    rule = spec.data.partition
    if spec.data.source == "synthetic" and isinstance(rule, IidPartition) and rule.size_sigma == 0:
        return ()  # as many examples as asked for, by construction
    try:
        known = dataset_facts(spec.data, tree.device_count)
    except DataError:
        if spec.data.source.lower().endswith(DATA_SUFFIXES):
            raise  # a file is here or nowhere
        return ()
    for place, part in _rules(spec.data).items():
        if isinstance(part, NaturalPartition) and known.group_counts is None:
            raise division.no_groups_error(place, part)
    _sizes(spec, known, tree.devices)
    if known.site_counts is None:
        return ()
    from sfumato.data.sites import site_notes

    return site_notes(spec, known)


def known_examples(spec: Spec, devices: IntArray) -> IntArray | None:
    """Number of examples of every device, ``[devices]``; ``None`` where the counts do not determine them.

    Where the data name persons, persons are counted in place of rows: each brings one row to a local step.

    Args:
        spec: of the data set and its partition.
        devices: how many devices are under each edge (of a star: one number, of all).

    Raises:
        SpecError: the partition cannot be kept with these counts.
        DataError: the set is neither built in nor on this machine.
    """
    known = dataset_facts(spec.data, int(devices.sum()))
    sizes = _sizes(spec, known, devices)
    zones = getattr(spec.topology, "zones", None)
    if sizes is None or zones is None:
        return sizes
    from sfumato.data.zones import order_without_labels

    order = order_without_labels(zones, devices, seed=spec.seed)
    if order is not None:
        return sizes[order]
    return None if (sizes != sizes[0]).any() else sizes


def device_examples(spec: Spec, tree: Tree) -> IntArray:
    """Number of examples of every device, ``[devices]``; refused where they are not determined.

    Raises:
        SpecError: the counts of the data set do not determine them.
        DataError: the set is neither built in nor on this machine.
    """
    sizes = known_examples(spec, tree.devices)
    if sizes is not None:
        return sizes
    zones = getattr(spec.topology, "zones", None)
    if zones is not None and zones.kind == "data":
        raise SpecError(
            "topology.zones.kind", "data", "leaves open how much data a device has: with weights use another"
        )
    raise SpecError(
        "training.weights", "capped", "needs a partition whose sizes are known before the data are read"
    )


def mean_examples(spec: Spec, tree: Tree) -> float:
    """Mean number of examples of a device.

    Raises:
        SpecError: the partition may leave examples out, so the mean is not known before the data are read.
        DataError: the set is neither built in nor on this machine.
    """
    known = dataset_facts(spec.data, tree.device_count)
    sizes = _sizes(spec, known, tree.devices)
    if sizes is not None:
        return float(sizes.mean())
    if not division.uses_every_row(spec.data.partition):
        allowed = "needs a partition that uses all examples, to know its sampling rate q"
        raise SpecError("privacy.noise.formula", "h2fdp", allowed)
    return known.counted_in_persons.train_examples / tree.device_count


def label_counts(data: Data, devices: int, *, seed: int) -> IntArray:
    """Examples of each label that every device of a run gets, ``[devices, labels]``, from counts alone.

    ``seed``: of the run.

    Raises:
        SpecError: the partition is neither ``labels`` nor ``dirichlet``, the data name sites, or how many
            examples have each label is not known.
        DataError: the set is neither built in nor on this machine.
    """
    place, rule = ("topology.structure", "labels"), data.partition
    if not isinstance(rule, LabelsPartition | DirichletPartition):
        kind = f"flwr:{rule.partitioner}" if isinstance(rule, FlowerPartition) else rule.kind
        raise SpecError(
            *place,
            "needs to know which labels a worker holds: data.partition.kind must be labels or dirichlet, "
            f"not {kind}",
        )
    known = dataset_facts(data, devices)
    if known.class_counts is None:
        raise SpecError(*place, f"the labels of {data.source} are not known beforehand")
    if known.site_counts is not None:
        allowed = "must be left out with structure: labels, which needs a partition"
        raise SpecError("data.site_column", None, allowed)
    return division.planned_label_counts(rule, devices, known.class_counts, seed=seed)


def _sizes(spec: Spec, known: DatasetFacts, devices: IntArray) -> IntArray | None:
    """Number of examples of every device, ``[devices]``; ``None`` where it does not follow from counts alone.

    Persons are counted where they are the unit. ``devices``: how many are under each edge (of a star: one
    number, of all).
    """
    known = known.counted_in_persons
    rule, site_counts = spec.data.partition, None
    if isinstance(rule, FlowerPartition) and known.site_counts is None:
        return None
    if known.site_counts is not None:
        from sfumato.data.sites import site_places

        sites = site_places(spec, known, devices)
        assert sites is not None  # the data name sites
        devices, site_counts = sites.devices, sites.counts.tobytes()
    return _sizes_from_counts(rule, devices.astype(np.int64).tobytes(), known, site_counts, spec.seed)


@lru_cache(maxsize=2)
def _sizes_from_counts(
    rule: PartitionRule, devices: bytes, known: DatasetFacts, site_counts: bytes | None, seed: int
) -> IntArray | None:
    """`partition_sizes`, cached: an account needs them several times.

    ``devices`` and ``site_counts`` are the bytes of int64 arrays, so that they can be hashed. ``seed``: of
    the run.
    """
    sizes = division.partition_sizes(
        rule,
        np.frombuffer(devices, np.int64),
        examples=known.train_examples,
        seed=seed,
        class_counts=known.class_counts,
        group_counts=known.group_counts,
        site_counts=None if site_counts is None else np.frombuffer(site_counts, np.int64),
    )
    if sizes is not None:
        sizes.setflags(write=False)
    return sizes

"""How many examples there are, as far as the schedule needs it: tabulated or counted, never loaded."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data import partition as division
from sfumato.data.builtin_datasets import BUILT_IN, DatasetFacts
from sfumato.data.columns import Columns
from sfumato.data.datasets import describe_dataset
from sfumato.data.partition_rule import PartitionRule
from sfumato.data.sites import site_notes, site_places
from sfumato.data.zones import without_data
from sfumato.errors import DataError, SpecError
from sfumato.network.tree import Tree
from sfumato.spec.base import Section
from sfumato.spec.data import DATA_SUFFIXES, Data, NaturalPartition
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_EXAMPLES
from sfumato.user_code import GIVEN


def partition_rule(data: Data) -> PartitionRule:
    """The rule that ``data.partition`` spells out."""
    return _rule(data.partition, "data.partition")


def _rule(written: Section, place: str) -> PartitionRule:
    fields: dict[str, Any] = {name: getattr(written, name) for name in type(written).model_fields}
    fields.pop("column", None)
    partitioner = fields.pop("partitioner", None)
    if partitioner is not None:
        fields["kind"] = f"flwr:{partitioner}"
    for name in ("edge", "device"):
        if name in fields:
            fields[name] = _rule(fields[name], f"{place}.{name}")
    return PartitionRule(**fields, place=place)


def source_arguments(data: Data, devices: int) -> dict[str, Any]:
    """Arguments that name the data set, for counting and for loading it alike."""
    return {
        "source": data.source,
        "examples": None if data.examples_per_device is None else data.examples_per_device * devices,
        "columns": Columns(
            data.image_column,
            data.label_column,
            _group_column(data),
            data.feature_columns,
            data.site_column,
            data.test_column,
            tuple((name, *bounds) for name, bounds in (data.scale or {}).items()),
            data.task,
            data.vocabulary,
        ),
        "test_fraction": data.test_fraction,
        "test_file": data.test_file,
    }


def _group_column(data: Data) -> str | None:
    """The column of natural groups, where the partition asks for one: counting groups means reading them."""
    whole = data.partition
    levels = [whole, getattr(whole, "edge", None), getattr(whole, "device", None)]
    natural = [level for level in levels if isinstance(level, NaturalPartition)]
    if not natural:
        return data.group_column
    own = BUILT_IN[data.source].group_column if data.source in BUILT_IN else None
    return next((level.column for level in natural if level.column), data.group_column) or own


def facts(data: Data, devices: int) -> DatasetFacts:
    """Sizes of the data set.

    Raises:
        SpecError: the section does not fit the data set.
        DataError: the set is neither tabulated nor on this machine.
    """
    arguments = source_arguments(data, devices)
    if data.source.startswith(GIVEN):
        return describe_dataset(**arguments)  # the name says nothing about what was given
    return _facts(tuple(arguments.items()), tuple(map(_stamp, (data.source, data.test_file))))


@lru_cache(maxsize=8)
def _facts(arguments: tuple[tuple[str, Any], ...], stamps: tuple[object, ...]) -> DatasetFacts:
    """Facts of a source, once for every state of its files."""
    return describe_dataset(**dict(arguments))


def _stamp(path: str | None) -> object:
    """When a file was written last and how long it is; ``None`` where there is no such file."""
    try:
        found = os.stat(os.path.expanduser(path or ""))
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size


def check_population(spec: Spec, tree: Tree) -> tuple[str, ...]:
    """Refuse partitions that cannot be kept, as far as counts tell; returns what the user should hear.

    A data set that is not on this machine is left for the run to check: accounting never downloads.

    Raises:
        SpecError: more labels than exist, more devices than examples, and the like.
    """
    each = spec.data.examples_per_device or 0
    if each * tree.device_count > MAX_EXAMPLES:
        allowed = f"must make at most {MAX_EXAMPLES:,} examples with {tree.device_count:,} devices"
        raise SpecError("data.examples_per_device", each, f"{allowed}: sums of them must stay exact")
    rule = partition_rule(spec.data)
    if spec.data.source == "synthetic" and rule.kind == "iid" and rule.size_sigma == 0:
        return ()  # as many examples as asked for, by construction
    try:
        known = facts(spec.data, tree.device_count)
    except DataError:
        if spec.data.source.lower().endswith(DATA_SUFFIXES):
            raise  # a file is here or nowhere
        return ()
    for part in (rule, rule.edge, rule.device):
        if part is not None and part.kind == "natural" and known.group_counts is None:
            raise division.no_groups(part)
    division.partition_sizes(rule, **_counts(spec, known, tree.devices))
    return site_notes(spec, known)


def known_examples(spec: Spec, devices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Number of examples of every device; ``None`` where the counts of the data set do not settle them.

    Args:
        spec: of the data set and its partition.
        devices: how many devices each place has that data are divided among.

    Raises:
        DataError: the set is neither tabulated nor on this machine.
    """
    known = facts(spec.data, int(devices.sum()))
    sizes = division.partition_sizes(partition_rule(spec.data), **_counts(spec, known, devices))
    zones = getattr(spec.topology, "zones", None)
    if sizes is None or zones is None:
        return sizes
    order = without_data(zones, devices, seed=spec.seed)
    if order is not None:
        return sizes[order]
    return None if (sizes != sizes[0]).any() else sizes


def device_examples(spec: Spec, tree: Tree) -> npt.NDArray[np.int64]:
    """Number of examples of every device, ``[devices]``.

    Raises:
        SpecError: the counts of the data set do not settle them.
        DataError: the set is neither tabulated nor on this machine.
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
        SpecError: the partition may leave examples out, so the mean is not known beforehand.
        DataError: the set is neither tabulated nor on this machine.
    """
    known = facts(spec.data, tree.device_count)
    mean = division.mean_examples(partition_rule(spec.data), **_counts(spec, known, tree.devices))
    if mean is None:
        raise SpecError(
            "privacy.noise.formula",
            "h2fdp",
            "needs a partition that uses all examples, to know its sampling rate q",
        )
    return mean


def _counts(spec: Spec, known: DatasetFacts, devices: npt.NDArray[np.int64]) -> dict[str, Any]:
    sites = site_places(spec, known, partition_rule(spec.data), devices)
    return {
        "devices_per_edge": devices if sites is None else sites.devices,
        "examples": known.train_examples,
        "seed": spec.seed,
        "class_counts": known.class_counts,
        "group_counts": known.group_counts,
        "site_counts": None if sites is None else sites.counts,
    }

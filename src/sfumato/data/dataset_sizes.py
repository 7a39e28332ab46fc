"""How many examples there are, as far as the schedule needs it: tabulated or counted, never loaded."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sfumato.data import partition as division
from sfumato.data.builtin_datasets import BUILT_IN, DatasetFacts
from sfumato.data.datasets import describe_dataset
from sfumato.data.partition import PartitionRule
from sfumato.data.zones import without_data
from sfumato.errors import DataError, SpecError
from sfumato.network.tree import Tree
from sfumato.spec.base import Section
from sfumato.spec.data import Data, NaturalPartition
from sfumato.spec.document import Spec
from sfumato.spec.limits import MAX_EXAMPLES


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
        "image_column": data.image_column,
        "label_column": data.label_column,
        "group_column": _group_column(data),
        "test_fraction": data.test_fraction,
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
    return _facts(tuple(source_arguments(data, devices).items()))


@lru_cache(maxsize=8)
def _facts(arguments: tuple[tuple[str, Any], ...]) -> DatasetFacts:
    return describe_dataset(**dict(arguments))


def check_population(spec: Spec, tree: Tree) -> None:
    """Refuse partitions that cannot be kept, as far as counts tell.

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
        return  # as many examples as asked for, by construction
    try:
        known = facts(spec.data, tree.device_count)
    except DataError:
        return
    division.partition_sizes(rule, tree.devices, **_counts(spec, known))


def known_examples(spec: Spec, devices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Number of examples of every device; ``None`` where the counts of the data set do not settle them.

    Args:
        spec: of the data set and its partition.
        devices: how many devices each place has that data are divided among.

    Raises:
        DataError: the set is neither tabulated nor on this machine.
    """
    known = facts(spec.data, int(devices.sum()))
    sizes = division.partition_sizes(partition_rule(spec.data), devices, **_counts(spec, known))
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
    mean = division.mean_examples(partition_rule(spec.data), tree.devices, **_counts(spec, known))
    if mean is None:
        raise SpecError(
            "privacy.noise.formula",
            "h2fdp",
            "needs a partition that uses all examples, to know its sampling rate q",
        )
    return mean


def _counts(spec: Spec, known: DatasetFacts) -> dict[str, Any]:
    return {
        "examples": known.train_examples,
        "seed": spec.seed,
        "class_counts": known.class_counts,
        "group_counts": known.group_counts,
    }

"""How many examples of each label every worker will hold, from counts alone: nothing is loaded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.data.dataset_sizes import facts, partition_rule
from sfumato.data.partition import partition_sizes
from sfumato.data.partition_rule import PartitionRule
from sfumato.data.split_counts import Pool, plan_dirichlet, plan_labels
from sfumato.errors import SpecError
from sfumato.random import Stream, generator
from sfumato.spec.data import Data

# The address of the draw in which `partition` plans a whole federation at once.
_PLAN_ADDRESS = (0, 0, 0)


def label_counts(data: Data, devices: int, *, seed: int) -> NDArray[np.int64]:
    """Examples of each label that every device gets ``[devices, labels]``, the very ones of a run.

    Raises:
        SpecError: the partition does not divide by labels, so that only the data would tell.
        DataError: the set is neither tabulated nor on this machine.
    """
    rule = partition_rule(data)
    if rule.kind not in ("labels", "dirichlet"):
        raise SpecError(
            "topology.structure",
            "labels",
            "needs to know which labels a worker holds: data.partition.kind must be labels or dirichlet, "
            f"not {rule.kind}",
        )
    known = facts(data, devices)
    if known.class_counts is None:
        raise SpecError(
            "topology.structure", "labels", f"the labels of {data.source} are not known beforehand"
        )
    if known.site_counts is not None:
        raise SpecError(
            "data.site_column", None, "must be left out with structure: labels, which needs a partition"
        )
    weights = np.ones(devices, dtype=np.int64)
    # refuses what the partition refuses, with its own message
    partition_sizes(rule, weights, examples=known.train_examples, seed=seed, class_counts=known.class_counts)
    return _planned(rule, Pool(known.train_examples, np.asarray(known.class_counts, np.int64)), weights, seed)


def _planned(rule: PartitionRule, pool: Pool, weights: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    rng = generator(seed, Stream.PARTITION, *_PLAN_ADDRESS)
    allow_empty = rule.empty_devices == "allow"
    if rule.labels_per_device is not None:
        labels_each = rule.labels_per_device
        return plan_labels(
            pool, weights, labels_each=labels_each, allow_empty=allow_empty, place=rule.place, rng=rng
        ).table
    assert rule.alpha is not None  # a Dirichlet rule has one
    floor = rule.min_examples if rule.min_examples is not None else int(not allow_empty)
    return plan_dirichlet(pool, weights, alpha=rule.alpha, floor=floor, place=rule.place, rng=rng).table

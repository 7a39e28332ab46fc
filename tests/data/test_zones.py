"""Who is in a zone together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partition_rules import partition_rule

from sfumato.data.dataset_sizes import device_examples
from sfumato.data.partition import Partition, partition
from sfumato.data.zones import order_by_label, order_without_labels, regrouped
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import Spec
from sfumato.spec.topology import Zones

SIZES = np.array([3, 5, 2])


@pytest.mark.parametrize("kind", ["random", "distance", "compute"])
def test_rules_without_data_shuffle_by_the_seed(kind: Any) -> None:
    order = order_without_labels(Zones(kind=kind), SIZES, seed=4)
    assert order is not None
    assert sorted(order) == list(range(10))
    again, other = (order_without_labels(Zones(kind=kind), SIZES, seed=seed) for seed in (4, 5))
    assert np.array_equal(order, again)
    assert not np.array_equal(order, other)


def test_every_rule_draws_for_itself() -> None:
    orders = {
        tuple(order_without_labels(Zones(kind=kind), SIZES, seed=4))
        for kind in ("random", "distance", "compute")
    }
    assert len(orders) == 3


def test_a_list_is_kept() -> None:
    zones = Zones(kind="list", members=((9, 0, 1), (2, 3, 4, 5, 6), (8, 7)))
    assert order_without_labels(zones, SIZES, seed=0).tolist() == [9, 0, 1, 2, 3, 4, 5, 6, 8, 7]


@pytest.mark.parametrize(
    "members", [((0, 1), (2, 3, 4, 5, 6), (7, 8, 9)), ((0, 1, 1), (2, 3, 4, 5, 6), (7, 8))]
)
def test_lists_that_do_not_fit(members: Any) -> None:
    with pytest.raises(SpecError, match=r"topology\.zones\.members"):
        order_without_labels(Zones(kind="list", members=members), SIZES, seed=0)


def test_zones_by_data_hold_few_labels() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 4000)
    shares = partition(labels, [40], partition_rule("dirichlet", alpha=0.1), seed=1)
    grouped = regrouped(shares, Zones(kind="data"), np.full(10, 4), labels, seed=1)

    def spread(parts: Partition) -> float:
        """Mean share that a zone's most frequent label has of it."""
        zones = [np.concatenate([parts.indices(d) for d in range(4 * z, 4 * z + 4)]) for z in range(10)]
        return float(np.mean([np.bincount(labels[zone]).max() / max(1, len(zone)) for zone in zones]))

    assert spread(grouped) > spread(shares) + 0.2
    assert sorted(grouped.rows) == sorted(shares.rows)


def test_ties_and_empty_shares_are_in_order() -> None:
    parts = Partition(np.arange(6), np.array([0, 2, 2, 4, 6]))
    assert order_by_label(parts, np.array([1, 1, 0, 1, 0, 0])).tolist() == [3, 2, 1, 0]


def test_weights_follow_the_shares() -> None:
    def spec(zones: Any) -> Spec:
        return Spec.model_validate(
            {
                "name": "zones",
                "protocol": "hdp",
                "data": {"source": "digits", "partition": {"kind": "iid", "size_sigma": 0.8}},
                "topology": {"kind": "tree", "edges": 3, "devices_per_edge": [3, 5, 2]} | zones,
                "training": {"rounds": 1, "local_epochs": 1, "batch_size": "all", "learning_rate": 0.1}
                | {"weights": {"kind": "capped", "examples": 200}},
                "privacy": {"clip": {"kind": "update", "norm": 1}, "noise": {"multiplier": 1}},
            }
        )

    plain, zones = resolve(spec({})), Zones(kind="random")
    mixed = resolve(spec({"zones": "random"}))
    order = order_without_labels(zones, SIZES, seed=0)
    held = device_examples(plain.spec, plain.tree)
    assert len(set(held)) > 1
    assert np.array_equal(device_examples(mixed.spec, mixed.tree), held[order])
    with pytest.raises(SpecError, match=r"topology\.zones\.kind"):
        resolve(spec({"zones": "data"}))

import sys

import numpy as np
import pytest
from partition_rules import partition_rule

from sfumato.data.partition import partition, partition_sizes, uses_every_row
from sfumato.errors import MissingExtraError, SpecError

pytestmark = pytest.mark.needs("hub")

LABELS = np.arange(300) % 5


def rule(name, **options):
    return partition_rule("flwr", partitioner=name, options=options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("IidPartitioner", {}),
        ("DirichletPartitioner", {"alpha": 0.5, "min_partition_size": 3}),
        ("PathologicalPartitioner", {"num_classes_per_partition": 2}),
        ("LinearPartitioner", {}),
        ("NaturalIdPartitioner", {"partition_by": "group"}),
    ],
)
def test_flower_deals_distinct_rows_and_the_seed_fixes_them(name, options):
    groups = np.arange(300) // 50
    made = partition(LABELS, [2, 4], rule(name, **options), seed=3, groups=groups)
    assert made.devices == 6
    assert len(np.unique(made.rows)) == 300
    again = partition(LABELS, [2, 4], rule(name, **options), seed=3, groups=groups)
    np.testing.assert_array_equal(made.rows, again.rows)


def test_flowers_pathological_partition_holds_two_labels_a_device():
    made = partition(LABELS, [6], rule("PathologicalPartitioner", num_classes_per_partition=2), seed=3)
    assert {len(np.unique(LABELS[made.indices(device)])) for device in range(6)} == {2}


def test_only_the_partition_itself_tells_the_sizes():
    counts = {"examples": 300, "seed": 0, "class_counts": [60] * 5}
    assert partition_sizes(rule("IidPartitioner"), [6], **counts) is None
    assert not uses_every_row(rule("IidPartitioner"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rule("NoSuchPartitioner"), "flwr: and one of"),
        (rule("DirichletPartitioner"), "what DirichletPartitioner accepts"),
        (rule("DirichletPartitioner", alpha=-1), "what DirichletPartitioner accepts"),
        (rule("NaturalIdPartitioner"), "a partitioner that makes 6 parts; this made 5"),
        (rule("NaturalIdPartitioner", partition_by="absent"), "what NaturalIdPartitioner accepts"),
    ],
)
def test_what_flower_refuses_is_one_clear_message(wrong, message):
    with pytest.raises(SpecError, match=message):
        partition(LABELS, [6], wrong, seed=0)


def test_without_the_extra_the_error_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sfumato\[hub\]'"):
        partition(LABELS, [6], rule("IidPartitioner"), seed=0)

"""A target of ε for records needs their number: what is missing is said, and what to do."""

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import DataError, SpecError

STAR = {
    "name": "records",
    "protocol": "dp-fedavg",
    "data": {"source": "digits"},
    "topology": {"kind": "star", "devices": 3},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 8, "batches": "poisson", "learning_rate": 0.1},
    "privacy": {
        "unit": "record",
        "clip": {"kind": "example", "norm": 1.0},
        "noise": {"epsilon": 4.0, "for": "cloud"},
    },
}
TREE = STAR | {"protocol": "h2fdp", "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3}}
MOVING = TREE | {"topology": TREE["topology"] | {"moves": {"trace": [[2, 0, 1]]}}}
GROUPS = STAR | {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]]},
    "privacy": STAR["privacy"] | {"noise": {"epsilon": 4.0, "for": "device"}},
}
FAMILIES = pytest.mark.parametrize(
    "document", [STAR, TREE, MOVING, GROUPS], ids=["star", "tree", "moving", "groups"]
)
NEEDED = "a target of ε for records with privacy.clip.kind: example needs every device's number of records"


@FAMILIES
@pytest.mark.parametrize(
    ("source", "because"),
    [
        ("mypackage.data:make", "the sizes of data that a factory returns are known in a run only"),
        ("some/where", "some/where: not in some/where"),
        ("data/some/where", "data/some/where: no such folder"),
    ],
)
def test_data_of_unknown_size(document, source, because):
    with pytest.raises(SpecError) as caught:
        sf.account(sf.load_spec(document | {"data": {"source": source}}))
    assert caught.value.place == "data.source"
    assert caught.value.value == source
    said = caught.value.allowed
    assert (
        f"must be data whose sizes are known before training: {NEEDED} ({because}" in said or because in said
    )
    assert "give the data in Python (data=...), or clip whole updates" in said
    assert "trusted" not in str(caught.value)


@FAMILIES
def test_a_table_that_does_not_exist(document):
    with pytest.raises(DataError, match=r"data\.source: gone\.csv: no such file"):
        sf.account(sf.load_spec(document | {"data": {"source": "gone.csv"}}))


@FAMILIES
def test_a_partition_that_leaves_sizes_open(document):
    data = {"source": "digits", "partition": {"kind": "flwr", "partitioner": "IidPartitioner"}}
    with pytest.raises(SpecError) as caught:
        sf.account(sf.load_spec(document | {"data": data}))
    assert caught.value.place == "data.partition.kind"
    assert caught.value.allowed == (
        f"leaves open how many records a device has: {NEEDED}; use another partition, or clip whole updates "
        "(privacy.clip.kind: update)"
    )


def test_a_plan_says_the_same():
    document = STAR | {"data": {"source": "mypackage.data:make"}}
    spec = sf.load_spec(document | {"privacy": STAR["privacy"] | {"noise": {"multiplier": 2.0}}})
    with pytest.raises(SpecError, match=r"data\.source: got 'mypackage.data:make'; must be data whose sizes"):
        sf.plan(spec, {"cloud": 4.0})


def test_messages_that_remember_others():
    compression = {"kind": "rand-k", "ratio": 0.5, "error_feedback": True}
    with pytest.raises(SpecError) as caught:
        sf.account(sf.load_spec(STAR | {"compression": compression}))
    assert str(caught.value) == (
        "privacy.clip.kind: got 'example'; must be update or step with a target of ε for records: devices "
        "remember what earlier messages left out (error feedback)"
    )


def test_data_given_in_python_have_sizes():
    rows = (np.zeros((300, 4), np.float32), np.arange(300) % 3)
    spec = sf.load_spec(STAR | {"data": {"source": "mypackage.data:make"}})
    assert sf.account(spec, data=rows, observer="cloud").guarantees[0].epsilon == pytest.approx(4, rel=1e-3)


def test_clipped_updates_need_no_sizes():
    privacy = STAR["privacy"] | {"clip": {"kind": "update", "norm": 1.0}}
    spec = sf.load_spec(STAR | {"data": {"source": "mypackage.data:make"}, "privacy": privacy})
    assert sf.account(spec, observer="cloud").guarantees[0].epsilon == pytest.approx(4, rel=1e-3)


def test_who_is_trusted_is_still_said_to_be():
    with pytest.raises(SpecError, match=r"privacy\.noise\.for: got 'cloud'; is trusted with raw updates"):
        sf.account(sf.load_spec(STAR | {"trust": {"cloud": True}}))

"""A partition by natural groups of data without groups is refused before a run, too."""

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.data.dataset import dataset_of
from sfumato.errors import SpecError

pytestmark = pytest.mark.usefixtures("no_report")

TREE = {
    "name": "natural",
    "protocol": "h2fdp",
    "data": {"source": "digits"},
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 2},
    "training": {"rounds": 1, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}
GROUPS = TREE | {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6},
}
NATURAL = {"kind": "natural"}
ROWS = 60
RNG = np.random.default_rng(0)
OWNERS = (np.arange(ROWS) % 8).astype(np.int64)


def arrays(groups=None):
    features = RNG.normal(size=(ROWS, 3)).astype(np.float32)
    labels = (np.arange(ROWS) % 2).astype(np.int64)
    return dataset_of("mine", features, labels, features[:9], labels[:9], groups)


@pytest.mark.parametrize("document", [TREE, GROUPS], ids=["tree", "groups"])
@pytest.mark.parametrize("source", ["digits", "mnist", "synthetic", "table.csv", "table.npz"])
def test_data_without_groups_are_refused(document, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": range(ROWS), "label": [0, 1] * (ROWS // 2)}).to_csv("table.csv", index=False)
    np.savez("table.npz", features=np.zeros((ROWS, 3), np.float32), labels=np.arange(ROWS) % 2)
    data = {"source": source, "partition": NATURAL} | (
        {"label_column": "label"} if source == "table.csv" else {}
    )
    data |= {"examples_per_device": 9} if source == "synthetic" else {}
    with pytest.raises(SpecError) as caught:
        sf.account(sf.load_spec(document | {"data": data}))
    assert str(caught.value) == (
        "data.partition.kind: got 'natural'; a data set with a group column (group_column)"
    )


@pytest.mark.parametrize("level", ["edge", "device"])
def test_so_are_they_at_one_of_two_levels(level):
    partition = {"edge": {"kind": "iid"}, "device": {"kind": "iid"}, level: NATURAL}
    with pytest.raises(SpecError, match=rf"data\.partition\.{level}\.kind: got 'natural'"):
        sf.account(sf.load_spec(TREE | {"data": {"source": "digits", "partition": partition}}))


def test_a_table_with_groups_is_accounted_for(tmp_path):
    file = tmp_path / "table.csv"
    table = pd.DataFrame({"x": range(ROWS), "label": [0, 1] * (ROWS // 2), "owner": OWNERS})
    table.to_csv(file, index=False)
    for named in (
        {"partition": NATURAL | {"column": "owner"}},
        {"partition": NATURAL, "group_column": "owner"},
    ):
        data = {"source": str(file), "label_column": "label", "feature_columns": ["x"], **named}
        assert sf.account(sf.load_spec(TREE | {"data": data})).guarantees


def test_data_given_in_python(tmp_path):
    """Their own groups count, whether or not their facts say how large these are."""
    spec = sf.load_spec(TREE | {"data": {"source": "digits", "partition": NATURAL}})
    assert sf.account(spec, data=arrays(OWNERS)).guarantees
    assert len(sf.run(spec, data=arrays(OWNERS), out=tmp_path / "run", progress=False).metrics) == 1
    with pytest.raises(SpecError, match=r"data\.partition\.kind: got 'natural'; a data set with a group"):
        sf.account(spec, data=arrays())


def test_data_that_are_not_here_are_left_for_the_run(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert sf.account(
        sf.load_spec(TREE | {"data": {"source": "no/such-set", "partition": NATURAL}})
    ).guarantees
    factory = {"source": "mypackage.data:make", "partition": NATURAL}
    assert sf.account(sf.load_spec(TREE | {"data": factory})).guarantees

"""Several rows of one person: held out and dealt out whole, drawn one at a time, refused where divided."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.dataset_sizes import known_examples
from sfumato.data.partition import Partition, partition_of_persons, partition_sizes
from sfumato.data.splits import split_rows
from sfumato.errors import DataError, SpecError
from sfumato.protocols.groups.operations import GroupOperations
from sfumato.protocols.tree.local_work import batches_of
from sfumato.run_folder.label_counts import read_test_persons
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.data import IidPartition, NaturalPartition

STAR = {"kind": "star", "devices": 3, "device_names": ["bonn", "kiel", "ulm"]}


def visits(persons: int = 60) -> pd.DataFrame:
    """From one to five rows a person, in random order; a person's number is a feature, so rows tell it."""
    rng = np.random.default_rng(2)
    whose = np.repeat(np.arange(persons), rng.integers(1, 6, persons))
    whose = rng.permutation(whose)
    return pd.DataFrame(
        {
            "whose": [f"p{person}" for person in whose],
            "clinic": [("bonn", "kiel", "ulm")[person % 3] for person in whose],
            "person": whose.astype(float),
            "row": np.arange(len(whose), dtype=float),
            "ill": rng.integers(0, 2, len(whose)),
        }
    )


def spec_of(source: Path, topology: dict[str, Any] = STAR, **changes: Any) -> sf.Spec:
    document: dict[str, Any] = {
        "name": "visits",
        "protocol": "dp-fedavg",
        "data": {
            "source": str(source), "label_column": "ill", "site_column": "clinic", "person_column": "whose",
            "feature_columns": ["person", "row"],
        },
        "topology": topology,
        "training": {
            "rounds": 2, "local_steps": 3, "batch_size": 4, "learning_rate": 0.1, "batches": "poisson",
        },
        "privacy": {"unit": "person", "clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    }  # fmt: skip
    document["data"] |= changes.pop("data", {})
    return sf.load_spec(document | changes)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    visits().to_csv(tmp_path / "visits.csv", index=False)
    return tmp_path / "visits.csv"


def holders(inputs: TrainingInputs) -> list[set[float]]:
    """The persons of whom each device holds rows."""
    features = np.asarray(inputs.data.train_features)
    return [set(features[inputs.partition.indices(d), 0]) for d in range(inputs.partition.devices)]


def test_every_person_s_rows_are_at_one_device_and_persons_are_what_is_counted(table: Path) -> None:
    plan = resolve(spec_of(table))
    inputs = TrainingInputs.of(plan)
    held = holders(inputs)
    assert not held[0] & held[1] | held[0] & held[2] | held[1] & held[2]
    assert known_examples(plan.spec, plan.devices_per_place).tolist() == [len(persons) for persons in held]
    rates = plan.releases.batches.rates
    assert rates is not None
    assert rates.tolist() == [4 / len(persons) for persons in held]
    frame = visits()
    kept = frame[frame["person"].isin(set.union(*held))]
    assert (
        len(kept) == inputs.partition.sizes.sum()
    )  # all rows of those who are trained on, and of nobody else


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "frame"])
def test_other_tables_name_persons_too(table: Path, suffix: str) -> None:
    frame = visits()
    if suffix == "frame":
        found = sf.account(spec_of(table), data=frame)
    else:
        other = table.with_suffix(f".{suffix}")
        frame.to_parquet(other) if suffix == "parquet" else frame.to_feather(
            other, compression="uncompressed"
        )
        found = sf.account(spec_of(other))
    assert [row.epsilon for row in found.guarantees] == [
        row.epsilon for row in sf.account(spec_of(table)).guarantees
    ]


def test_without_sites_persons_are_dealt_out_whole(table: Path) -> None:
    plan = resolve(spec_of(table, data={"site_column": None}))
    held = holders(TrainingInputs.of(plan))
    assert sum(map(len, held)) == len(set.union(*held)) == 54  # 6 of 60 are held out to test on
    assert (
        known_examples(plan.spec, plan.devices_per_place).tolist()
        == [len(persons) for persons in held]
        == [18] * 3
    )


def rows_of_batches(plan: Any, inputs: TrainingInputs) -> list[list[int]]:
    """The rows of the data set in every batch of round 1 of all devices."""
    batches = batches_of(plan, inputs.partition, np.arange(3), 1)
    return [
        batches.rows[device, step, : batches.counts[device, step]].tolist()
        for device in range(3)
        for step in range(batches.rows.shape[1])
    ]


def test_no_batch_of_a_round_holds_two_rows_of_a_person(table: Path) -> None:
    """The rule that all guarantees of persons rest on, in trees and in groups; broken, if rows are drawn."""
    training = {"rounds": 2, "local_steps": 40, "batch_size": 12, "learning_rate": 0.1, "batches": "poisson"}
    plan = resolve(spec_of(table, training=training))
    inputs = TrainingInputs.of(plan)
    whose = np.asarray(inputs.data.train_features)[:, 0]
    found = rows_of_batches(plan, inputs)
    assert all(len(set(whose[rows])) == len(rows) for rows in found)
    bare = TrainingInputs(
        inputs.data, Partition(inputs.partition.rows, inputs.partition.offsets), inputs.model, inputs.hashes
    )
    assert any(len(set(whose[rows])) < len(rows) for rows in rows_of_batches(plan, bare))


@pytest.mark.usefixtures("no_report")
def test_workers_of_groups_draw_persons_too(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = {
        "kind": "groups",
        "structure": "list",
        "groups": [[0, 1], [1, 2]],
        "worker_names": ["bonn", "kiel", "ulm"],
    }
    spec = spec_of(
        table, topology, protocol="dp-ogl",
        training={
            "rounds": 3, "local_steps": 20, "batch_size": 12, "learning_rate": 0.1, "batches": "poisson",
        },
    )  # fmt: skip
    seen = []
    draw = GroupOperations._batches

    def watched(self: GroupOperations, *arguments: Any) -> Any:
        seen.append(draw(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(GroupOperations, "_batches", watched)
    sf.run(spec, out=table.parent / "run", progress=False)
    data = TrainingInputs.of(resolve(spec)).data
    assert read_test_persons(table.parent / "run") == data.test_persons
    whose = np.asarray(data.train_features)[:, 0]
    assert sum(len(batches.counts) for batches in seen) >= 9
    for batches in seen:
        for device in range(batches.devices):
            for step in range(batches.rows.shape[1]):
                rows = batches.rows[device, step, : batches.counts[device, step]].numpy()
                assert len(set(whose[rows])) == len(rows)


def test_a_share_of_persons_is_held_out(table: Path) -> None:
    inputs = TrainingInputs.of(resolve(spec_of(table, data={"test_fraction": 0.25})))
    trained, tested = (
        set(np.asarray(part)[:, 0]) for part in (inputs.data.train_features, inputs.data.test_features)
    )
    assert not trained & tested
    assert len(tested) == inputs.data.test_persons == 15


DIVIDED = {
    "two sites": (
        {"whose": ["a", "a", *"bcdefgh"], "clinic": ["kiel", "bonn", *["bonn", "kiel", "ulm"] * 2, "ulm"]},
        {},
        "person 'a' has rows at two sites, 'bonn' (row 2) and 'kiel' (row 1)",
    ),
    "two groups": (
        {"whose": ["a", "a", *"bcdefgh"], "ward": list("121212121")},
        {"site_column": None, "partition": {"kind": "natural", "column": "ward"}},
        "person 'a' has rows at two groups",
    ),
    "train and test": (
        {"whose": ["a", "a", *"bcdefgh"], "clinic": ["ulm"] * 2 + ["bonn", "kiel"] * 3 + ["ulm"],
         "kept": ["test", "train"] + ["train"] * 6 + ["test"]},
        {"test_column": "kept"},
        "person 'a' has rows to train on and rows to test on",
    ),
    "nobody": ({"whose": ["a", None, *"bcdefgh"]}, {}, "every row needs a person"),
}  # fmt: skip


@pytest.mark.parametrize("case", DIVIDED)
def test_a_person_who_is_divided_is_refused_before_anything_is_sent(tmp_path: Path, case: str) -> None:
    columns, data, said = DIVIDED[case]
    frame = pd.DataFrame(
        {"clinic": ["bonn", "kiel", "ulm"] * 3, "person": 1.0, "row": 2.0, "ill": [0, 1, 1] * 3} | columns
    )
    frame.to_csv(tmp_path / "few.csv", index=False)
    spec = spec_of(tmp_path / "few.csv", data=data)
    for command in (sf.account, lambda one: sf.run(one, out=tmp_path / "run", progress=False)):
        with pytest.raises(DataError) as caught:
            command(spec)
        assert said in str(caught.value)


def test_a_person_in_the_test_file_is_refused(table: Path) -> None:
    visits().head(5).to_csv(table.parent / "tested.csv", index=False)
    with pytest.raises(DataError, match="has rows to train on and rows to test on"):
        sf.account(spec_of(table, data={"test_file": str(table.parent / "tested.csv")}))
    visits().head(5).drop(columns="whose").to_csv(table.parent / "tested.csv", index=False)
    with pytest.raises(SpecError, match="no such column"):
        sf.account(spec_of(table, data={"test_file": str(table.parent / "tested.csv")}))


def test_the_column_of_persons_is_no_feature(table: Path) -> None:
    frame = visits()
    frame["whose"] = frame["person"].astype(int)
    frame.to_csv(table, index=False)
    inputs = TrainingInputs.of(resolve(spec_of(table, data={"feature_columns": None})))
    assert inputs.data.facts.feature_columns == ("person", "row")
    with pytest.raises(
        SpecError, match="must not be the column of labels, groups, sites, persons or test rows"
    ):
        sf.account(spec_of(table, data={"feature_columns": ["whose", "row"]}))


def test_data_without_named_columns_have_no_persons() -> None:
    arrays = np.zeros((30, 2), np.float32), np.arange(30) % 2
    spec = spec_of(Path("digits"), data={"site_column": None, "feature_columns": None, "label_column": None})
    with pytest.raises(SpecError, match=r"data.person_column.*goes with a CSV, Parquet or Arrow file"):
        sf.account(spec)
    with pytest.raises(SpecError, match=r"data.person_column.*goes with a data frame"):
        sf.account(spec, data=arrays)


persons_of_rows = st.lists(st.integers(0, 8), min_size=12, max_size=40)


@given(persons_of_rows, st.integers(1, 3), st.booleans())
def test_partitions_of_persons(drawn: Sequence[int], devices: int, by_site: bool) -> None:
    """Rows of a person are at one device, side by side; sizes are those that counts of persons give."""
    persons = np.unique(drawn, return_inverse=True)[1].astype(np.int64)
    count = int(persons.max()) + 1
    if count < 2 * devices:
        return
    sites = persons % devices if by_site else None
    rule = IidPartition()
    parts = partition_of_persons(persons, [1] * devices, rule, seed=3, sites=sites)
    wanted = partition_sizes(
        rule, [1] * devices, examples=count, seed=3,
        site_counts=None if sites is None else np.bincount(np.arange(count) % devices, minlength=devices),
    )  # fmt: skip
    assert wanted is not None
    order = np.arange(devices)[::-1]
    for one, numbers in ((parts, np.arange(devices)), (parts.reordered(order), order)):
        assert sorted(one.rows.tolist()) == list(range(len(persons)))
        starts = one.persons_of(range(devices))
        assert starts is not None
        for device, own in enumerate(starts):
            whose = persons[one.indices(device)]
            assert len(own) - 1 == len(set(whose.tolist())) == wanted[numbers[device]]
            assert own[0] == 0
            assert own[-1] == len(whose)
            for first, last in pairwise(own.tolist()):
                assert len(set(whose[first:last].tolist())) == 1
                assert (whose == whose[first]).sum() == last - first


def test_a_natural_partition_deals_out_groups_with_their_persons() -> None:
    persons = np.array([0, 0, 1, 2, 2, 2, 3])
    groups = np.array([0, 0, 0, 1, 1, 1, 2])
    parts = partition_of_persons(persons, [1, 1, 1], NaturalPartition(column="ward"), seed=1, groups=groups)
    found = {tuple(sorted(parts.indices(device).tolist())) for device in range(3)}
    assert found == {(0, 1, 2), (3, 4, 5), (6,)}


def test_persons_of_the_training_rows_are_numbered_from_0() -> None:
    names = np.array(["c", "a", "c", "b", "d"])
    split = split_rows(
        np.array([0, 1, 0, 1, 0]), None, test_fraction=None, persons=names,
        is_test=np.array([False, True, False, False, False]),
    )  # fmt: skip
    assert split.persons is not None
    assert split.persons.tolist() == [1, 1, 0, 2]
    assert split.test_persons == 1

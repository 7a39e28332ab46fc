"""``data.test_within: group``: a share of the rows of every natural group is held out, and sizes follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.data.dataset_sizes import describe_dataset, known_examples
from sfumato.data.datasets import load_dataset
from sfumato.data.locate import Columns, Request
from sfumato.data.splits import split_rows
from sfumato.errors import SpecError
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.verify.examples_held import examples_held

SIZES = {"ann": 40, "bea": 25, "cid": 4, "dan": 1}
HELD = {"ann": 4, "bea": 3, "cid": 0, "dan": 0}
"""A tenth, rounded half up."""


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8).filter(lambda sizes: max(sizes) > 10),
    st.floats(0.05, 0.95),
    st.randoms(use_true_random=False),
)
def test_every_group_has_its_share_and_no_row_is_on_both_sides(
    sizes: list[int], share: float, order: Any
) -> None:
    owners = np.repeat(np.arange(len(sizes)), sizes)
    order.shuffle(owners)
    split = split_rows(
        np.zeros(len(owners), int), None, test_fraction=share, within_groups=True, groups=owners
    )
    assert sorted([*split.rows, *split.held_out]) == list(range(len(owners)))
    held = np.bincount(owners[split.held_out], minlength=len(sizes))
    assert held.tolist() == [min(int(size * share + 0.5), size - 1) for size in sizes]
    assert split.groups is not None
    assert np.bincount(split.groups).tolist() == [
        size - out for size, out in zip(sizes, held.tolist(), strict=True)
    ]
    again = split_rows(
        np.zeros(len(owners), int), None, test_fraction=share, within_groups=True, groups=owners
    )
    assert again.held_out.tolist() == split.held_out.tolist()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Rows of four owners, mixed, each with a number of its own."""
    owners = np.repeat(list(SIZES), list(SIZES.values()))
    mixed = np.random.default_rng(0).permutation(len(owners))
    rows = {"x": mixed, "label": mixed % 2, "owner": owners[mixed]}
    pd.DataFrame(rows).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def spec_of(table: Path, devices: int = 4, **data: Any) -> sf.Spec:
    own = {"feature_columns": ["x"], "label_column": "label", "test_within": "group"}
    own["partition"] = {"kind": "natural", "column": "owner", "groups_per_device": 1}
    return sf.load_spec({
        "name": "owners", "protocol": "dp-fedavg", "data": {"source": str(table), **own, **data},
        "topology": {"devices": devices},
        "training": {"rounds": 1, "local_steps": 1, "batch_size": 2, "learning_rate": 0.1},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    })  # fmt: skip


def test_accounts_know_what_devices_hold_in_the_run(table: Path) -> None:
    spec = spec_of(table)
    sizes = known_examples(spec, np.array([4]))
    inputs = TrainingInputs.of(resolve(spec))
    assert sizes is not None
    assert sizes.tolist() == inputs.partition.sizes.tolist()
    assert sorted(sizes.tolist()) == sorted(SIZES[name] - HELD[name] for name in SIZES)
    assert inputs.data.facts.test_examples == sum(HELD.values())
    few = spec_of(table, 2, partition={"kind": "natural", "column": "owner", "min_examples": 22,
                                       "groups_per_device": 1})  # fmt: skip
    held = known_examples(few, np.array([2]))
    assert held is not None
    assert sorted(held.tolist()) == [22, 36]  # counted in rows to train on
    _, why = examples_held(spec.model_dump(mode="json"))
    assert why.startswith("data.source")  # the checker says what it cannot know


def test_any_partition_may_have_it(table: Path) -> None:
    spec = spec_of(table, 3, partition={"kind": "iid"}, group_column="owner", test_fraction=0.2)
    sizes = known_examples(spec, np.array([3]))
    assert sizes is not None
    assert sizes.sum() == 70 - (8 + 5 + 1)
    columns = Columns(features=("x",), label="label", group="owner")
    request = Request(columns, test_fraction=0.2, test_within_groups=True)
    assert load_dataset(str(table), request).facts == describe_dataset(str(table), request)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"partition": {"kind": "iid"}}, r"data\.test_within: got 'group'; a data set with a group column"),
        ({"test_file": "other.csv"}, r"data\.test_within: .*test_file says what is tested on"),
        ({"test_column": "t"}, r"data\.test_within: .*test_column says what is tested on"),
        ({"person_column": "owner"}, r"data\.test_within: .*persons are held out whole"),
        ({"test_fraction": 0.001}, r"data\.test_fraction: .*the largest has 40"),
        ({"test_within": "writer"}, r"data\.test_within: got 'writer'"),
    ],
)
def test_what_cannot_be_held_out_is_refused(table: Path, data: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        known_examples(spec_of(table, **data), np.array([4]))


@pytest.mark.parametrize("source", ["mnist", "emnist-digits", "digits"])
def test_a_set_with_a_test_split_of_its_own_has_nothing_to_hold_out(source: str) -> None:
    with pytest.raises(SpecError, match=r"data\.test_within: got 'group'; nothing: "):
        describe_dataset(source, Request(test_within_groups=True))

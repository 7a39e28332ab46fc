"""EMNIST's digits by writer: a built-in name, for files that are fetched by hand and have published sizes.

The published set is large, so most tests let it be one of three writers; images are blank paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.data import dataset_sizes
from sfumato.data.builtin_datasets import BUILT_IN, BuiltIn
from sfumato.data.dataset_sizes import dataset_facts, describe_dataset, known_examples
from sfumato.data.datasets import load_dataset
from sfumato.data.locate import Columns, Request, files_of
from sfumato.errors import DataError, SpecError
from sfumato.verify.examples_held import examples_held

NAME = "emnist-digits"
WRITERS, ROWS = 3, {"train": 61, "test": 8}
"""Of the files that tests write."""
BY_WRITER = Request(Columns(group="writer"))
HDF5 = pytest.mark.needs("hdf5")


def write(root: Path, writers: int = WRITERS, rows: Mapping[str, int] = ROWS) -> Path:
    """Write ``rows`` rows of so many writers into the place of the set within ``root``; returns ``root``."""
    import h5py

    folder = root / NAME
    folder.mkdir()
    for split, total in rows.items():
        cuts = np.linspace(0, total, writers + 1).astype(int)
        with h5py.File(folder / f"fed_{split}.h5", "w", libver="latest") as file:
            for writer, count in enumerate(np.diff(cuts).tolist()):
                client = file.create_group(f"examples/f{writer:04}_00")
                client.create_dataset("pixels", (count, 28, 28), np.float32, fillvalue=1.0)
                client["label"] = np.arange(count, dtype=np.int32) % 10
    return root


def document(writers: int, **data: Any) -> dict[str, Any]:
    """HDP in one zone of all writers."""
    return {
        "name": "writers", "protocol": "hdp", "model": "softmax",
        "data": {"source": NAME, "partition": {"kind": "natural"}, **data},
        "topology": {"kind": "tree", "edges": 1, "devices_per_edge": writers},
        "training": {"rounds": 1, "local_epochs": 1, "batch_size": 20, "learning_rate": 0.02},
        "privacy": {"clip": {"kind": "update", "norm": 0.3},
                    "noise": {"multiplier": 1.0, "placement": {"edge": 1.0}}},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of other files is remembered, and no set is here."""
    dataset_sizes._facts.cache_clear()
    monkeypatch.setenv("SFUMATO_DATA", "/nowhere")


@HDF5
def test_sizes_of_devices_follow_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    monkeypatch.setenv("SFUMATO_DATA", str(write(tmp_path)))
    monkeypatch.setattr("sfumato.data.tff.ClientRows.take", None)  # features are not read
    spec = sf.load_spec(document(WRITERS))
    assert dataset_facts(spec.data, WRITERS).group_counts == (20, 20, 21)
    sizes = known_examples(spec, np.array([WRITERS]))
    assert sizes is not None
    assert sorted(sizes.tolist()) == [20, 20, 21]
    assert sf.account(spec).epsilon(0, "public") > 0
    assert set(files_of(NAME)) == {"fed_train.h5", "fed_test.h5"}


def test_without_writers_no_file_is_needed() -> None:
    facts = describe_dataset(NAME)
    assert (facts.train_examples, facts.test_examples, facts.group_counts) == (341_873, 40_832, None)
    spec = sf.load_spec(document(3_383, partition={"kind": "iid"}))
    sizes = known_examples(spec, np.array([3_383]))
    assert sizes is not None
    assert sizes.sum() == 341_873
    checked, _ = examples_held(spec.model_dump(mode="json"))
    assert checked is not None
    assert np.array_equal(checked, sizes)


@pytest.mark.parametrize("read", [load_dataset, describe_dataset])
def test_what_to_fetch_and_where_it_goes_is_said(read: Any) -> None:
    with pytest.raises(DataError) as caught:
        read(NAME, BY_WRITER)
    assert str(caught.value) == (
        "emnist-digits: not in /nowhere/emnist-digits, /usr/share/datasets/emnist-digits; put "
        "fed_emnist_digitsonly_train.h5 and fed_emnist_digitsonly_test.h5 of TensorFlow Federated "
        "(3,383 writers, 341,873 and 40,832 images) into $SFUMATO_DATA/emnist-digits"
    )


@HDF5
@pytest.mark.parametrize("read", [load_dataset, describe_dataset])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": {"train": 50, "test": 9}}, "has train_examples 50, the published set 341873"),
        ({"rows": {"train": 61, "test": 9}}, "has test_examples 9, the published set 8"),
        ({"writers": 4, "rows": {"train": 61, "test": 8}}, r"has groups \(writer\) 4, the published set 3"),
    ],
)
def test_a_copy_of_other_sizes_is_refused(
    read: Any, wrong: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "the published set 341873" not in message:
        small(monkeypatch)
    monkeypatch.setenv("SFUMATO_DATA", str(write(tmp_path, **wrong)))
    with pytest.raises(DataError, match=message):
        read(NAME, BY_WRITER)


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the published set be that of the files that tests write."""
    own = BUILT_IN[NAME]
    facts = replace(own.facts, train_examples=ROWS["train"], test_examples=ROWS["test"])
    known: dict[str, BuiltIn] = {**BUILT_IN, NAME: replace(own, facts=facts, groups=WRITERS)}
    for module in ("builtin_datasets", "dataset_sizes", "locate"):
        monkeypatch.setattr(f"sfumato.data.{module}.BUILT_IN", known)


@HDF5
@pytest.mark.usefixtures("no_report")
def test_a_writer_is_a_device_and_paper_is_white(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    monkeypatch.setenv("SFUMATO_DATA", str(write(tmp_path)))
    data = load_dataset(NAME, BY_WRITER)
    assert data.facts == describe_dataset(NAME, BY_WRITER)
    assert np.asarray(data.train_features).min() == 1.0  # (1 - 0.5) / 0.5
    spec = sf.load_spec(document(WRITERS))
    run = sf.run(spec, out=tmp_path / "run")
    assert np.isfinite(run.metrics["accuracy"].iloc[-1])
    assert run.privacy.epsilon(0, "public") == sf.account(spec).epsilon(0, "public")


def test_other_columns_are_refused() -> None:
    with pytest.raises(SpecError, match=r"data\.group_column: got 'pen'"):
        describe_dataset(NAME, Request(Columns(group="pen")))
    with pytest.raises(SpecError, match=r"data\.test_fraction"):
        describe_dataset(NAME, Request(test_fraction=0.2))

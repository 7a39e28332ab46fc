"""Features that are taken when they are used: the same numbers as in memory, and no row of others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import sfumato as sf
from sfumato.data import tables
from sfumato.data.dataset import Dataset, dataset_of
from sfumato.data.datasets import load_dataset
from sfumato.data.features import in_memory, read_all, take_rows
from sfumato.data.locate import Columns, Request, files_of
from sfumato.data.partition import partition
from sfumato.data.synthetic import LARGEST_DRAWN_AT_ONCE, DrawnRows, make_synthetic
from sfumato.errors import DataError, SpecError
from sfumato.spec.data import NaturalPartition

RNG = np.random.default_rng(0)
ROWS = 300
IMAGES = RNG.integers(0, 256, (ROWS, 5, 4), dtype=np.uint8)
VECTORS = RNG.normal(size=(ROWS, 6)).astype(np.float32)
LABELS = RNG.integers(0, 3, ROWS).astype(np.int16)


def saved(folder: Path, **arrays: np.ndarray) -> tuple[str, str]:
    """The arrays in an .npz file, and in a folder of .npy files."""
    np.savez(folder / "arrays.npz", **arrays)
    (folder / "arrays").mkdir()
    for name, array in arrays.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    return str(folder / "arrays.npz"), str(folder / "arrays")


def assert_same(held: Dataset, source: Dataset) -> None:
    """Both are the same data; of the second, features are taken."""
    assert in_memory(held.train_features)
    for ours, theirs in (
        (source.train_features, held.train_features),
        (source.test_features, held.test_features),
    ):
        assert not in_memory(ours)
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(read_all(ours), theirs)
        some = np.array([0, 3, len(theirs) - 1])
        np.testing.assert_array_equal(take_rows(ours, some), take_rows(theirs, some))
    np.testing.assert_array_equal(source.train_labels, held.train_labels)
    np.testing.assert_array_equal(source.test_labels, held.test_labels)
    assert held.train_labels.dtype == source.test_labels.dtype == np.int64
    assert source.facts.class_counts == held.facts.class_counts


@pytest.mark.parametrize("features", [IMAGES, VECTORS, IMAGES.reshape(ROWS, -1)])
@pytest.mark.parametrize("tested", [False, True])
def test_a_folder_of_arrays_holds_what_an_npz_file_does(features, tested, tmp_path):
    more = {"test_features": features[:20], "test_labels": LABELS[:20]} if tested else {}
    held, mapped = map(load_dataset, saved(tmp_path, features=features, labels=LABELS, **more))
    assert_same(held, mapped)
    assert mapped.train_labels.dtype == np.uint8  # as small as they can be


def test_token_ids_are_taken(tmp_path):
    tokens = RNG.integers(0, 9, (ROWS, 7), dtype=np.uint8)
    request = Request(Columns(task="next-token", vocabulary=9))
    held, mapped = (load_dataset(path, request) for path in saved(tmp_path, features=tokens))
    assert_same(held, mapped)
    bad = tokens.copy()
    bad[250, 2] = 9
    np.save(tmp_path / "arrays" / "features.npy", bad)
    found = load_dataset(str(tmp_path / "arrays"), request)
    with pytest.raises(DataError, match=r"place 3: got 9; with data\.vocabulary"):
        read_all(found.train_features)


def test_what_is_not_finite_is_named_when_it_is_taken(tmp_path):
    bad = VECTORS.copy()
    bad[123, 2] = np.nan
    _, folder = saved(tmp_path, features=bad, labels=LABELS, test_features=VECTORS, test_labels=LABELS)
    found = load_dataset(folder).train_features
    take_rows(found, np.array([122, 124]))
    with pytest.raises(DataError, match=r"features: row 124: the value is missing, NaN"):
        take_rows(found, np.array([122, 123]))


def test_folders_of_arrays_that_cannot_be_read(tmp_path):
    _, folder = saved(tmp_path, x=VECTORS, labels=LABELS)
    with pytest.raises(SpecError, match=r"data\.image_column: got 'features'.*it has labels, x"):
        load_dataset(folder)
    assert_same(*(load_dataset(path, Request(Columns(image="x"))) for path in (f"{folder}.npz", folder)))
    assert set(files_of(folder)) == {"x.npy", "labels.npy"}
    (tmp_path / "arrays" / "x.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match=r"x\.npy: cannot be read as a \.npy file"):
        load_dataset(folder, Request(Columns(image="x")))
    (tmp_path / "arrays" / "x.npy").write_bytes((tmp_path / "arrays.npz").read_bytes())
    with pytest.raises(DataError, match=r"x\.npy: holds an archive of arrays"):
        load_dataset(folder, Request(Columns(image="x")))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".stream.arrow"])
def test_groups_of_rows_are_read_when_they_are_used(suffix, tmp_path, monkeypatch):
    frame = pd.DataFrame({f"x{n}": VECTORS[:, n] for n in range(3)} | {"label": LABELS})
    path, table = tmp_path / f"table{suffix}", pa.Table.from_pandas(frame, preserve_index=False)
    if suffix == ".parquet":
        frame.to_parquet(path, index=False, row_group_size=37)
    else:
        make = pa.ipc.new_stream if "stream" in suffix else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=37)
    request = Request(Columns(scale=(("x0", -1.0, 1.0),)))
    held = load_dataset(str(path), request)
    monkeypatch.setattr(tables, "LARGEST_IN_MEMORY", 0)
    assert_same(held, load_dataset(str(path), request))
    frame.loc[200, "x1"] = np.nan
    frame.to_parquet(tmp_path / "gap.parquet", index=False, row_group_size=37)
    found = load_dataset(str(tmp_path / "gap.parquet"))
    with pytest.raises(DataError, match=r"gap\.parquet: row 201, column 'x1': the value is missing"):
        read_all(found.train_features), read_all(found.test_features)


def test_small_synthetic_sets_are_the_bytes_that_they_were():
    features, labels, test, test_labels = make_synthetic(1_003, seed=3)
    assert isinstance(features, np.ndarray)
    parts = (features, labels, test, test_labels)
    found = [hashlib.sha256(np.ascontiguousarray(part).data).hexdigest()[:16] for part in parts]
    assert found == ["48eb30d43e5f7b79", "fb9ab353921fda20", "c90e35a95fd690f5", "c24692bd6ac163e5"]


def test_a_row_of_a_large_synthetic_set_depends_on_its_number_alone():
    """Moments of 800,000 values: each is off by six standard errors with probability 2e-9."""
    count = LARGEST_DRAWN_AT_ONCE + 7
    features, labels, *_ = make_synthetic(count, seed=3)
    assert isinstance(features, DrawnRows)
    np.testing.assert_array_equal(labels[-20:], np.arange(count)[-20:] % 10)
    rows = np.sort(RNG.choice(count, 50_000, replace=False))
    found = take_rows(features, rows)
    np.testing.assert_array_equal(take_rows(features, rows[777:780]), found[777:780])
    np.testing.assert_array_equal(found, take_rows(make_synthetic(10 * count, seed=3)[0], rows))
    assert not np.array_equal(found, take_rows(make_synthetic(count, seed=4)[0], rows))
    noise = found.astype(float) - features.centres[rows % 10]
    n = noise.size
    errors = [noise.mean() * n**0.5, (noise.var() - 1) * (n / 2) ** 0.5]
    errors.append(((noise**4).mean() - 3) * (n / 96) ** 0.5)
    errors.append(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1] * len(noise) ** 0.5)
    assert np.abs(errors).max() < 6
    small, *_ = make_synthetic(100, seed=3)
    assert isinstance(small, np.ndarray)
    assert np.linalg.norm(small.reshape(10, 10, 16).mean(axis=0) - features.centres, axis=1).max() < 3


class Squares:
    """Features that a user's factory makes when they are asked for."""

    shape, dtype = (ROWS, 2), np.dtype(np.float32)

    def __init__(self) -> None:
        self.asked: list[int] = []

    def take(self, rows: np.ndarray, out: np.ndarray) -> None:
        self.asked += rows.tolist()
        out[:] = rows[:, None] % 7
        out[:, 1] **= 2


@pytest.mark.usefixtures("no_report")
def test_data_of_a_factory_may_be_made_when_they_are_used(tmp_path):
    source, labels = Squares(), LABELS.astype(np.int64)
    test = np.ones((9, 2), np.float32)
    data = dataset_of("squares", source, labels, test, labels[:9])
    assert source.asked == []
    training = {"rounds": 2, "local_steps": 2, "batch_size": 2, "learning_rate": 0.1}
    training["participation"] = {"kind": "fixed", "count": 3}
    document = {"name": "squares", "protocol": "dp-fedavg", "training": training, "topology": {"devices": 60}}
    spec = sf.load_spec(document | {"data": {"source": "python:Dataset"}})
    run = sf.run(spec, data=data, out=tmp_path / "run")
    held = dataset_of("squares", read_all(source), labels, test, labels[:9])
    other = sf.run(spec, data=held, out=tmp_path / "held")
    for ours, theirs in zip(run.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    tables = [one.metrics.drop(columns="wall_time_s") for one in (run, other)]
    pd.testing.assert_frame_equal(*tables)


def test_a_mapped_array_given_in_python_stays_where_it_is(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = dataset_of("mapped", mapped, LABELS.astype(np.int64), VECTORS, LABELS.astype(np.int64))
    assert not in_memory(data.train_features)
    np.testing.assert_array_equal(read_all(data.train_features), VECTORS)


def test_natural_groups_are_dealt_as_before():
    groups = RNG.integers(0, 40, ROWS)
    rule = NaturalPartition(kind="natural", groups_per_device=2)
    parts = partition(LABELS, [5, 5], rule, seed=1, groups=groups)
    for device in range(10):
        rows = parts.indices(device)
        assert len(set(groups[rows].tolist())) == 2
        assert set(rows.tolist()) == set(np.flatnonzero(np.isin(groups, groups[rows])).tolist())

"""LEAF's JSON and TensorFlow Federated's HDF5 files: users become devices; a mistake is one clear line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.data.dataset_sizes import describe_dataset
from sfumato.data.datasets import load_dataset
from sfumato.data.features import in_memory, read_all
from sfumato.data.locate import Columns, Request, files_of
from sfumato.errors import DataError, MissingExtraError, SpecError
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs

WRITERS = {"f0": 6, "f1": 4, "f2": 5}
"""Writer to rows to train on."""
TESTED = dict.fromkeys(WRITERS, 2)
HDF5 = pytest.mark.needs("hdf5")
FORMATS = ("leaf", pytest.param("tff", marks=HDF5))


def images(writer: str, rows: int) -> np.ndarray:
    """Images whose pixels say the writer (the first pixel) and the row (the others)."""
    found = np.zeros((rows, 28, 28), np.float32)
    found += np.arange(rows, dtype=np.float32)[:, None, None] / 16
    found[:, 0, 0] = int(writer[1:]) / 8
    return found


def labels(rows: int) -> list[int]:
    return [row % 4 for row in range(rows)]


def leaf(writers: dict[str, int] = WRITERS) -> dict[str, Any]:
    data = {
        name: {"x": images(name, rows).reshape(rows, -1).tolist(), "y": labels(rows)}
        for name, rows in writers.items()
    }
    return {"users": list(writers), "num_samples": list(writers.values()), "user_data": data}


def write_json(path: Path, document: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def write_h5(path: Path, writers: dict[str, int] = WRITERS, **changed: Any) -> Path:
    """A file of clients; ``changed``: columns of the second client in place of its own, ``None`` for none."""
    import h5py

    with h5py.File(path, "w") as file:
        for number, (name, rows) in enumerate(writers.items()):
            columns = {"pixels": images(name, rows), "label": np.array(labels(rows), np.int32)}
            for column, values in (columns | (changed if number == 1 else {})).items():
                if values is not None:
                    file[f"examples/{name}/{column}"] = values
    return path


def write_folder(folder: Path, form: str) -> str:
    """A folder as it is published: the last writer of LEAF's in a file of its own."""
    if form == "tff":
        write_h5(folder / "fed_emnist_train.h5")
        write_h5(folder / "fed_emnist_test.h5", TESTED)
    else:
        write_json(folder / "train" / "data_0.json", leaf({name: WRITERS[name] for name in ("f0", "f1")}))
        write_json(folder / "train" / "data_1.json", leaf({"f2": WRITERS["f2"]}))
        write_json(folder / "test" / "data_0.json", leaf(TESTED))
    return str(folder)


def spec_of(source: str, partition: object, topology: object) -> sf.Spec:
    return sf.load_spec(
        {
            "name": "writers",
            "protocol": "dp-fedavg" if isinstance(topology, dict) and "edges" not in topology else "hfl",
            "data": {"source": source, "partition": partition},
            "topology": topology,
            "training": {"rounds": 1, "local_steps": 1, "batch_size": 2, "learning_rate": 0.1},
        }
    )


def held(spec: sf.Spec) -> list[set[int]]:
    """The writers of every device, by the first pixel of its images."""
    inputs = TrainingInputs.of(resolve(spec))
    pixels = read_all(inputs.data.train_features)[:, 0, 0, 0] * 0.5 + 0.5
    part = inputs.partition
    return [set((pixels[part.indices(d)] * 8).round().astype(int).tolist()) for d in range(part.devices)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_folder_as_published_is_read(form: str, tmp_path: Path) -> None:
    source = write_folder(tmp_path, form)
    data = load_dataset(source)
    assert data.train_features.shape == (15, 1, 28, 28)
    assert data.test_features.shape == (6, 1, 28, 28)
    assert data.train_labels.tolist() == [*labels(6), *labels(4), *labels(5)]
    assert data.facts.group_counts == tuple(WRITERS.values())
    assert describe_dataset(source) == data.facts
    written = np.concatenate([images(name, rows) for name, rows in WRITERS.items()])
    assert read_all(data.train_features)[:, 0] * 0.5 + 0.5 == pytest.approx(written, abs=1e-6)
    names = {"leaf": {"train/data_0.json", "train/data_1.json", "test/data_0.json"}}
    assert set(files_of(source)) == names.get(form, {"fed_emnist_train.h5", "fed_emnist_test.h5"})


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_known_by_its_contents(form: str, tmp_path: Path) -> None:
    path = tmp_path / "whatever.JSON"
    write_h5(path) if form == "tff" else write_json(path, leaf())
    data = load_dataset(str(path), Request(test_fraction=0.2))
    assert (len(data.train_labels), len(data.test_labels)) == (12, 3)
    assert data.facts.group_counts is not None
    assert sum(data.facts.group_counts) == 12


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_to_test_on_may_be_named(form: str, tmp_path: Path) -> None:
    train, test = tmp_path / "a.h5", tmp_path / "b.h5"
    for path, writers in ((train, WRITERS), (test, TESTED)):
        write_h5(path, writers) if form == "tff" else write_json(path, leaf(writers))
    data = load_dataset(str(train), Request(test_file=str(test)))
    assert (len(data.train_labels), len(data.test_labels)) == (15, 6)
    assert set(files_of(str(train), str(test))) == {"a.h5", "test_file"}


@pytest.mark.parametrize("form", FORMATS)
def test_a_device_is_a_writer_or_several(form: str, tmp_path: Path) -> None:
    source = write_folder(tmp_path, form)
    one = held(spec_of(source, "natural", {"devices": 3}))
    assert sorted(map(sorted, one)) == [[0], [1], [2]]
    drawn = held(spec_of(source, {"kind": "natural", "groups_per_device": 1}, {"devices": 2}))
    assert [len(writers) for writers in drawn] == [1, 1]
    assert drawn[0] != drawn[1]
    both = held(
        spec_of(source, {"kind": "natural", "min_examples": 5, "groups_per_device": 2}, {"devices": 1})
    )
    assert both == [{0, 2}]  # the other writer has 4 rows


@pytest.mark.parametrize("form", FORMATS)
def test_several_devices_share_a_writer_under_an_edge(form: str, tmp_path: Path) -> None:
    rule = {"kind": "two-level", "edge": "natural", "device": "iid"}
    found = held(spec_of(write_folder(tmp_path, form), rule, {"edges": 3, "devices_per_edge": 2}))
    assert found[::2] == found[1::2]
    assert sorted(map(sorted, found[::2])) == [[0], [1], [2]]


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("form", FORMATS)
def test_it_trains_and_the_account_needs_no_run(form: str, tmp_path: Path) -> None:
    changes = {"noise": {"multiplier": 1.0}, "clip": {"kind": "update", "norm": 1.0}}
    spec = spec_of(write_folder(tmp_path, form), "natural", {"devices": 3})
    spec = sf.load_spec({**spec.model_dump(exclude_unset=True), "privacy": changes})
    run = sf.run(spec, out=tmp_path / "run")
    assert np.isfinite(run.metrics["accuracy"].iloc[-1])
    assert run.privacy.epsilon(0, "public") == sf.account(spec).epsilon(0, "public")


# --- LEAF -------------------------------------------------------------------------------------------


def test_leaf_vectors_and_labels_as_text_are_read(tmp_path: Path) -> None:
    data = {"a": {"x": [[1.5, -2.0]] * 5, "y": ["no", "yes", "no", "yes", "no"]}, "b": {"x": [], "y": []}}
    path = write_json(tmp_path / "all.json", {"users": ["a", "b"], "num_samples": [5, 0], "user_data": data})
    found = load_dataset(str(path), Request(test_fraction=0.2))
    assert found.train_features.shape == (4, 2)
    assert read_all(found.train_features)[0].tolist() == [1.5, -2.0]
    assert found.facts.classes == 2


def changed(**parts: object) -> dict[str, Any]:
    return leaf() | parts


def user(**parts: object) -> dict[str, Any]:
    """The document with a user's ``x`` or ``y`` replaced."""
    document = leaf()
    document["user_data"]["f1"] |= parts
    return document


LEAF_MISTAKES = {
    "no object": ([1, 2], "neither a LEAF file"),
    "something else": ({"name": "x"}, "neither a LEAF file"),
    "no data": ({"users": [], "num_samples": []}, "has no user_data; a LEAF file is"),
    "users": (changed(users=[1, 2, 3]), "users must be a list of names"),
    "twice": (changed(users=["f0", "f0", "f2"]), "users: 'f0' is there twice"),
    "counts": (changed(num_samples=[6]), "num_samples must be a list of 3 numbers"),
    "data": (changed(user_data=[]), "user_data must be an object"),
    "absent": (changed(users=["f0", "f1", "g9"]), "user_data has nothing of user 'g9'"),
    "other": (changed(users=["f0", "f1"], num_samples=[6, 4]), "has a user 'f2' that is not among users"),
    "no rows": ({"users": [], "num_samples": [], "user_data": {}}, "has no rows"),
    "count": (changed(num_samples=[6, 5, 5]), "user 'f1': 4 rows of x, 4 of y, and num_samples says 5"),
    "text": (user(x=["the text", "more", "of", "it"]), "user 'f1': x must be a list of numbers"),
    "ragged": (user(x=[[0.5], [0.5, 0.5], [0.5], [0.5]]), "all of one length"),
    "width": (user(x=[[0.5]] * 4), "rows of 1 and of 784 numbers; all must have as many"),
    "empty": (user(x=[[]] * 4), "user 'f1': x must be a list of numbers for each row"),
    "label": (user(y=[0, 1, 2.5, 3]), "user 'f1': labels must be whole numbers or text"),
    "labels": (user(y=[[0], [1, 2], [3], [4]]), "user 'f1': y must be a list of labels"),
    "kinds": (user(y=["a", "b", "c", "d"]), "labels must be whole numbers of all users, or text of all"),
    "negative": (user(y=[0, 1, 2, -1]), "labels must be 0, 1, 2"),
    "missing": (user(x=[[float("nan")] * 784] * 4), "row 7: the value is missing, NaN"),
    "pixels": (user(x=[[0.5] * 784] * 3 + [[1.5] * 784]), r"row 10: got 1\.5; pixels of images must be"),
}


@pytest.mark.parametrize(("document", "message"), LEAF_MISTAKES.values(), ids=LEAF_MISTAKES)
def test_a_wrong_leaf_file_is_one_clear_line(document: object, message: str, tmp_path: Path) -> None:
    path = write_json(tmp_path / "wrong.json", document)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(str(path))
    assert "\n" not in str(caught.value)


def test_a_leaf_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = write_json(tmp_path / "cut.json", leaf())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"cut\.json: cannot be read as JSON"):
        load_dataset(str(path))


def test_a_user_in_two_leaf_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        write_json(tmp_path / "train" / name, leaf())
    with pytest.raises(DataError, match=r"b\.json: user 'f0' is in a\.json, too"):
        load_dataset(str(tmp_path))


def test_a_share_to_hold_out_beside_files_to_test_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"data\.test_fraction"):
        load_dataset(write_folder(tmp_path, "leaf"), Request(test_fraction=0.1))


def test_columns_of_leaf_files_have_no_names(tmp_path: Path) -> None:
    path = write_json(tmp_path / "all.json", leaf())
    with pytest.raises(SpecError, match=r"data\.label_column"):
        load_dataset(str(path), Request(Columns(label="y")))


# --- HDF5 -------------------------------------------------------------------------------------------


def test_without_h5py_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    path = tmp_path / "train.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(MissingExtraError, match=r"pip install 'sfumato\[hdf5\]'"):
        load_dataset(str(path))


@HDF5
def test_colour_images_in_bytes_and_labels_in_a_column_are_read(tmp_path: Path) -> None:
    import h5py

    pixels = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)
    with h5py.File(tmp_path / "cifar.h5", "w") as file:
        file["examples/0/image"] = pixels
        file["examples/0/label"] = np.arange(5)[:, None] % 2
        file["examples/0/coarse_label"] = np.zeros(5, int)
    request = Request(Columns(label="coarse_label"), test_fraction=0.2)
    for asked, classes in ((request, 1), (Request(test_fraction=0.2), 2)):
        data = load_dataset(str(tmp_path / "cifar.h5"), asked)
        assert data.facts.input_shape == (3, 4, 4)
        assert data.facts.classes == classes
    found = np.concatenate([read_all(data.train_features), read_all(data.test_features)]) * 0.5 + 0.5
    every = pixels.transpose(0, 3, 1, 2) / 255
    order = np.argsort(found[:, 0, 0, 0])
    assert found[order] == pytest.approx(every, abs=1e-6)


@HDF5
def test_large_files_are_read_when_rows_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_folder(tmp_path, "tff")
    whole = load_dataset(source)
    monkeypatch.setattr("sfumato.data.tff.LARGEST_IN_MEMORY", 1)
    taken = load_dataset(source)
    assert in_memory(whole.train_features)
    assert not in_memory(taken.train_features)
    assert np.array_equal(read_all(taken.train_features), whole.train_features)
    assert np.array_equal(read_all(taken.test_features), whole.test_features)


@HDF5
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"pixels": None}, "client 'f1': has no column 'pixels'"),
        ({"label": None}, "client 'f1': has no column 'label'"),
        ({"pixels": np.zeros((4, 14, 14))}, r"rows of shape \(14, 14\) and \(28, 28\)"),
        ({"pixels": np.zeros((3, 28, 28))}, "client 'f1': 3 rows of pixels, but 4 of label"),
        (
            {"pixels": np.zeros(4)},
            r"client 'f1': pixels must be numbers of the shape .* not float64 of \[4\]",
        ),
        ({"pixels": np.full((4, 28, 28), 2.0)}, "row 7: got 2; pixels of images must be numbers from 0 to 1"),
        ({"pixels": np.full((4, 28, 28), np.nan)}, "row 7: the value is missing, NaN"),
        ({"label": np.full(4, 0.5)}, "client 'f1': label: labels must be whole numbers"),
        ({"label": ["a", "b", "c", "d"]}, "labels must be whole numbers of all users, or text of all"),
    ],
)
def test_a_wrong_hdf5_file_is_one_clear_line(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_h5(tmp_path / "wrong.h5", **columns)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(str(path))
    assert "\n" not in str(caught.value)


@HDF5
def test_an_hdf5_file_of_something_else_says_what_it_has(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["model/kernel"] = np.zeros(3)
    with pytest.raises(DataError, match=r"has a group 'examples' .*; this one has model"):
        load_dataset(str(tmp_path / "weights.h5"))
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["examples/f0/scan"] = np.zeros((3, 2))
    with pytest.raises(SpecError, match=r"data\.image_column: clients of .* have scan; name one"):
        load_dataset(str(tmp_path / "weights.h5"))


@HDF5
def test_a_file_that_promises_more_than_fits_is_refused_before_it_is_read(tmp_path: Path) -> None:
    import h5py

    path = write_h5(tmp_path / "large.h5")
    with h5py.File(path, "a") as file:
        file["examples/g0/pixels"] = images("g0", 1)
        file["examples/g0"].create_dataset("label", (10**13,), np.uint8, chunks=(10**6,))
    with pytest.raises(DataError, match=r"client 'g0': label has 10,000,000,000,000 values; at most"):
        load_dataset(str(path))


@HDF5
def test_a_damaged_hdf5_file_is_named(tmp_path: Path) -> None:
    path = write_h5(tmp_path / "cut.h5")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"cut\.h5: cannot be read as an HDF5 file"):
        load_dataset(str(path))


@HDF5
def test_a_folder_of_two_data_sets_is_refused_with_both_names(tmp_path: Path) -> None:
    for name in ("fed_emnist_train.h5", "fed_emnist_digitsonly_train.h5"):
        write_h5(tmp_path / name)
    with pytest.raises(DataError, match=r"not fed_emnist_digitsonly_train\.h5, fed_emnist_train\.h5"):
        load_dataset(str(tmp_path))


@pytest.mark.parametrize("name", ["notes.json", "notes.h5", "notes.HDF5"])
def test_a_file_that_is_neither_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("Plain text.\n")
    with pytest.raises(DataError, match="neither a LEAF file"):
        load_dataset(str(tmp_path / name))

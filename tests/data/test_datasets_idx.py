import gzip
import struct

import numpy as np
import pytest

from sfumato.data import locate as sources
from sfumato.data.dataset_sizes import describe_dataset
from sfumato.data.datasets import load_dataset
from sfumato.errors import DataError

NAMES = {
    "images": "train-images-idx3-ubyte",
    "labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def encode(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("", 30), ("test_", 10)):
        images = rng.integers(0, 256, (count, 4, 5), np.uint8)
        labels = (np.arange(count) % 3).astype(np.uint8)
        (tmp_path / (NAMES[f"{part}images"] + ".gz")).write_bytes(gzip.compress(encode(images)))
        (tmp_path / NAMES[f"{part}labels"]).write_bytes(encode(labels))
    return tmp_path


def test_plain_and_gzipped_files_are_read(folder):
    data = load_dataset(str(folder))
    assert data.train_features.shape == (30, 1, 4, 5)
    assert data.facts.class_counts == (10, 10, 10)
    assert data.train_features.min() >= -1
    assert data.train_features.max() <= 1
    assert describe_dataset(str(folder)) == data.facts


def test_a_plain_file_beside_its_own_gz_is_one_file(folder):
    gz = folder / (NAMES["images"] + ".gz")
    (folder / NAMES["images"]).write_bytes(gzip.decompress(gz.read_bytes()))
    assert load_dataset(str(folder)).facts.train_examples == 30


def damage_magic(raw):
    return b"\x00\x00\x0d\x03" + raw[4:]


def damage_size(raw):
    return raw[:4] + b"\xff" * 12 + raw[16:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-1], "promises"),
        (lambda raw: raw + b"\x00", "promises"),
        (lambda raw: raw[:10], "not an IDX file"),
        (lambda raw: b"", "not an IDX file"),
        (damage_magic, "not an IDX file"),
        (damage_size, "promises"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_malformed_images(folder, damage, message, zipped):
    path = folder / (NAMES["images"] + ".gz")
    raw = damage(gzip.decompress(path.read_bytes()))
    path.unlink()
    path = path if zipped else folder / NAMES["images"]
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    with pytest.raises(DataError, match=message) as caught:
        load_dataset(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"not gzip at all"])
def test_damaged_gzip(folder, damage):
    path = folder / (NAMES["images"] + ".gz")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="cannot be read"):
        load_dataset(str(folder))


def test_damaged_gzip_is_an_error_for_account_too(folder):
    (folder / (NAMES["images"] + ".gz")).write_bytes(b"not gzip at all")
    with pytest.raises(DataError, match="cannot be read"):
        describe_dataset(str(folder))


@pytest.mark.parametrize("missing", ["labels", "test_images", "test_labels"])
def test_missing_files(folder, missing):
    for path in folder.glob(NAMES[missing] + "*"):
        path.unlink()
    with pytest.raises(DataError, match="no IDX file"):
        load_dataset(str(folder))


def test_images_and_labels_must_match(folder):
    (folder / NAMES["labels"]).write_bytes(encode(np.zeros(29, np.uint8)))
    with pytest.raises(DataError, match="30 images but 29 labels"):
        load_dataset(str(folder))


def test_several_sets_in_one_folder_are_ambiguous(folder):
    (folder / f"emnist-{NAMES['images']}").write_bytes(b"")
    with pytest.raises(DataError, match="several"):
        load_dataset(str(folder))


def test_a_built_in_set_is_sought_in_the_environment_first_and_must_have_its_size(folder, monkeypatch):
    monkeypatch.setattr(sources, "SYSTEM_FOLDER", folder / "nowhere")
    folder.rename(folder.parent / "mnist")
    monkeypatch.setenv("SFUMATO_DATA", str(folder.parent))
    with pytest.raises(DataError, match="this copy has train_examples 30, the published set 60000"):
        load_dataset("mnist")

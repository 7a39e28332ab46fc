import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import Mock

import numpy as np
import pytest
from needs import NEEDS

from sfumato.data import hub
from sfumato.data import locate as sources
from sfumato.data.dataset_sizes import describe_dataset
from sfumato.data.datasets import load_dataset
from sfumato.data.locate import Columns, Request
from sfumato.errors import DataError, MissingExtraError, SpecError

if NEEDS["hub"].is_here():
    import datasets

pytestmark = pytest.mark.needs("hub")

NAMES = ["cat", "dog", "fox"]


def images(count, channels=1, seed=0):
    shape = (count, 6, 5) if channels == 1 else (count, 6, 5, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def image_split(count, channels=1, seed=0, **more):
    pixels = images(count, channels, seed)
    features = {"picture": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)}
    columns = {"picture": list(pixels), "kind": [i % 3 for i in range(count)]}
    for name, values in more.items():
        features[name] = datasets.Value("string" if isinstance(values[0], str) else "int64")
        columns[name] = values
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def vector_split(count, seed=0):
    rng = np.random.default_rng(seed)
    return datasets.Dataset.from_dict(
        {
            "signal": rng.standard_normal((count, 7)).tolist(),
            "label": [NAMES[i % 3] for i in range(count)],
            "site": [i // 10 for i in range(count)],
        }
    )


def save(split_or_splits, path):
    split_or_splits.save_to_disk(str(path))
    return str(path)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_with_a_test_split(tmp_path, channels):
    splits = datasets.DatasetDict(train=image_split(30, channels), test=image_split(12, channels, seed=1))
    source = save(splits, tmp_path / "pets")
    data = load_dataset(source)
    assert data.train_features.shape == (30, channels, 6, 5)
    expected = images(30, channels).reshape(30, 6, 5, channels).transpose(0, 3, 1, 2) / 255
    np.testing.assert_allclose(data.train_features, (expected - 0.5) / 0.5, atol=1e-6)
    np.testing.assert_array_equal(data.test_labels, np.arange(12) % 3)
    assert data.facts.class_counts == (10, 10, 10)
    assert describe_dataset(source) == data.facts


def test_without_a_test_split_a_tenth_is_held_out(tmp_path):
    source = save(image_split(100, writer=[f"w{i // 7}" for i in range(100)]), tmp_path / "pets")
    data = load_dataset(source, Request(columns=Columns(group="writer")))
    assert (data.facts.train_examples, data.facts.test_examples) == (90, 10)
    again = load_dataset(source, Request(columns=Columns(group="writer"), seed=5))
    np.testing.assert_array_equal(data.test_features, again.test_features)
    # Every row is on one side, and on one only.
    both = np.concatenate([data.train_features, data.test_features]).reshape(100, -1)
    assert len(np.unique(both, axis=0)) == 100
    assert data.train_groups is not None
    assert len(data.train_groups) == 90
    assert data.facts.group_counts == tuple(np.bincount(data.train_groups))
    assert describe_dataset(source, Request(columns=Columns(group="writer"))) == data.facts
    assert load_dataset(source, Request(test_fraction=0.25)).facts.test_examples == 25


def test_vectors_are_taken_as_they_are_and_string_labels_numbered(tmp_path):
    rows = vector_split(50)
    source = save(datasets.DatasetDict(train=rows, validation=vector_split(9, seed=1)), tmp_path / "signals")
    data = load_dataset(source, Request(columns=Columns(group="site")))
    np.testing.assert_allclose(data.train_features, np.array(rows["signal"]), rtol=1e-6)
    np.testing.assert_array_equal(data.train_labels, np.arange(50) % 3)
    assert data.facts.input_shape == (7,)
    assert data.facts.test_examples == 9
    assert data.facts.group_counts == (10,) * 5


def test_columns_can_be_named(tmp_path):
    rows = image_split(30, other=[i % 2 for i in range(30)])
    source = save(rows, tmp_path / "pets")
    assert load_dataset(source, Request(columns=Columns(label="other"))).facts.classes == 2
    for option, place in (("label", "data.label_column"), ("image", "data.image_column")):
        with pytest.raises(SpecError, match="one of picture, kind, other") as caught:
            load_dataset(source, Request(columns=Columns(**{option: "absent"})))
        assert caught.value.place == place
    with pytest.raises(SpecError, match="images or of lists of numbers"):
        load_dataset(source, Request(columns=Columns(image="other")))


def test_ambiguous_and_absent_columns(tmp_path):
    two = save(
        image_split(20).add_column("more", [[1.0, 2.0]] * 20).rename_column("kind", "a"), tmp_path / "a"
    )
    assert load_dataset(two).facts.input_shape == (1, 6, 5)
    none = datasets.Dataset.from_dict({"x": [1.0] * 20, "y": [0] * 20})
    with pytest.raises(SpecError, match="no column of images or lists of numbers found; name one of x, y"):
        load_dataset(save(none, tmp_path / "b"))
    several = datasets.Dataset.from_dict({"u": [[1.0]] * 20, "v": [[1.0]] * 20, "label": [0, 1] * 10})
    with pytest.raises(SpecError, match="several columns"):
        load_dataset(save(several, tmp_path / "c"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [[1.0, 2.0]] * 19 + [[1.0]], "label": [0, 1] * 10}, "different lengths"),
        ({"x": [[1.0, 2.0]] * 19 + [[float("nan"), 1.0]], "label": [0, 1] * 10}, "not finite"),
        ({"x": [[1.0, 2.0]] * 20, "label": [0, 1] * 9 + [0, None]}, "no value"),
        ({"x": [[1.0, 2.0]] * 20, "label": [0, -1] * 10}, "negative"),
        ({"x": [[1.0, 2.0]] * 20, "label": [0.5, 1.5] * 10}, "integers or strings"),
        ({"x": [[1.0, 2.0]] * 20, "label": [7, 10**12] * 10}, "not a class number"),
    ],
)
def test_unusable_values(tmp_path, columns, message):
    source = save(datasets.Dataset.from_dict(columns), tmp_path / "bad")
    with pytest.raises(DataError, match=message):
        load_dataset(source)


def test_images_of_different_sizes(tmp_path):
    rows = datasets.Dataset.from_dict(
        {"image": [*images(19), np.zeros((3, 3), np.uint8)], "label": [0, 1] * 10},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    with pytest.raises(DataError, match="cannot be stacked"):
        load_dataset(save(rows, tmp_path / "bad"))


def test_images_of_an_odd_mode(tmp_path):
    rows = datasets.Dataset.from_dict(
        {"image": [np.zeros((3, 3), np.int32)] * 20, "label": [0, 1] * 10},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")}),
    )
    with pytest.raises(DataError, match="images of mode I"):
        load_dataset(save(rows, tmp_path / "bad"))


def test_a_saved_set_without_training_rows(tmp_path):
    with pytest.raises(DataError, match="split named 'train'"):
        load_dataset(save(datasets.DatasetDict(test=image_split(5)), tmp_path / "bad"))


def test_a_damaged_saved_set(tmp_path):
    source = save(image_split(20), tmp_path / "bad")
    (tmp_path / "bad" / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read as a saved data set"):
        load_dataset(source)


@pytest.fixture
def no_local_copies(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.delenv("SFUMATO_DATA", raising=False)
    return tmp_path


class Absent(BaseHTTPRequestHandler):
    """A Hub that has nothing, and remembers which data sets it was asked for."""

    def do_GET(self):
        # huggingface_hub also asks for a list of agents, once a day
        if self.path.startswith("/api/datasets/"):
            self.server.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *what):
        pass


@pytest.fixture
def without_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def answering_hub(monkeypatch, without_proxies):
    """Which data sets a Hub on this machine was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Absent) as server:
        server.asked = []
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("listens", [True, False])
def test_a_hub_that_does_not_answer_is_asked_once(no_local_copies, without_proxies, monkeypatch, listens):
    asked = []

    def loaded(hub_id):
        asked.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("not in the cache")

    monkeypatch.setattr(datasets, "load_dataset", loaded)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_PATIENCE_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        with pytest.raises(DataError, match=r"someone/something: .*nor in the Hugging Face Hub \(.+\)$"):
            load_dataset("someone/something")
    assert asked == [True]


def test_what_an_answer_of_the_hub_means_is_left_to_loading(no_local_copies, answering_hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=RuntimeError("no such data set")))
    with pytest.raises(DataError, match="no such data set"):
        load_dataset("someone/something")
    assert answering_hub == ["/api/datasets/someone/something"]


@pytest.mark.usefixtures("answering_hub")
def test_a_built_in_set_from_the_hub(no_local_copies, monkeypatch):
    asked = []

    def fake(hub_id):
        asked.append((hub_id, datasets.config.HF_HUB_OFFLINE))
        if datasets.config.HF_HUB_OFFLINE:
            raise ConnectionError("not in the cache")
        return datasets.DatasetDict(
            train=image_split(60).rename_columns({"picture": "image", "kind": "label"}),
            test=image_split(6).rename_columns({"picture": "image", "kind": "label"}),
        )

    monkeypatch.setattr(datasets, "load_dataset", fake)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    with pytest.raises(DataError, match="this copy has train_examples 60"):
        load_dataset("mnist")
    assert asked == [("ylecun/mnist", True), ("ylecun/mnist", False)]
    assert not datasets.config.HF_HUB_OFFLINE


@pytest.mark.usefixtures("answering_hub")
def test_absent_data_says_in_one_line_what_was_tried(no_local_copies, monkeypatch):
    def fail(hub_id):
        raise ConnectionError("Couldn't reach the Hub\nat all")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(DataError) as caught:
        load_dataset("mnist")
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "ylecun/mnist",
        str(no_local_copies / "system" / "mnist"),
        "SFUMATO_DATA is not set",
        "Hugging Face",
    ):
        assert part in message


def test_accounting_never_downloads(no_local_copies, monkeypatch):
    def only_offline(hub_id):
        assert datasets.config.HF_HUB_OFFLINE
        raise ConnectionError("not in the cache")

    monkeypatch.setattr(datasets, "load_dataset", only_offline)
    with pytest.raises(DataError, match="accounting never downloads"):
        describe_dataset("someone/something")
    with pytest.raises(DataError, match="accounting never downloads"):
        describe_dataset("femnist", Request(columns=Columns(group="writer_id")))
    assert describe_dataset("femnist").train_examples == 732_849


@pytest.mark.parametrize("library", ["datasets.config", "huggingface_hub.constants"])
def test_a_user_who_is_offline_is_told_so_after_one_look_into_the_cache(
    no_local_copies, monkeypatch, library
):
    asked = []

    def absent(hub_id):
        asked.append(hub_id)
        raise ConnectionError("not in the cache")

    monkeypatch.setattr(datasets, "load_dataset", absent)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(f"{library}.HF_HUB_OFFLINE", True)
    with pytest.raises(
        DataError, match=r"nor in the local cache of Hugging Face .*HF_HUB_OFFLINE or .* is set"
    ):
        load_dataset("someone/something")
    assert asked == ["someone/something"]


def test_without_the_extra_the_error_names_the_command(no_local_copies, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'sfumato\[hub\]'"):
        load_dataset("cifar10")

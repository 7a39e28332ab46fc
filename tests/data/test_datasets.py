import subprocess
import sys

import numpy as np
import pytest

from sfumato.data.builtin_datasets import BUILT_IN, held_out_count, tabulated_facts
from sfumato.data.dataset_sizes import describe_dataset
from sfumato.data.datasets import load_dataset
from sfumato.data.locate import SYSTEM_FOLDER, Columns, Request
from sfumato.data.synthetic import CLASSES, FEATURES, TEST_EXAMPLES
from sfumato.errors import DataError, SpecError


def test_the_catalogue_agrees_with_itself():
    for name, built_in in BUILT_IN.items():
        facts = built_in.facts
        assert facts.name == name
        assert len(built_in.mean) == len(built_in.std) == facts.input_shape[0]
        if facts.class_counts is not None:
            assert len(facts.class_counts) == facts.classes
            assert sum(facts.class_counts) == facts.train_examples


def test_published_sizes():
    sizes = {name: (b.facts.train_examples, b.facts.test_examples) for name, b in BUILT_IN.items()}
    assert sizes["fashion-mnist"] == sizes["mnist"] == (60_000, 10_000)
    assert sizes["cifar10"] == sizes["cifar100"] == (50_000, 10_000)
    assert sizes["emnist"] == (240_000, 40_000)
    assert sizes["emnist-digits"] == (341_873, 40_832)
    assert sum(sizes["femnist"]) == 814_277


def test_digits_are_standardised_and_split_in_every_class():
    data = load_dataset("digits")
    assert data.facts == BUILT_IN["digits"].facts == describe_dataset("digits")
    assert data.train_features.shape == (1_437, 1, 8, 8)
    assert data.test_features.shape == (360, 1, 8, 8)
    assert data.train_features.dtype == np.float32
    assert data.train_labels.dtype == np.int64
    assert data.train_features.mean() == pytest.approx(0, abs=0.01)
    assert data.train_features.std() == pytest.approx(1, abs=0.01)
    per_class = np.bincount(data.test_labels)
    assert per_class.min() >= 35
    assert per_class.max() <= 37
    assert data.train_groups is None


def test_digits_are_the_same_every_time():
    first, second = load_dataset("digits", Request(seed=1)), load_dataset("digits", Request(seed=2))
    np.testing.assert_array_equal(first.test_features, second.test_features)


@pytest.mark.needs("fashion-mnist")
def test_real_fashion_mnist(monkeypatch):
    monkeypatch.delenv("SFUMATO_DATA", raising=False)
    folder = SYSTEM_FOLDER / "fashion-mnist"
    data = load_dataset("fashion-mnist")
    assert data.facts == BUILT_IN["fashion-mnist"].facts
    assert data.train_features.shape == (60_000, 1, 28, 28)
    assert data.test_features.shape == (10_000, 1, 28, 28)
    assert data.train_features.mean() == pytest.approx(0, abs=1e-3)
    assert data.train_features.std() == pytest.approx(1, abs=1e-3)
    np.testing.assert_array_equal(np.bincount(data.test_labels), [1_000] * 10)
    assert data.train_labels[:5].tolist() == [9, 0, 0, 3, 0]
    # The folder itself is a source too: same pixels, scaled by the constants of an unknown set.
    same = load_dataset(str(folder))
    np.testing.assert_allclose(same.test_features * 0.5 + 0.5, data.test_features * 0.353 + 0.286, atol=1e-6)
    assert describe_dataset(str(folder)) == same.facts


def test_synthetic_clusters_are_separable_and_seeded():
    data = load_dataset("synthetic", Request(examples=5_003, seed=7))
    assert data.facts == describe_dataset("synthetic", Request(examples=5_003))
    assert data.train_features.shape == (5_003, FEATURES)
    assert data.train_features.dtype == np.float32
    assert len(data.test_labels) == TEST_EXAMPLES
    assert tuple(np.bincount(data.train_labels)) == data.facts.class_counts
    centres = np.stack([data.train_features[data.train_labels == c].mean(axis=0) for c in range(CLASSES)])
    distances = np.linalg.norm(data.test_features[:, None] - centres, axis=2)
    assert (distances.argmin(axis=1) == data.test_labels).mean() > 0.9
    again = load_dataset("synthetic", Request(examples=5_003, seed=7))
    np.testing.assert_array_equal(again.train_features, data.train_features)
    other = load_dataset("synthetic", Request(examples=5_003, seed=8))
    assert not np.array_equal(other.train_features, data.train_features)


def test_the_held_out_share_of_femnist_can_be_chosen():
    assert tabulated_facts("femnist").test_examples == held_out_count(814_277, 0.1) == 81_428
    facts = tabulated_facts("femnist", test_fraction=0.2)
    assert (facts.train_examples, facts.test_examples) == (651_422, 162_855)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 2.0, 1e-9, float("nan"), float("inf")])
def test_a_share_must_leave_rows_on_both_sides(fraction):
    with pytest.raises(SpecError, match=r"data\.test_fraction"):
        held_out_count(100, fraction)


@pytest.mark.parametrize(
    ("source", "options", "place"),
    [
        ("fashion-mnits", {}, "data.source"),
        ("synthetic", {}, "data.examples_per_device"),
        ("synthetic", {"examples": 0}, "data.examples_per_device"),
        ("digits", {"examples": 10}, "data.examples_per_device"),
        ("digits", {"columns": Columns(label="y")}, "data.label_column"),
        ("digits", {"test_fraction": 0.2}, "data.test_fraction"),
        ("mnist", {"test_fraction": 0.2}, "data.test_fraction"),
    ],
)
def test_wrong_options_are_refused(source, options, place):
    with pytest.raises(SpecError) as caught:
        describe_dataset(source, Request(**options))
    assert caught.value.place == place


def test_a_folder_that_is_no_data_set(tmp_path):
    with pytest.raises(DataError, match="neither IDX files nor"):
        load_dataset(str(tmp_path))
    with pytest.raises(DataError, match="no such folder"):
        load_dataset(str(tmp_path / "absent" / "too"))


def test_describing_imports_neither_torch_nor_a_data_library():
    code = (
        "import sys; from sfumato.data.dataset_sizes import describe_dataset as d;"
        "from sfumato.data.locate import Request;"
        "from sfumato.data import partition;"
        "[d(name) for name in ('digits', 'fashion-mnist', 'femnist', 'cifar10')];"
        "d('synthetic', Request(examples=10**7));"
        "print([m for m in ('torch', 'datasets', 'sklearn', 'flwr_datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_looking_for_identifiers_in_tables_imports_no_other_reader():
    code = (
        "import sys, sfumato.data.repeats;"
        "others = ('arrays', 'given', 'image_folder', 'leaf', 'tff');"
        "print([name for name in others if f'sfumato.data.{name}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

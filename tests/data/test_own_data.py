"""Data of one's own: CSV, Parquet, .npz and folders of images; their sites; what is wrong with them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sfumato as sf
from sfumato.data.datasets import load_dataset
from sfumato.errors import DataError, SpecError
from sfumato.schedule.resolve import resolve
from sfumato.simulation.training_inputs import TrainingInputs

SITES = {"charite": 50, "bonn": 30, "ulm": 40}
TREE = {"kind": "tree", "sites": [{"name": name, "devices": 2} for name in ("ulm", "charite", "bonn")]}
COLUMNS = {"label_column": "outcome", "site_column": "hospital"}


def patients(sites: dict[str, int] = SITES) -> pd.DataFrame:
    """Rows in random order; the marker says which site a row is of."""
    rng = np.random.default_rng(1)
    hospital = rng.permutation(np.repeat(list(sites), list(sites.values())))
    marker = np.array([list(sites).index(name) for name in hospital], dtype=float)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 90, len(hospital)),
            "marker": marker,
            "note": ["text"] * len(hospital),
            "outcome": rng.integers(0, 2, len(hospital)),
            "hospital": hospital,
        }
    )


def spec_of(data: dict, topology: dict = TREE, **changes) -> sf.Spec:
    document = {
        "name": "own",
        "protocol": "hfl" if topology["kind"] == "tree" else "dp-fedavg",
        "data": data,
        "topology": topology,
        "training": {"rounds": 1, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    }
    return sf.load_spec(document | changes)


@pytest.fixture(params=["csv", "parquet"])
def table(request, tmp_path) -> Path:
    return save(patients(), tmp_path / f"patients.{request.param}")


def save(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return path


def test_rows_go_to_the_edge_of_their_site(table):
    inputs = TrainingInputs.of(resolve(spec_of({"source": str(table), **COLUMNS})))
    frame, names = patients(), list(SITES)
    markers = inputs.data.train_features[:, 1]
    for edge, site in enumerate(("ulm", "charite", "bonn")):
        for device in (2 * edge, 2 * edge + 1):
            held = inputs.partition.indices(device)
            assert len(held)
            assert set(markers[held]) == {names.index(site)}
    assert inputs.partition.sizes.sum() == len(inputs.data.train_labels) == 108
    assert len(np.unique(inputs.partition.rows)) == 108
    assert inputs.data.facts.input_shape == (2,)  # text is no feature
    assert inputs.data.train_features[:, 0].max() <= frame["age"].max()  # as they are


def test_sizes_are_known_without_reading_features_and_are_those_of_the_run(table, monkeypatch):
    data = {"source": str(table), **COLUMNS}
    training = {"rounds": 1, "local_steps": 2, "batch_size": 4, "batches": "poisson", "learning_rate": 0.1}
    privacy = {"unit": "record", "clip": {"kind": "update", "norm": 1}, "noise": {"multiplier": 2.0}}
    spec = spec_of(data, protocol="h2fdp", training=training, privacy=privacy)
    monkeypatch.setattr("sfumato.data.tables._read_numbers", lambda *_: pytest.fail("features were read"))
    plan = resolve(spec)
    monkeypatch.undo()
    sizes = TrainingInputs.of(resolve(spec)).partition.sizes
    np.testing.assert_allclose(plan.releases.batches.rates, 4 / sizes)


def test_a_rewritten_file_is_counted_anew(tmp_path):
    path = save(patients(), tmp_path / "patients.csv")
    data = {"source": str(path), **COLUMNS}
    resolve(spec_of(data))
    save(patients(SITES | {"kiel": 9}), path)
    with pytest.raises(SpecError, match="no edge is called kiel"):
        resolve(spec_of(data))


def test_every_device_of_a_star_is_a_site(table):
    spec = spec_of({"source": str(table), **COLUMNS}, {"kind": "star", "devices": 3})
    plan = resolve(spec)
    assert "every device is a site: device 0 is bonn, device 1 is charite, device 2 is ulm" in plan.notes
    inputs = TrainingInputs.of(plan)
    for device, site in enumerate(sorted(SITES)):
        marks = inputs.data.train_features[inputs.partition.indices(device), 1]
        assert set(marks) == {list(SITES).index(site)}
    with pytest.raises(
        SpecError, match=r"the data have 3 sites .bonn, charite, ulm., the topology 4 devices"
    ):
        resolve(spec_of({"source": str(table), **COLUMNS}, {"kind": "star", "devices": 4}))


def test_sites_that_do_not_match_are_listed_on_both_sides(tmp_path):
    path = save(patients({"charité": 9, "bonn": 9, "ulm": 9}), tmp_path / "patients.csv")
    with pytest.raises(SpecError) as caught:
        resolve(spec_of({"source": str(path), **COLUMNS}))
    said = str(caught.value)
    assert caught.value.place == "data.site_column"
    assert "the sites of the data are bonn, charité, ulm" in said
    assert "the edges of the topology are ulm, charite, bonn" in said
    assert "no edge is called charité (did you mean 'charite'?)" in said
    assert "no row has the site charite" in said


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"topology": TREE | {"zones": "random"}}, "topology.zones"),
        ({"protocol": "pedpfl"}, "data.site_column"),
    ],
)
def test_nothing_else_says_who_is_where(table, changes, place):
    data = {"source": str(table), **COLUMNS}
    with pytest.raises(SpecError, match=place):
        resolve(spec_of(data, **changes))
    data["partition"] = {"edge": "iid", "device": "iid"}
    with pytest.raises(SpecError, match=r"data\.partition"):
        resolve(spec_of(data))


def test_a_site_with_test_rows_only_is_refused(tmp_path):
    frame = patients().assign(test=lambda frame: frame["hospital"] == "ulm")
    path = save(frame, tmp_path / "patients.csv")
    with pytest.raises(SpecError, match="'ulm'; is a site without rows to train on"):
        resolve(spec_of({"source": str(path), "test_column": "test", **COLUMNS}))


def test_test_sets(tmp_path):
    frame = patients().assign(part=["test"] * 20 + ["train"] * 100)
    path = save(frame, tmp_path / "patients.csv")
    data = {"source": str(path), "label_column": "outcome", "feature_columns": ["age"]}
    loaded = inputs_of(data | {"test_column": "part", "scale": {"age": [0, 200]}})
    np.testing.assert_array_equal(loaded.test_features[:, 0], (frame["age"][:20] / 200).astype(np.float32))
    save(frame[:30], tmp_path / "more.csv")
    loaded = inputs_of(data | {"test_file": str(tmp_path / "more.csv")})
    assert (len(loaded.train_labels), len(loaded.test_labels)) == (120, 30)
    assert len(inputs_of(data | {"test_fraction": 0.25}).test_labels) == 30
    with pytest.raises(SpecError, match="test_file"):
        spec_of(data | {"test_fraction": 0.2, "test_file": "more.csv"})
    save(frame[:30].assign(outcome=5), tmp_path / "more.csv")
    with pytest.raises(DataError, match=r"row 1, to be tested on, has the label 5; .* are 0, 1"):
        inputs_of(data | {"test_file": str(tmp_path / "more.csv")})


def inputs_of(data: dict):
    return TrainingInputs.of(resolve(spec_of(data))).data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"label_column": "outcom"}, r"data\.label_column: got 'outcom'.*did you mean 'outcome'"),
        ({}, r"data\.label_column: is required"),
        ({"feature_columns": ["age", "note"]}, r"data\.feature_columns: got 'note'.* a column of numbers"),
        ({"feature_columns": ["agee"]}, r"data\.feature_columns: got 'agee'.*did you mean 'age'"),
        ({"site_column": "clinic"}, r"data\.site_column: got 'clinic'.*no such column"),
        ({"scale": {"bmi": [0, 1]}}, r"data\.scale: got 'bmi'.* the features are age, marker"),
        ({"scale": {"age": [1, 0]}}, r"data\.scale\.age: .*lower number first"),
        ({"image_column": "age"}, r"data\.image_column"),
    ],
)
def test_columns_that_are_wrong(table, data, said):
    named = {"label_column": "outcome"} if data else {}
    with pytest.raises(SpecError, match=said):
        resolve(spec_of({"source": str(table), **named, **data}))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("age", np.nan, "row 8, column 'age': the value is missing"),
        ("age", np.inf, "row 8, column 'age': the value is missing"),
        ("age", 1e300, "row 8, column 'age': the value is missing"),
        ("outcome", None, "row 8, column 'outcome': every row needs a label"),
        ("hospital", None, "row 8, column 'hospital': every row needs a site"),
    ],
)
def test_values_that_are_missing(tmp_path, column, value, said):
    frame = patients().astype({"age": float, "outcome": "Int64"})
    frame.loc[7, column] = value
    for suffix in ("csv", "parquet"):
        path = save(frame, tmp_path / f"patients.{suffix}")
        with pytest.raises(DataError, match=said):
            TrainingInputs.of(resolve(spec_of({"source": str(path), **COLUMNS})))


def test_text_among_numbers_is_shown_with_its_row(tmp_path):
    lines = patients().to_csv(index=False).splitlines()
    long = lines + lines[1:] * 800  # the types of columns are those of the first megabyte
    long[-2] = long[-2].replace(long[-2].split(",")[0], "old", 1)
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(long), "utf-8")
    with pytest.raises(DataError, match=rf"row {len(long) - 2:,}, column 'age': got 'old'"):
        load_of(path)


def load_of(path: Path):
    spec = spec_of({"source": str(path), **COLUMNS})
    return TrainingInputs.of(resolve(spec))


@pytest.mark.parametrize("name", ["bad.csv", "bad.parquet", "bad.npz"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff\x01", b"PK\x03\x04 cut"])
def test_damaged_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, SpecError), match=rf"{name}|label_column"):
        load_dataset(str(tmp_path / name))


def test_missing_files_and_names_say_what_is_near(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(patients(), tmp_path / "patients.csv")
    with pytest.raises(DataError, match=r"patient\.csv: no such file.*did you mean 'patients\.csv'"):
        resolve(spec_of({"source": "patient.csv"}))
    with pytest.raises(SpecError, match=r"one of cifar10, .*did you mean 'fashion-mnist'"):
        resolve(spec_of({"source": "fashion-mnits"}))


@pytest.mark.usefixtures("no_report")
def test_a_file_is_found_beside_the_spec_and_hashed(tmp_path, monkeypatch):
    save(patients(), tmp_path / "patients.csv")
    text = sf.dump_spec(spec_of({"source": "patients.csv", **COLUMNS}))
    (tmp_path / "own.yaml").write_text(text, "utf-8")
    run = sf.run(sf.load_spec(tmp_path / "own.yaml"), out=tmp_path / "out")
    kept = sf.load_spec(tmp_path / "out" / "spec.yaml")
    assert "data.source/patients.csv" in kept.hashes
    assert run.model is not None
    save(patients().assign(age=1), tmp_path / "patients.csv")
    longer = kept.model_copy(
        update={"training": kept.training.model_copy(update={"rounds": kept.training.rounds + 1})}
    )
    with pytest.raises(DataError, match=r"data\.source/patients\.csv: has SHA-256"):
        sf.run(longer, out=tmp_path / "out", resume=True)


def test_npz(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels, sites = rng.integers(0, 3, 60), np.repeat(["ulm", "bonn", "charite"], 20)
    path = tmp_path / "scans.npz"
    np.savez(
        path, features=images, labels=labels, sites=sites, test_features=images[:9], test_labels=labels[:9]
    )
    inputs = TrainingInputs.of(resolve(spec_of({"source": str(path)})))
    assert inputs.data.train_features.shape == (60, 1, 8, 8)
    np.testing.assert_allclose(inputs.data.train_features[:, 0], (images / 255 - 0.5) / 0.5, atol=1e-6)
    np.testing.assert_array_equal(
        np.sort(inputs.partition.indices(0).tolist() + inputs.partition.indices(1).tolist()), np.arange(20)
    )
    np.savez(path, features=images, labels=labels[:5])
    with pytest.raises(DataError, match="60 rows of features, but labels of shape"):
        load_dataset(str(path))
    np.savez(path, x=images, labels=labels)
    with pytest.raises(SpecError, match=r"data\.image_column: got 'features'.*it has x, labels"):
        load_dataset(str(path))
    np.savez(path, features=np.array([object()]), labels=labels)
    with pytest.raises(DataError, match="features holds Python objects"):
        load_dataset(str(path))


@pytest.mark.needs("hub")
def test_image_folders(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(20):
        folder = tmp_path / "scans" / ("healthy", "ill")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (6, 5, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    data = load_dataset(str(tmp_path / "scans"))
    assert data.train_features.shape == (18, 3, 6, 5)
    assert data.facts.class_counts is not None
    assert sum(data.facts.class_counts) == 18
    assert data.train_features.min() >= -1
    Image.new("L", (5, 6)).save(tmp_path / "scans" / "ill" / "odd.png")
    with pytest.raises(
        DataError, match=r"odd\.png: is 5 x 6 in grey; all images must have .* 5 x 6 in colour"
    ):
        load_dataset(str(tmp_path / "scans"))
    (tmp_path / "scans" / "ill" / "odd.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"odd\.png: cannot be read as an image"):
        load_dataset(str(tmp_path / "scans"))


def test_a_csv_file_with_semicolons_is_read_where_the_spec_says_so(tmp_path):
    frame = patients().astype({"marker": float})
    frame["marker"] += 0.5
    plain, german = save(frame, tmp_path / "plain.csv"), tmp_path / "german.csv"
    frame.to_csv(german, index=False, sep=";", decimal=",")
    with pytest.raises(SpecError, match=r"data\.separator: got ','; .*semicolons.*data\.separator: ';'"):
        resolve(spec_of({"source": str(german), **COLUMNS}))
    chosen = {"feature_columns": ["age", "marker"], **COLUMNS}
    with pytest.raises(
        SpecError, match=r"'\d,5' in column 'marker' has a decimal comma: write data\.decimal"
    ):
        resolve(spec_of({"source": str(german), **chosen, "separator": ";"}))
    written = {"source": str(german), "separator": ";", "decimal": ","}
    found = inputs_of(written | chosen)
    assert np.array_equal(found.train_features, inputs_of({"source": str(plain), **chosen}).train_features)


def test_a_text_in_a_column_of_numbers_is_named(tmp_path):
    frame = patients().astype({"marker": object})
    frame.loc[3, "marker"] = "n.a."
    chosen = {"feature_columns": ["age", "marker"], **COLUMNS}
    with pytest.raises(
        SpecError, match=r"'marker'; must be .* as row 4 has 'n\.a\.': leave such rows out of the file"
    ):
        resolve(spec_of({"source": str(save(frame, tmp_path / "patients.csv")), **chosen}))


@pytest.mark.parametrize("key", ["separator", "decimal"])
def test_how_a_csv_file_is_written_goes_with_csv_only(tmp_path, key):
    path = save(patients(), tmp_path / "patients.parquet")
    beside = {} if key == "separator" else {"separator": ";"}
    with pytest.raises(SpecError, match=r"goes with a file that ends in \.csv"):
        resolve(spec_of({"source": str(path), **COLUMNS, **beside, key: {"separator": ";"}.get(key, ",")}))


def test_one_comma_cannot_part_columns_and_decimals(tmp_path):
    with pytest.raises(SpecError, match=r"data\.separator: must be ';' or tab with decimal: ','"):
        spec_of({"source": str(save(patients(), tmp_path / "patients.csv")), **COLUMNS, "decimal": ","})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_may_be_written_as_decimals(tmp_path, suffix):
    whole, frame = patients(), patients().astype({"outcome": float})
    one = inputs_of({"source": str(save(whole, tmp_path / f"a.{suffix}")), **COLUMNS})
    two = inputs_of({"source": str(save(frame, tmp_path / f"b.{suffix}")), **COLUMNS})
    assert np.array_equal(one.train_labels, two.train_labels)
    frame.loc[7, "outcome"] = 0.5
    path = save(frame, tmp_path / f"c.{suffix}")
    with pytest.raises(SpecError, match=r"row 8 has 0\.5; a number to predict needs data\.task: regression"):
        resolve(spec_of({"source": str(path), **COLUMNS}))

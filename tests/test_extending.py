"""Every file of examples/extending adds what it says, without a change to the package."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import sfumato as sf
from sfumato.errors import DataError, SpecError
from sfumato.families import GROUPS as FAMILY
from sfumato.protocols.groups.base import ROUND_FUNCTIONS
from sfumato.schedule.resolve import resolve
from sfumato.spec.document import KIND_OF

FOLDER = Path(__file__).parent.parent / "examples" / "extending"
SMALL = ("training.rounds=2", "topology.devices_per_edge=2")
MULTIPLIER = "privacy.noise={multiplier: 1.0}"
GROUPS = {
    "name": "groups",
    "protocol": "dp-ogl",
    "data": {"source": "digits"},
    "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [2, 3, 4]]},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 8, "learning_rate": 0.1, "merge_every": 2},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}


@pytest.fixture(autouse=True)
def from_the_folder(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in [path.stem for path in FOLDER.glob("*.py")]:
        sys.modules.pop(name, None)
    for table in (KIND_OF, ROUND_FUNCTIONS, FAMILY.protocols):
        table.pop("shrunk-dp-ogl", None)


def plain() -> sf.Spec:
    return sf.load_spec("quickstart", (*SMALL, MULTIPLIER))


def noised(name: str, *changes: str, law: str = "other") -> sf.Spec:
    mechanism = f"privacy.mechanism={{kind: 'laplace_noise:{name}', law: {law}}}"
    return sf.load_spec("quickstart", (*SMALL, MULTIPLIER, mechanism, *changes))


def test_laplace_noise_is_charged_as_none_with_the_reason(tmp_path):
    gaussian = {(row.unit, row.observer): row.epsilon for row in sf.account(plain()).guarantees}
    assert any(0 < value < math.inf for value in gaussian.values())
    rows = sf.account(noised("Laplace")).guarantees
    for row in rows:
        if gaussian[row.unit, row.observer] > 0:
            assert row.epsilon == math.inf
            assert all(bound.epsilon == math.inf for bound in row.bounds.values())
    assert any("Laplace noise is charged as none" in row.why for row in rows)
    done = sf.run(noised("Laplace"), out=tmp_path / "run")
    columns = [name for name in done.metrics.columns if name.startswith("epsilon:")]
    assert columns
    assert np.isinf(done.metrics[columns].iloc[-1]).all()


def test_groups_too_are_charged_with_no_noise():
    privacy = GROUPS["privacy"] | {"mechanism": "laplace_noise:Laplace"}
    rows = sf.account(sf.load_spec(GROUPS | {"privacy": privacy})).guarantees
    assert math.inf in {row.epsilon for row in rows}
    assert {row.epsilon for row in rows} <= {0.0, math.inf}


@pytest.mark.usefixtures("no_report")
def test_gaussian_noise_of_another_sampler_has_the_same_epsilon_and_other_bytes(tmp_path):
    specs = (noised("NumpyGaussian", law="gaussian"), plain())
    ours, theirs = (sf.account(spec).to_dict()["guarantees"] for spec in specs)
    assert ours == theirs
    one, other = (sf.run(spec, out=tmp_path / str(k)).model.state_dict() for k, spec in enumerate(specs))
    assert any(not torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", ["Laplace", "NumpyGaussian"])
def test_the_samplers_have_the_standard_deviation_asked_for(name):
    mechanism = getattr(importlib.import_module("laplace_noise"), name)()
    rows, again = torch.zeros(2, 40_000), torch.zeros(2, 40_000)
    for each in (rows, again):
        mechanism.add_(each, np.array([0.0, 3.0]), lambda row: bytes([row]) * 32)
    assert not rows[0].any()
    assert 0.97 * 3 < float(rows[1].std()) < 1.03 * 3
    assert torch.equal(rows, again)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        (("privacy.noise={epsilon: 4, for: cloud}",), "privacy.noise"),
        (("transport.devices_to_edge=secure-aggregation",), "privacy.mechanism"),
    ],
)
def test_what_does_not_go_with_a_mechanism_of_ones_own_is_refused(changes, place):
    with pytest.raises(SpecError) as refusal:
        resolve(noised("Laplace", *changes))
    assert refusal.value.place == place


@pytest.mark.parametrize(
    ("name", "law", "place"),
    [
        ("sqrt", "other", "privacy.mechanism"),
        ("Nothing", "other", "privacy.mechanism"),
        ("Laplace", "gaussian", "privacy.mechanism.law"),
    ],
)
def test_a_mechanism_that_is_not_what_the_spec_says_is_refused_before_training(name, law, place, tmp_path):
    with pytest.raises(SpecError) as refusal:
        sf.run(noised(name, law=law), out=tmp_path / "run")
    assert refusal.value.place == place


def test_accounting_runs_no_code_that_a_spec_names():
    spec = noised("NumpyGaussian", "data.source=csv_digits:read", law="gaussian")
    assert sf.account(spec).guarantees
    capped = noised("Laplace", "data.source=csv_digits:read", "training.weights={kind: capped, examples: 20}")
    with pytest.raises(DataError, match="accounting runs no code"):
        sf.account(capped)
    assert not {"laplace_noise", "csv_digits"} & set(sys.modules)


@pytest.mark.usefixtures("no_report")
def test_a_run_stops_where_the_source_of_its_mechanism_has_changed(tmp_path, monkeypatch):
    source = (FOLDER / "laplace_noise.py").read_text("utf-8")
    (tmp_path / "changing_noise.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = sf.load_spec("quickstart", (*SMALL, MULTIPLIER, "privacy.mechanism=changing_noise:Laplace"))
    sf.run(spec, out=tmp_path / "run")
    (tmp_path / "changing_noise.py").write_text(source + "\n", "utf-8")
    with pytest.raises(DataError, match=r"privacy\.mechanism: has SHA-256"):
        sf.run(sf.load_spec(tmp_path / "run" / "spec.yaml"), out=tmp_path / "again")


@pytest.mark.usefixtures("no_report")
def test_a_csv_file_is_read(tmp_path, monkeypatch):
    bunch = load_digits()
    table = np.column_stack([bunch.data, bunch.target])[:400]
    for name, rows in (("some", table), ("other", table[::-1])):
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="pixels, label", fmt="%g")
    monkeypatch.setenv("SFUMATO_CSV", str(tmp_path / "some.csv"))
    changes = (*SMALL, "data={source: 'csv_digits:read'}", "model={kind: softmax}")
    done = sf.run(sf.load_spec("quickstart", changes), out=tmp_path / "run")
    assert len(done.metrics) == 2
    assert sum(tensor.numel() for tensor in done.model.state_dict().values()) == 650
    monkeypatch.setenv("SFUMATO_CSV", str(tmp_path / "other.csv"))
    with pytest.raises(DataError, match="was started"):
        sf.run(sf.load_spec(tmp_path / "run" / "spec.yaml"), out=tmp_path / "again")


READER = """
import numpy as np
from sfumato.data.dataset import dataset_of

def read():
    features, labels = np.eye(60, 64, dtype=np.float32), np.arange(60) % 10
    return dataset_of("mine", features, labels, features[:20], labels[:20])
"""


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(
    "written", ["reader:read", "reader.py:read", "./reader.py:read", "{folder}/reader.py:read"]
)
def test_a_data_reader_is_found_beside_the_spec(written, tmp_path, monkeypatch):
    beside, elsewhere = tmp_path / "spec", tmp_path / "elsewhere"
    beside.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (beside / "reader.py").write_text(READER, "utf-8")
    source = written.format(folder=beside)
    changes = (*SMALL, f"data={{source: '{source}'}}", "model={kind: softmax}")
    (beside / "own.yaml").write_text(sf.dump_spec(sf.load_spec("quickstart", changes)), "utf-8")
    spec = sf.load_spec(beside / "own.yaml")
    assert sf.account(spec).guarantees
    assert len(sf.run(spec, out=tmp_path / "run").metrics) == 2
    again = sf.load_spec(tmp_path / "run" / "spec.yaml")
    assert again.data.source == f"{beside / 'reader.py'}:read"


def test_a_data_reader_that_is_nowhere_is_named(tmp_path):
    spec = sf.load_spec("quickstart", (*SMALL, f"data={{source: '{tmp_path}/reader.py:read'}}"))
    with pytest.raises(SpecError, match=r"data\.source: got '.*; cannot be imported: FileNotFound"):
        sf.run(spec, out=tmp_path / "run")


@pytest.mark.usefixtures("no_report")
def test_a_mechanism_is_found_beside_the_spec(tmp_path):
    (tmp_path / "noise.py").write_text((FOLDER / "laplace_noise.py").read_text("utf-8"), "utf-8")
    spec = sf.load_spec("quickstart", (*SMALL, MULTIPLIER, "privacy.mechanism=noise.py:Laplace"))
    (tmp_path / "own.yaml").write_text(sf.dump_spec(spec), "utf-8")
    found = sf.load_spec(tmp_path / "own.yaml")
    assert found.privacy.mechanism.kind == f"{tmp_path / 'noise.py'}:Laplace"
    sf.run(found, out=tmp_path / "run")
    assert "privacy.mechanism" in sf.load_spec(tmp_path / "run" / "spec.yaml").hashes


@pytest.mark.usefixtures("no_report")
def test_an_lstm_trains_device_by_device(tmp_path, caplog):
    done = sf.run(sf.load_spec("quickstart", (*SMALL, "model={kind: 'row_lstm:make'}")), out=tmp_path / "run")
    assert any("one after another" in record.getMessage() for record in caplog.records)
    assert np.isfinite(done.metrics["loss"]).all()


@pytest.mark.usefixtures("no_report")
def test_a_variant_of_a_grouped_protocol(tmp_path):
    with pytest.raises(SpecError, match="protocol"):
        sf.load_spec(GROUPS | {"protocol": "shrunk-dp-ogl"})
    importlib.import_module("shrunk_dp_ogl")
    specs = (sf.load_spec(GROUPS | {"protocol": "shrunk-dp-ogl"}), sf.load_spec(GROUPS))
    ours, theirs = (sf.account(spec).to_dict()["guarantees"] for spec in specs)
    assert ours == theirs
    runs = [sf.run(spec, out=tmp_path / str(k)) for k, spec in enumerate(specs)]
    # noise of this size drowns the updates: models that are shrunk stay nearer to where they began
    sizes = [sum(float(t.square().sum()) for t in one.model.state_dict().values()) for one in runs]
    assert sizes[0] < 0.5 * sizes[1]
    assert sf.load_spec(tmp_path / "0" / "spec.yaml").protocol == "shrunk-dp-ogl"


def test_the_name_of_a_protocol_is_not_taken_over():
    variant = importlib.import_module("shrunk_dp_ogl")
    for name in ("dp-ogl", "ms-fedavg"):
        with pytest.raises(SpecError, match="is taken"):
            variant.register_grouped(name, variant.run_round, releases_of="dp-ogl")

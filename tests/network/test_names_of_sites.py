"""The name of a site stands for ``level:number`` wherever a party is named, and is what people read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app_of
from sfumato.errors import SpecError
from sfumato.network.tree import from_spec
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.schedule.rows.observers import parse_coalition
from sfumato.spec.load import load_spec

ACCOUNT = app_of(["account"])

SPEC = """
name: named
protocol: h2fdp
data: {source: synthetic, examples_per_device: 8}
model: {kind: softmax}
topology:
  level_names: [region, edge]
  sites:
    - name: north
      sites: [{name: charite, devices: 3}, {devices: 2}]
    - name: south
      sites: [{name: oslo, devices: 4}]
training: {rounds: 2, local_steps: 4, aggregate_every: [4, 2], batch_size: 4, learning_rate: 0.1}
privacy: {clip: {kind: update, norm: 1.0}, noise: {multiplier: 2.0}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "named.yaml"
    path.write_text(SPEC)
    return path


def test_names_and_numbers_are_one_party(spec: Path) -> None:
    tree = from_spec(load_spec(spec).topology)
    for name, number in (("north", "region:0"), ("charite", "edge:0"), ("oslo", "edge:2")):
        assert tree.find_node(name, place="x") == tree.find_node(number, place="x")
    assert parse_coalition("oslo,edge:1", tree) == parse_coalition("edge:2,edge:1", tree)


@pytest.mark.parametrize("name", ["olso", "Oslo", "edge:3", "edge:oslo", ""])
def test_a_name_of_nobody_lists_the_names(spec: Path, name: str) -> None:
    tree = from_spec(load_spec(spec).topology)
    with pytest.raises(SpecError) as found:
        tree.find_node(name, place="watch")
    assert "edge:0" in found.value.allowed
    if not name.startswith("edge"):
        assert "north, south, charite, oslo" in found.value.allowed


def test_names_are_found_in_trust_watch_and_observers(spec: Path) -> None:
    named = load_spec(spec, ["trust.trusted=[charite]", "watch=[cloud,oslo]"])
    numbered = load_spec(spec, ["trust.trusted=['edge:0']", "watch=[cloud,'edge:2']"])
    assert sf.account(named).to_dict() == sf.account(numbered).to_dict()
    report = sf.account(named)
    assert report.epsilon(0, "oslo") == report.epsilon(0, "edge:2") > 0
    assert report.epsilon(0, "charite") == float("inf")


STAR = {
    "name": "hospitals",
    "protocol": "dp-fedavg",
    "data": {"source": "synthetic", "examples_per_device": 8},
    "topology": {"kind": "star", "devices": 3, "device_names": ["charite", "bonn", "ulm"]},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {
        "clip": {"kind": "update", "norm": 1.0},
        "noise": {"multiplier": 2.0},
    },
}


def test_devices_of_a_star_have_names(tmp_path: Path) -> None:
    report = sf.account(load_spec(STAR))
    assert report.epsilon("bonn", "cloud") == report.epsilon(1, "cloud") > 0
    assert report.epsilon("bonn", "charite,cloud") == report.epsilon(1, "device:0,cloud") > 0
    said = CliRunner().invoke(ACCOUNT, ["account", _written(tmp_path, STAR)], env={"COLUMNS": "160"}).output
    assert "charite" in said
    assert "device:" not in said
    run = sf.run(load_spec(STAR), out=tmp_path / "run")
    labels = labels_for(read_network(load_spec(tmp_path / "run" / "spec.yaml").model_dump(mode="json")))
    assert labels.row("device:0").title == "charite, bonn and ulm"
    assert labels.column("device:0", "device:2,cloud").title == "coalition ulm + cloud"
    assert "charite, bonn and ulm" in run.report().read_text()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b"], "must be 3, one for each device"),
        (["a", "b", "a"], "one party only"),
        (["a", "b", "cloud"], "kind of party"),
        (["a", "b", 7], "must not be a number"),
    ],
)
def test_names_of_devices_that_could_be_mistaken_are_refused(names: list[object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_spec(STAR | {"topology": STAR["topology"] | {"device_names": names}})


def test_a_device_of_nobody_lists_the_names() -> None:
    with pytest.raises(SpecError, match=r"there are cloud, charite, bonn, ulm \(did you mean 'bonn'\?\)"):
        sf.account(load_spec(STAR), unit=0, observer="Bonn")
    for unit in ("Bonn", "record:Bonn"):
        with pytest.raises(SpecError, match=r"named are charite, bonn, ulm \(did you mean 'bonn'\?\)"):
            sf.account(load_spec(STAR), unit=unit)


def test_a_device_is_not_taken_for_an_aggregator() -> None:
    with pytest.raises(SpecError, match="'bonn'; is a device; there is no aggregator of this name"):
        sf.account(load_spec(STAR | {"trust": {"trusted": ["bonn"]}}))


def test_rows_of_a_site_go_to_the_device_of_its_name(tmp_path: Path) -> None:
    rows = [f"{site},{n},{n % 2}" for site in ("ulm", "bonn", "charite") for n in range(8)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,x,y", *rows]))
    data = {
        "source": str(tmp_path / "rows.csv"),
        "site_column": "site",
        "label_column": "y",
        "test_fraction": 0.2,
    }
    plan = sf.account(load_spec(STAR | {"data": data})).plan
    assert not any("every device is a site" in note for note in plan.notes)
    other = STAR | {
        "data": data,
        "topology": STAR["topology"] | {"device_names": ["charite", "bonn", "kiel"]},
    }
    with pytest.raises(
        SpecError, match="no device is called ulm; no row has the site kiel; name the devices in"
    ):
        sf.account(load_spec(other))


def _written(folder: Path, document: dict[str, object]) -> str:
    path = folder / "spec.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_text_is_titled_name_by_name(spec: Path) -> None:
    tree = from_spec(load_spec(spec).topology)
    assert tree.titled("edge:0,edge:1,region:1") == "charite,edge:1,south"
    assert (
        tree.titled("the average of edge:0, then edge:2/devices")
        == "the average of charite, then oslo/devices"
    )
    for kept in ("own-edge:0", "edge:22", "edge:01", "device:0 towards cloud", "12:30"):
        assert tree.titled(kept) == kept


def test_people_read_names_and_programs_numbers(spec: Path) -> None:
    text = CliRunner().invoke(ACCOUNT, ["account", str(spec), "--set", "trust.trusted=[charite]"]).output
    assert "charite is trusted with raw updates of device:0" in text
    assert "oslo" in text
    assert "edge:2" not in text
    raw = CliRunner().invoke(ACCOUNT, ["account", str(spec), "--json"]).output
    assert "edge:2" in {row["observer"] for row in json.loads(raw)["guarantees"]}


def test_reports_name_the_sites(spec: Path) -> None:
    resolved = sf.account(load_spec(spec)).plan.spec.model_dump(mode="json", by_alias=True)
    labels = labels_for(read_network(resolved))
    assert labels.row("device:8").title == "4 devices under oslo"
    assert labels.column("device:8", "edge:0,region:0").title == "coalition charite + north"


@pytest.mark.parametrize("key", ["trusted_edges", "trusted_aggregators"])
def test_a_name_among_numbers_is_told_where_names_go(spec: Path, key: str) -> None:
    with pytest.raises(SpecError) as found:
        load_spec(spec, [f"trust.{key}=[0, charite]"])
    assert found.value.place.endswith(f"trust.{key}[1]")
    assert "named in trust.trusted" in found.value.allowed

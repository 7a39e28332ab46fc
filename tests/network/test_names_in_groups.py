"""Names of groups and workers stand for ``master:M`` and ``device:N``, and are what people read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato.cli import app_of
from sfumato.errors import SpecError
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.results.network import read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.spec.load import load_spec

ACCOUNT = app_of(["account"])

WORKERS = ["charite", "bonn", "ulm", "kiel", "jena"]
SPEC: dict[str, Any] = {
    "name": "hospitals",
    "protocol": "dp-ogl",
    "data": {"source": "synthetic", "examples_per_device": 8},
    "model": {"kind": "softmax"},
    "topology": {
        "kind": "groups",
        "structure": "list",
        "groups": [[0, 1, 2], [2, 3, 4]],
        "group_names": ["north", "south"],
        "worker_names": WORKERS,
    },
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 2.0}},
}


def changed(**topology: Any) -> dict[str, Any]:
    return SPEC | {"topology": SPEC["topology"] | topology}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "hospitals.json"
    path.write_text(json.dumps(SPEC))
    return path


def test_names_and_numbers_are_one_party() -> None:
    named = sf.account(load_spec(SPEC | {"trust": {"trusted": ["north"]}}))
    numbered = sf.account(load_spec(SPEC | {"trust": {"trusted": ["master:0"]}}))
    assert named.to_dict() == numbered.to_dict()
    assert named.epsilon("charite", "south") == named.epsilon(0, "master:1") < float("inf")
    assert named.epsilon("charite", "kiel,south") == named.epsilon(0, "device:3,master:1")
    record = SPEC | {"privacy": SPEC["privacy"] | {"unit": "record"}}
    both = sf.account(load_spec(record), unit="record:bonn", observer="jena").guarantees
    assert (both[0].unit, both[0].observer) == ("record:1", "device:4")


def test_names_change_nothing_but_words() -> None:
    bare = {key: value for key, value in SPEC["topology"].items() if not key.endswith("_names")}
    named, numbered = sf.account(load_spec(SPEC)), sf.account(load_spec(SPEC | {"topology": bare}))
    for row, same in zip(named.guarantees, numbered.guarantees, strict=True):
        assert (row.unit, row.observer, row.epsilon) == (same.unit, same.observer, same.epsilon)


def test_people_read_names_and_programs_numbers(spec: Path) -> None:
    text = CliRunner().invoke(ACCOUNT, ["account", str(spec)], env={"COLUMNS": "160"}).output
    assert "north is trusted with raw updates of charite" in text
    assert "device:" not in text
    assert "master:" not in text
    raw = json.loads(CliRunner().invoke(ACCOUNT, ["account", str(spec), "--json"]).output)
    assert {row["unit"] for row in raw["guarantees"]} <= {f"device:{n}" for n in range(5)}
    one = CliRunner().invoke(ACCOUNT, ["account", str(spec), "--unit", "ulm", "--observer", "jena"]).output
    assert "ulm" in one
    assert "jena" in one


def test_reports_and_pictures_have_the_names(tmp_path: Path) -> None:
    run = sf.run(load_spec(SPEC), out=tmp_path / "run")
    network = read_network(load_spec(tmp_path / "run" / "spec.yaml").model_dump(mode="json", by_alias=True))
    labels = labels_for(network)
    assert labels.row("device:0").title == "charite, bonn, kiel and jena"
    assert labels.row("device:2").title == "ulm"
    assert labels.column("device:0", "device:3,master:1").title == "coalition kiel + south"
    drawn = topology_figure(network)
    assert drawn is not None
    assert "north" in json.dumps(drawn.data)
    page = run.report().read_text()
    assert "charite" in page
    assert "south" in page


@pytest.mark.parametrize(
    ("topology", "place", "said"),
    [
        ({"worker_names": WORKERS[:4]}, "topology.worker_names", "must be 5, one for each worker"),
        ({"group_names": ["a", "b", "c"]}, "topology.group_names", "must be 2, one for each group"),
        ({"worker_names": [*WORKERS[:4], "bonn"]}, "topology.worker_names[4]", "one party only"),
        ({"group_names": ["bonn", "south"]}, "topology.worker_names[1]", "one party only"),
        ({"group_names": ["peer", "south"]}, "topology.group_names[0]", "kind of party"),
        ({"worker_names": [*WORKERS[:4], "a:b"]}, "topology.worker_names[4]", "colon"),
        ({"worker_names": [*WORKERS[:4], 3]}, "topology.worker_names[4]", "must not be a number"),
    ],
)
def test_names_that_could_be_mistaken_are_refused(topology: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        sf.account(load_spec(changed(**topology)))
    assert place in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["boon", "Bonn", "north:0", "device:7"])
def test_a_name_of_nobody_lists_the_names(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        sf.account(load_spec(SPEC), unit="ulm", observer=name)
    if not name.startswith("device"):
        assert "named are north, south, charite, bonn" in str(caught.value)
    assert ("did you mean 'bonn'" in str(caught.value)) == (name in ("boon", "Bonn"))


def test_a_worker_is_not_taken_for_a_master() -> None:
    with pytest.raises(SpecError, match="'bonn'; is a worker; must be master:0 to master:1"):
        sf.account(load_spec(SPEC | {"trust": {"trusted": ["bonn"]}}))


def test_nodes_of_a_graph_name_their_groups() -> None:
    graph = nx.Graph([("north", "south"), ("south", "east")])
    bare = {"kind": "groups", "structure": "ring", "groups": 3, "devices": 8}
    report = sf.account(load_spec(SPEC | {"topology": bare}), graph=graph)
    assert report.plan.parties.group_names == ("north", "south", "east")
    assert report.epsilon(0, "east") == report.epsilon(0, "master:2")
    numbered = sf.account(load_spec(SPEC | {"topology": bare}), graph=nx.path_graph(3))
    assert numbered.plan.parties.group_names == ()


def sites(tmp_path: Path, names: list[str]) -> dict[str, Any]:
    rows = [{"site": name, "x": float(n), "y": n % 2} for name in names for n in range(6)]
    pd.DataFrame(rows).to_csv(tmp_path / "patients.csv", index=False)
    data = {
        "source": str(tmp_path / "patients.csv"),
        "site_column": "site",
        "label_column": "y",
        "test_fraction": 0.2,
    }
    return SPEC | {"data": data}


def test_rows_go_to_the_worker_of_their_name(tmp_path: Path) -> None:
    run = sf.run(load_spec(sites(tmp_path, WORKERS[::-1])), out=tmp_path / "run")
    assert not any("every device is a site" in note for note in run.privacy.notes)
    wrong = sites(tmp_path, [*WORKERS[:4], "Jena"])
    with pytest.raises(SpecError) as caught:
        sf.account(load_spec(wrong))
    for said in ("no worker is called Jena", "did you mean 'jena'", "no row has the site jena"):
        assert said in str(caught.value)


def test_a_run_keeps_the_names_and_resumes_with_them(tmp_path: Path) -> None:
    sf.run(load_spec(SPEC), out=tmp_path / "run")
    kept = load_spec(tmp_path / "run" / "spec.yaml")
    assert kept.topology.worker_names == tuple(WORKERS)
    assert sf.account(kept).to_dict() == sf.account(load_spec(SPEC)).to_dict()


def test_names_of_a_graph_are_used_where_a_party_may_have_them(tmp_path: Path) -> None:
    path = tmp_path / "ring.txt"
    path.write_text("north south\nsouth east\neast north\n")
    of_file = {"kind": "groups", "structure": "graph", "file": str(path), "devices": 6}
    named = SPEC | {"topology": of_file}
    assert sf.account(load_spec(named)).plan.parties.group_names == ("north", "south", "east")
    twice = SPEC | {"topology": of_file | {"group_names": ["a", "b", "c"]}}
    with pytest.raises(SpecError, match="must be left out: the nodes of the graph name the groups"):
        sf.account(load_spec(twice))
    taken = SPEC | {"topology": of_file | {"worker_names": ["a", "b", "c", "d", "e", "south"]}}
    with pytest.raises(SpecError, match="must not be the name of a group"):
        sf.account(load_spec(taken))
    places = nx.grid_2d_graph(2, 2)  # called (0, 1) and so on
    assert sf.account(load_spec(named), graph=places).plan.parties.group_names == ()


def test_reasons_call_groups_by_their_names() -> None:
    groups = sf.account(load_spec(SPEC)).plan.parties
    said = groups.titled("19 of group 0, 1 group away; record:2 and device:3,master:1 of group 7")
    assert said == "19 of group north, 1 group away; record:ulm and kiel,south of group 7"

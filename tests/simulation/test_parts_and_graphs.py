"""Partial training, graphs given in Python, a callback for rounds, and models beside the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.learning.models import build_model
from sfumato.learning.parameters import ParameterLayout
from sfumato.learning.partial_training import LowRankAdapter
from sfumato.run_folder.reader import load_run
from sfumato.spec.load import load_spec

SMALL = ["training.rounds=2", "topology={edges: 2, devices_per_edge: 3}", "training.local_steps=10"]


def built(trained: str, rank: int = 2) -> nn.Module:
    return build_model("mlp", shape=(1, 8, 8), classes=10, seed=1, hidden=[6, 5], trained=trained, rank=rank)


def test_a_head_is_the_last_layer() -> None:
    layout = ParameterLayout.of(built("head"))
    assert layout.total == 5 * 10 + 10
    whole = dict(built("all").named_parameters())
    for name, parameter in built("head").named_parameters():
        assert torch.equal(parameter, whole[name])


def test_adapters_begin_as_the_frozen_model() -> None:
    model, plain = built("adapters"), built("all")
    adapters = [module for module in model.modules() if isinstance(module, LowRankAdapter)]
    assert len(adapters) == 2
    assert ParameterLayout.of(model).total == 2 * (64 + 6) + 2 * (6 + 5) + 5 * 10 + 10
    x = torch.randn(4, 1, 8, 8)
    assert torch.equal(model(x), plain(x))
    with torch.no_grad():
        adapters[0].up.fill_(1.0)
    first = adapters[0].frozen(x.flatten(1)) + (x.flatten(1) @ adapters[0].down.mT).sum(1, keepdim=True)
    assert torch.allclose(adapters[0](x.flatten(1)), first, atol=1e-5)


def test_what_cannot_be_trained_in_part_is_refused() -> None:
    with pytest.raises(SpecError, match="no linear layer is before the last one"):
        build_model("softmax", shape=(4,), classes=2, seed=1, trained="adapters")
    with pytest.raises(SpecError, match="goes with trained: adapters"):
        load_spec("quickstart", ["model.rank=3"])


@pytest.mark.parametrize(
    ("part", "parameters"), [("adapters, rank: 2", 2 * (64 + 6) + 6 * 10 + 10), ("head", 6 * 10 + 10)]
)
def test_of_a_model_given_in_python_that_part_is_trained_and_sent(
    part: str, parameters: int, tmp_path: Path
) -> None:
    given = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 10))
    spec = load_spec("quickstart", [*SMALL, f"model={{trained: {part}}}"])
    run = sf.run(spec, model=given, out=tmp_path / "run", progress=False)
    assert sum(each.numel() for each in run.model.parameters() if each.requires_grad) == parameters
    assert run.metrics["bytes_up"].tolist() == [(6 + 2) * 4 * parameters] * 2  # of six devices and two edges


@pytest.mark.parametrize("trained", ["head", "adapters"])
def test_the_frozen_part_stays_and_is_not_sent(trained: str, tmp_path: Path) -> None:
    spec = load_spec("quickstart", [*SMALL, f"model={{kind: mlp, hidden: 6, trained: {trained}}}"])
    run = sf.run(spec, out=tmp_path / "run")
    start = build_model("mlp", shape=(1, 8, 8), classes=10, seed=0, hidden=6, trained=trained)
    before = dict(start.named_parameters())
    sent = ParameterLayout.of(start).total
    for name, parameter in run.model.named_parameters():
        assert torch.equal(parameter, before[name]) == (not parameter.requires_grad), name
    whole = sf.run(load_spec("quickstart", [*SMALL, "model={kind: mlp, hidden: 6}"]), out=tmp_path / "whole")
    m = 64 * 6 + 6 + 6 * 10 + 10
    ratio = run.metrics["bytes_up"].sum() / whole.metrics["bytes_up"].sum()
    assert ratio == pytest.approx(sent / m, rel=1e-6)
    resumed = sf.run(spec, out=tmp_path / "run", resume=True)
    assert len(resumed.metrics) == 2


def tree(**attributes: Any) -> nx.DiGraph:
    devices = [(site, f"{site}-{number}") for site, many in (("a", 2), ("b", 3)) for number in range(many)]
    return nx.DiGraph([("cloud", "a"), ("cloud", "b"), *devices], **attributes)


@pytest.mark.parametrize("graph", [tree(), tree().to_undirected()])
def test_a_tree_of_networkx_is_the_topology(graph: Any, tmp_path: Path) -> None:
    spec = load_spec("quickstart", [*SMALL, "trust={trusted: []}"])
    run = sf.run(spec, graph=graph, out=tmp_path / "run")
    written = load_run(run.folder.path)
    sites = load_spec(written.path / "spec.yaml").topology.sites
    assert [(site.name, site.devices) for site in sites] == [("a", 2), ("b", 3)]
    told = {g.observer for g in sf.account(spec, graph=graph, unit="device:0").guarantees}
    assert any("a" in name or name == "edge:0" for name in told)


def test_a_deeper_tree_keeps_its_levels() -> None:
    graph = nx.DiGraph([("cloud", "r"), ("r", "a"), ("r", "b"), ("a", 1), ("a", 2), ("b", 3)])
    graph.graph["level_names"] = ["region", "ward"]
    spec = load_spec(
        "quickstart",
        [
            "trust={}",
            "training.edge_every=null",
            "training.aggregate_every=[10, 5]",
            "topology={levels: [2, 2, 2], level_names: [region, ward]}",
        ],
    )
    report = sf.account(spec, graph=graph)
    assert [tier.name for tier in report.plan.tree.tiers] == ["cloud", "region", "ward"]
    assert report.plan.tree.devices.tolist() == [2, 1]


def test_groups_of_networkx_are_those_of_a_graph_file(tmp_path: Path) -> None:
    graph = nx.Graph([(f"device:{d}", f"master:{m}") for d, m in [(0, 0), (1, 0), (1, 1), (2, 1), (3, 1)]])
    training = {"rounds": 2, "local_steps": 2, "batch_size": 4, "learning_rate": 0.1}
    document = {
        "name": "g", "protocol": "dp-ogl", "data": {"source": "digits"}, "training": training,
        "topology": {"kind": "groups", "structure": "list", "groups": [[0, 1], [1, 2]]},
        "trust": {"trusted_aggregators": 1.0},
        "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
    }  # fmt: skip
    report = sf.account(load_spec(document), graph=graph)
    assert report.plan.groups.as_lists() == ((0, 1), (1, 2, 3))


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ([(0, 1)], "must be a networkx.Graph"),
        (nx.cycle_graph(4), "must be a tree"),
        (nx.path_graph(4), "a node called cloud"),
        (
            nx.DiGraph([("cloud", "a"), ("a", 1), ("cloud", "b"), ("b", "c"), ("c", 2)]),
            "as far from the cloud",
        ),
        (nx.DiGraph([("cloud", "a")]), "at least one aggregator between"),
        (nx.DiGraph([("cloud", "a"), ("b", "a")]), "one root"),
    ],
)
def test_graphs_that_are_no_tree_are_refused(graph: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        sf.account(load_spec("quickstart"), graph=graph)


def test_a_star_has_no_graph() -> None:
    with pytest.raises(SpecError, match="a star has nothing to draw"):
        sf.account(load_spec("dp-fedavg"), graph=tree())


@pytest.mark.usefixtures("no_report")
def test_every_round_is_told_and_an_error_ends_the_run(tmp_path: Path) -> None:
    spec, told = load_spec("quickstart", SMALL), []
    sf.run(spec, out=tmp_path / "run", on_round=lambda done: told.append((done.round, done.rounds)))
    assert told == [(1, 2), (2, 2)]

    def stop(done: Any) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        sf.run(spec, out=tmp_path / "stopped", on_round=stop)
    resumed = sf.run(spec, out=tmp_path / "stopped", resume=True)
    assert resumed.metrics["round"].tolist() == [1, 2]


@pytest.mark.usefixtures("no_report")
def test_a_model_beside_the_spec_is_found_and_its_errors_are_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "net.py").write_text(
        "import torch\n\n\ndef make(classes):\n    return torch.nn.Sequential(torch.nn.Flatten(), "
        "torch.nn.Linear(64, classes))\n\n\ndef broken():\n    raise KeyError('width')\n"
    )
    (folder / "mine.yaml").write_text(sf.dump_spec(load_spec("quickstart", SMALL)))
    for kind in ("net:make", "net.py:make"):
        spec = load_spec(folder / "mine.yaml", [f"model={kind}"])
        assert spec.model.kind == f"{folder / 'net.py'}:make"
    run = sf.run(spec, out=tmp_path / "run")
    assert len(run.metrics) == 2
    assert load_spec(run.folder.path / "spec.yaml").hashes["model.kind"]
    with pytest.raises(SpecError, match=r"KeyError: 'width' \(.*net\.py, line 9, in broken\)"):
        sf.run(load_spec(folder / "mine.yaml", ["model=net:broken"]), out=tmp_path / "broken")


def test_files_that_set_names_are_found_beside_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "rows.csv").write_text("a,label\n" + "".join(f"{n},{n % 2}\n" for n in range(40)))
    (folder / "mine.yaml").write_text(sf.dump_spec(load_spec("quickstart", SMALL)))
    changes = ["data={source: rows.csv, label_column: label}", "data.partition=iid"]
    assert load_spec(folder / "mine.yaml", changes).data.source == str(folder / "rows.csv")

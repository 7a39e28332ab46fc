"""Who learns what: classes of units, kinds of observers, the matrix, the headline."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_factory import guarantee, metrics, quickstart_privacy, quickstart_spec

from sfumato.privacy.guarantee import Guarantee
from sfumato.report.results.dp_ogl_plus import protocol_warnings
from sfumato.report.results.matrix import MOST, build_matrix
from sfumato.report.results.network import GroupNetwork, read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.report.results.protection_words import protection_paragraphs
from sfumato.report.results.series import load_series
from sfumato.report.results.summary import matrix_of, score_sentence
from sfumato.run_folder.recorded_privacy import RecordedPrivacy

Make = Callable[..., Path]
RING: dict[str, Any] = {"kind": "groups", "structure": "ring", "groups": 4, "devices": 100}
DEEP: dict[str, Any] = {"kind": "tree", "levels": [2, 3, 4], "level_names": ["region", "cabinet"]}


def spec_with(topology: dict[str, Any], sources: dict[str, list[float]], **trust: Any) -> dict[str, Any]:
    listed = [{"owners": [owner], "multipliers": values} for owner, values in sources.items()]
    noise = {"kind": "sources", "sources": listed} if listed else {"kind": "none"}
    return quickstart_spec(topology=topology, trust=trust, privacy={"delta": 1e-5, "noise": noise})


@pytest.mark.parametrize(
    ("unit", "observer", "title"),
    [
        ("device:0", "cloud", "cloud"),
        ("device:0", "public", "public"),
        ("device:0", "device:39", "peers (same edge)"),
        ("device:0", "device:40", "devices elsewhere"),
        ("device:40", "edge:1", "own edge"),
        ("device:40", "edge:0", "edges elsewhere"),
        ("device:40", "cloud,edge:0", "coalition cloud + edge:0"),
        ("device:40", "edge:77", "edges"),
        ("device:40", "eavesdropper", "eavesdropper"),
    ],
)
def test_observers_of_a_tree(unit: str, observer: str, title: str) -> None:
    assert labels_for(read_network(quickstart_spec())).column(unit, observer).title == title


@pytest.mark.parametrize(
    ("observer", "title"),
    [
        ("device:1", "peers (same cabinet)"),
        ("cabinet:0", "own cabinet"),
        ("region:0", "own region"),
        ("device:4", "devices elsewhere in the region"),
        ("cabinet:2", "cabinets elsewhere in the region"),
        ("device:12", "devices elsewhere"),
        ("cabinet:3", "cabinets elsewhere"),
        ("region:1", "regions elsewhere"),
    ],
)
def test_observers_of_a_deep_tree(observer: str, title: str) -> None:
    names = labels_for(read_network(spec_with(DEEP, {})))
    column = names.column("device:0", observer)
    assert column.title == title
    assert (column.kind == "own-edge") == (observer in ("cabinet:0", "region:0"))


def test_the_cloud_and_the_public_come_before_parties_from_near_to_far() -> None:
    names = labels_for(read_network(spec_with(DEEP, {})))
    observers = ["public", "cloud", "device:12", "region:0", "device:4", "cabinet:0", "device:1"]
    found = sorted((names.column("device:0", o) for o in observers), key=lambda column: column.order)
    assert [c.title for c in found] == [
        "cloud", "public", "peers (same cabinet)", "own cabinet", "devices elsewhere in the region",
        "own region", "devices elsewhere",
    ]  # fmt: skip


def test_classes_of_a_tree() -> None:
    names = labels_for(read_network(quickstart_spec()))
    row = names.row("device:1")
    assert (row.title, row.detail) == ("120 devices under edges 0, 2, 3", "edge trusted, noise added by edge")
    assert names.row("device:199") == names.row("device:40") != row
    row = names.row("device:40")
    assert (row.title, row.detail) == ("80 devices under edges 1, 4", "edge untrusted, noise added by device")


def test_classes_of_a_deep_tree_say_what_is_trusted() -> None:
    sources = {"region:0": [1.0], "cabinet:1": [1.0]} | {
        f"cabinet:{c}/devices": [1.0] for c in (0, 2, 3, 4, 5)
    }
    names = labels_for(read_network(spec_with(DEEP, sources, trusted=["region:0", "cabinet:1"])))
    row = names.row("device:0")
    assert row.title == "8 devices under cabinets 0, 2"
    assert row.detail == "cabinet untrusted, region trusted, noise added by device and region"
    row = names.row("device:4")
    assert (row.title, row.detail) == (
        "4 devices under cabinet 1",
        "all above trusted, noise added by cabinet and region",
    )


def test_without_noise_all_devices_are_alike() -> None:
    names = labels_for(
        read_network(spec_with({"kind": "tree", "edges": 5, "devices_per_edge": 40}, {}, trusted_edges=[0]))
    )
    row = names.row("device:0")
    assert (row.title, row.detail) == ("200 devices under edges 0–4", "no noise")


def test_a_star() -> None:
    names = labels_for(
        read_network(spec_with({"kind": "star", "devices": 1000}, {"cloud": [1.0]}, cloud=True))
    )
    row = names.row("device:7")
    assert (row.title, row.detail) == ("1,000 devices", "cloud trusted, noise added by cloud")
    assert names.column("device:7", "device:8").title == "other devices"
    assert names.column("device:7", "cloud").kind == "cloud"


def test_a_ring_of_groups() -> None:
    names = labels_for(read_network(spec_with(RING, {"master:0": [2.0]})))
    assert names.row("device:1").title == "96 workers in 1 group"
    assert names.row("device:25").title == "4 workers in 2 groups"
    titles = {
        o: names.column("device:1", o).title
        for o in ("device:2", "device:26", "device:51", "master:0", "master:2")
    }
    assert titles == {
        "device:2": "workers of the same group", "device:26": "workers 1 group away",
        "device:51": "workers 2 groups away", "master:0": "own master", "master:2": "other masters",
    }  # fmt: skip


def test_groups_of_which_some_trust_their_master() -> None:
    names = labels_for(read_network(spec_with(RING, {}, trusted_aggregators=[0, 2])))
    assert (names.row("device:1").title, names.row("device:1").detail) == (
        "48 workers in 1 group", "of 26 workers, 1 of 1 masters trusted",
    )  # fmt: skip
    assert names.row("device:26").detail == "of 26 workers, 0 of 1 masters trusted"
    assert (names.row("device:25").title, names.row("device:25").detail) == (
        "4 workers in 2 groups", "of 26 workers each, 1 of 2 masters trusted",
    )  # fmt: skip
    titles = [names.column("device:25", f"master:{group}").title for group in range(3)]
    assert titles == ["own master, trusted with raw updates", "own master, not trusted", "other masters"]


def test_groups_of_every_structure() -> None:
    def members(**groups: Any) -> tuple[tuple[int, ...], ...]:
        shape = read_network(spec_with({"kind": "groups", **groups}, {})).shape
        assert isinstance(shape, GroupNetwork)
        return shape.groups.as_lists()

    assert members(structure="ring", groups=3, devices=6) == ((0, 1, 2), (2, 3, 4), (0, 4, 5))
    assert members(structure="string", groups=3, devices=6) == ((0, 1, 2), (2, 3, 4), (4, 5))
    assert members(structure="clusters", groups=2, devices=4) == ((0, 1), (2, 3))
    assert members(structure="global", devices=3) == ((0, 1, 2),)
    assert members(structure="list", groups=[[0, 1], [1, 2]]) == ((0, 1), (1, 2))


def test_apart_groups_are_out_of_reach() -> None:
    topology = {"kind": "groups", "structure": "clusters", "groups": 2, "devices": 4}
    names = labels_for(read_network(spec_with(topology, {})))
    assert names.column("device:0", "device:3").title == "workers out of reach"


@pytest.mark.parametrize(
    "topology",
    [
        {"kind": "tree", "file": "/nowhere/sites.yaml"},
        {"kind": "groups", "structure": "labels", "groups": 5, "devices": 10},
        {"kind": "tree", "edges": 3},
    ],
)
def test_an_unknown_shape_is_said_and_units_stay_themselves(topology: dict[str, Any]) -> None:
    network = read_network(spec_with(topology, {}))
    assert isinstance(network.shape, str)
    assert "not drawn" in network.shape
    names = labels_for(network)
    assert names.row("device:3").title == "device:3"
    assert names.column("device:3", "device:4").title == "other devices"
    assert names.column("device:3", "edge:4").title == "edges"


def test_a_topology_file_names_its_sites(tmp_path: Path) -> None:
    path = tmp_path / "sites.yaml"
    path.write_text("sites: [{name: Leiden, trusted: true, devices: 3}, {name: Delft, devices: 5}]")
    names = labels_for(read_network(spec_with({"kind": "tree", "file": str(path)}, {"edge:0": [1.0]})))
    assert names.row("device:0").detail == "edge trusted, noise added by edge"
    assert names.row("device:3").title == "5 devices under Delft"


def test_noise_of_nothing_is_no_noise() -> None:
    network = read_network(spec_with(DEEP, {"region:0": [0.0, 0.0], "cabinet:1": [0.0, 1.5]}))
    assert dict(network.noise) == {"cabinet:1": (0.0, 1.5)}


def test_the_matrix_keeps_the_worst_of_a_cell() -> None:
    names = labels_for(read_network(quickstart_spec()))
    matrix = build_matrix(RecordedPrivacy.from_dict(quickstart_privacy()).guarantees, names)
    titles = [column.title for column in matrix.columns]
    assert titles == [
        "cloud",
        "public",
        "peers (same edge)",
        "own edge",
        "devices elsewhere",
        "edges elsewhere",
    ]
    cell = matrix.cells[1, titles.index("edges elsewhere")]
    assert [(g.observer, g.epsilon) for g in cell.guarantees] == [("edge:0", 6.4), ("edge:2", 6.3)]
    assert (cell.epsilon, cell.pairs) == (6.4, 320)
    assert matrix.cells[0, titles.index("own edge")].epsilon == math.inf


def test_a_large_matrix_keeps_what_is_weakest() -> None:
    topology = {"kind": "tree", "edges": 1000, "devices_per_edge": list(range(1, 1001))}
    names = labels_for(read_network(spec_with(topology, {f"edge:{e}": [1.0] for e in range(1000)})))
    first = [e * (e + 1) // 2 for e in range(1000)]
    rows = [guarantee(f"device:{first[e]}", "cloud", 1.0 + e) for e in range(1000)]
    rows += [guarantee("device:0", f"edge:{e},edge:{e + 1}", 5.0 + e) for e in range(100)]
    matrix = build_matrix([Guarantee.from_dict(row, 1e-5) for row in rows], names)
    assert len(matrix.rows) == len(matrix.columns) == MOST
    assert matrix.rows[-1].title == f"{1001 - MOST} more classes"
    assert matrix.columns[-1].title == f"{102 - MOST} more"
    assert matrix.columns[0].title == "cloud"
    assert matrix.cells[MOST - 2, 0].epsilon == 1000.0
    assert matrix.cells[MOST - 1, 0].epsilon == 1001.0 - MOST
    assert sum(len(cell.guarantees) for cell in matrix.cells.values()) == len(rows)


def said(make: Make, **options: Any) -> str:
    (series,) = load_series([make(**options)])
    protection = protection_paragraphs(series, matrix_of(series))
    return " ".join([score_sentence(series), *protection, *protocol_warnings(series.first.spec_dict)])


def test_the_headline(run_folder: Make) -> None:
    text = said(run_folder)
    assert "After 15 rounds the model is 8" in text
    assert "Towards the cloud no device exceeds ε = 8 at δ = 1e-5." in text
    raw = "No guarantee towards an observer that is trusted with raw updates: "
    assert f"{raw}120 devices under edges 0, 2, 3 towards their own edge." in text


def test_the_headline_of_a_run_without_noise(run_folder: Make) -> None:
    rows = [guarantee("device:0", o, math.inf, why="There is no noise.") for o in ("cloud", "public")]
    privacy = {"spec": "x", "delta": 1e-5, "guarantees": rows, "claims": []}
    assert "No device has a guarantee towards any observer (There is no noise)." in said(
        run_folder, privacy=privacy
    )


def test_the_headline_without_evaluation_or_guarantees(run_folder: Make) -> None:
    privacy = {"spec": "x", "delta": 1e-5, "guarantees": [], "claims": []}
    text = said(run_folder, frame=metrics(1, every=0), privacy=privacy)
    assert text == "After 1 round the model has not been evaluated. The run has no guarantees."


def test_the_headline_where_only_some_have_a_guarantee(run_folder: Make) -> None:
    rows = [guarantee("device:0", "cloud", math.inf, 120, "raw"), guarantee("device:40", "cloud", 3.0, 80)]
    text = said(run_folder, privacy={"spec": "x", "delta": 1e-5, "guarantees": rows, "claims": []})
    none = "Without any guarantee: 120 devices under edges 0, 2, 3 towards the cloud."
    assert f"{none} Towards the cloud no device that has a guarantee exceeds ε = 3 " in text
    assert text.count("120 devices") == 1
    rows = [guarantee("device:0", "cloud", 2.0)]
    text = said(run_folder, privacy={"spec": "x", "delta": 1e-5, "guarantees": rows, "claims": []})
    assert "every pair" not in text.lower()  # it tells nothing beside the ε


def test_a_record_is_a_row_of_its_own_beside_its_device() -> None:
    names = labels_for(read_network(quickstart_spec()))
    device, record = names.row("device:1"), names.row("record:1")
    assert (record.title, record.detail) == (f"one record of {device.title}", device.detail)
    assert device.order < record.order < names.row("device:40").order
    assert names.column("record:40", "edge:1") == names.column("device:40", "edge:1")
    rows = [guarantee("device:1", "cloud", 2.0), guarantee("record:1", "cloud", 1.0)]
    assert build_matrix([Guarantee.from_dict(row, 1e-5) for row in rows], names).rows == (device, record)

"""Folders of real runs: what `sfumato run` leaves passes, after a resume too, and a statement says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from certified_folders import GROUPS, certified_folder, renew_manifest

import sfumato as sf
from sfumato.cli import main
from sfumato.simulation import run as simulate
from sfumato.verify.checker import check_run
from sfumato.verify.folder import MOST_BYTES

SPEC: dict[str, Any] = {
    "name": "tiny",
    "protocol": "h2fdp",
    "seed": 2,
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3},
    "trust": {"trusted_edges": [1]},
    "training": {"rounds": 2, "local_steps": 2, "edge_every": 1, "batch_size": 5, "learning_rate": 0.2},
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 0.5}},
}
OF_GROUPS = GROUPS | {
    "training": GROUPS["training"] | {"rounds": 4, "merge_every": 2},
    "privacy": GROUPS["privacy"] | {"noise": {"multiplier": 1.0}},
}


def certified_rounds(folder: Path) -> set[int]:
    ledger = json.loads((folder / "ledger.json").read_text("utf-8"))
    rows = ledger["certificates"]["rows"]
    return {draw["count"] for row in rows for bound in row["bounds"].values() for draw in bound["draws"]}


@pytest.mark.usefixtures("no_report")
def test_a_run_passes_before_and_after_it_is_extended(tmp_path, capsys):
    folder = tmp_path / "run"
    simulate.run(sf.load_spec(SPEC), out=folder, device="cpu")
    assert check_run(folder).problems == []
    assert certified_rounds(folder) == {2}
    longer = SPEC | {"training": SPEC["training"] | {"rounds": 3}}
    simulate.run(sf.load_spec(longer), out=folder, device="cpu", resume=True)
    assert check_run(folder).problems == []
    assert certified_rounds(folder) == {3}

    page = tmp_path / "statement.html"
    assert main(["statement", str(folder), "--out", str(page)]) == 0
    found = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert found["source"] == "A run (finished)"
    assert "finite bounds of ε) from what the run recorded: 0 mismatches" in found["verified"]
    assert set(found["hashes"]) == {"spec"}
    assert found["simulation"].startswith("This was a simulation")
    assert found["versions"]["torch"]
    assert found["hashes"]["spec"] in page.read_text("utf-8")


@pytest.mark.usefixtures("no_report")
def test_a_run_that_trusts_some_masters_trains_passes_and_is_audited(tmp_path, capsys):
    folder = tmp_path / "run"
    trust = {"trust": {"trusted_aggregators": [1]}}
    accuracy = simulate.run(sf.load_spec(OF_GROUPS | trust), out=folder, device="cpu").metrics["accuracy"]
    assert len(accuracy) == 4
    assert accuracy.notna().all()
    assert main(["verify", str(folder)]) == 0
    page = tmp_path / "statement.html"
    assert main(["statement", str(folder), "--out", str(page)]) == 0
    found = json.loads(page.with_suffix(".json").read_text("utf-8"))
    assert found["trust"] == {
        "trusted_with_raw_updates": ["master:1"],
        "raw_to_trusted_edge": {"devices": 5, "of": 16},
        "by_round": [{"from_round": 1, "trusted": ["master:1"]}],
    }
    own = {row["trusted_by_the_unit"]: row for row in found["largest"] if row["observer_is"] == "own master"}
    assert own[True]["epsilon"] == "inf"
    assert own[True]["pairs"] == own[True]["pairs_without_a_guarantee"] == 5
    assert own[False]["pairs_without_a_guarantee"] == 0
    assert {tuple(row["parties"]) for row in found["noise"]["parties"]} == {
        ("master:0/devices", "master:1", "master:2/devices", "master:3/devices")
    }
    capsys.readouterr()
    audit = ["audit", str(folder), "--trials", "500", "--observer", "master:0", "--observer", "master:1"]
    assert main([*audit, "--observer", "device:2", "--json"]) == 0
    audited = json.loads(capsys.readouterr().out)
    assert audited["holds"] is True

    ledger = json.loads((folder / "ledger.json").read_text("utf-8"))
    assert ledger["noise_added_by"] == ["devices", "master", "devices", "devices"]
    (folder / "ledger.json").write_text(json.dumps(ledger | {"noise_added_by": "master"}), "utf-8")
    renew_manifest(folder)
    assert main(["verify", str(folder)]) == 1
    assert "noise_added_by: master; spec.yaml gives ['devices', 'master'" in capsys.readouterr().out


@pytest.mark.usefixtures("no_report")
def test_a_run_with_another_model_does_not_pass(tmp_path):
    simulate.run(sf.load_spec(SPEC), out=tmp_path, device="cpu")
    (tmp_path / "model.pt").write_bytes(b"other")
    assert any(
        problem.startswith("model.pt: has another SHA-256") for problem in check_run(tmp_path).problems
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("spec.yaml", "a: &a [x, x]\nb: [*a, *a]\n", "spec.yaml: has aliases"),
        ("ledger.json", None, f"ledger.json: is larger than {MOST_BYTES:,} bytes"),
        ("privacy.json", "[" * 10**6, "privacy.json: cannot be parsed"),
        ("privacy.json", "[]", "privacy.json: must hold a mapping"),
    ],
)
def test_files_that_would_take_all_memory_are_mismatches(name, content, said, tmp_path):
    certified_folder(tmp_path, sf.load_spec(SPEC))
    if content is None:
        with (tmp_path / name).open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    else:
        (tmp_path / name).write_text(content)
    assert any(problem.startswith(said) for problem in check_run(tmp_path).problems)


def test_a_folder_that_was_copied_in_part_is_said_to_be_so(tmp_path):
    certified_folder(tmp_path, sf.load_spec(SPEC))
    (tmp_path / "ledger.json").unlink()
    said = "ledger.json: is missing: the folder is not whole; copy it again, with all of its files"
    assert list(check_run(tmp_path).problems) == [said]


def test_what_is_no_file_is_not_read(tmp_path):
    certified_folder(tmp_path, sf.load_spec(SPEC))
    (tmp_path / "ledger.json").unlink()
    (tmp_path / "ledger.json").symlink_to("/dev/zero")
    assert "ledger.json: is not a file" in check_run(tmp_path).problems

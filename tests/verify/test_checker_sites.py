"""Rows are about the worst unit that they stand for, and name every site: forged rows are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from certified_folders import GROUPS, TREE, copied_folder, forge

from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

RECORDS = {
    "data": {"source": "synthetic", "examples_per_device": 12, "partition": {"kind": "iid", "size_sigma": 1}},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 2, "learning_rate": 0.2, "batches": "poisson"},
    "privacy": {"unit": "record", "clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 2.0}},
}
STAR = TREE | RECORDS | {"protocol": "pedpfl", "trust": {}, "topology": {"kind": "star", "devices": 4}}
NAMED = STAR | {"topology": {"kind": "star", "devices": 4, "device_names": ["Ulm", "Bonn", "Kiel", "Jena"]}}
SITES = TREE | RECORDS | {
    "trust": {},
    "topology": {"kind": "tree", "sites": [{"name": name, "devices": 2} for name in ("Ulm", "Bonn", "Kiel")]},
}  # fmt: skip
RING = GROUPS | RECORDS | {"topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 6}}
WORKERS = RING | {"topology": RING["topology"] | {"worker_names": list("abcdef")}}
ALL = {"star": STAR, "named": NAMED, "sites": SITES, "ring": RING, "workers": WORKERS}


@pytest.mark.parametrize("name", ALL)
def test_an_honest_folder_passes(name: str, tmp_path: Path) -> None:
    assert check_run(copied_folder(tmp_path, load_spec(ALL[name]))).problems == []


def problems_of(document: dict[str, Any], folder: Path, change: Any) -> list[str]:
    forge(copied_folder(folder, load_spec(document)), change)
    return check_run(folder).problems


def of_the_best_device(privacy: dict[str, Any], ledger: dict[str, Any]) -> None:
    """The row towards the cloud, as an honest account of the best device alone has it, for all devices."""
    spec = load_spec(STAR)
    import sfumato as sf

    rates = ledger["batches"]["rate_per_device"]
    alone = sf.account(spec, unit=f"record:{rates.index(min(rates))}", observer="cloud")
    (place,) = [n for n, row in enumerate(privacy["guarantees"]) if row["observer"] == "cloud"]
    row = privacy["guarantees"][place]
    honest = alone.guarantees[0].to_dict()
    assert honest["epsilon"] < row["epsilon"]
    privacy["guarantees"][place] = honest | {key: row[key] for key in ("stands_for", "relation")}
    certificates = alone.certificates()
    table = ledger["certificates"]["releases"]
    moved = certificates["rows"][0]
    for bound in moved["bounds"].values():
        for part in [*bound["draws"], *bound.get("record", {}).get("parts", ())]:
            part["releases"] = [number + len(table) for number in part["releases"]]
    table += certificates["releases"]
    ledger["certificates"]["rows"][place] = moved


def test_a_row_of_the_best_device_does_not_stand_for_the_others(tmp_path: Path) -> None:
    found = problems_of(STAR, tmp_path, of_the_best_device)
    assert any("more such pairs have records that are drawn more often" in problem for problem in found)
    assert all("drawn more often" in problem for problem in found), "all else of it is honest"


def without_a_site(privacy: dict[str, Any], ledger: dict[str, Any]) -> None:
    row = next(row for row in privacy["guarantees"] if row["observer"] == "public")
    row["sites"] = row["sites"][1:]


def elsewhere(privacy: dict[str, Any], ledger: dict[str, Any]) -> None:
    """The worst site is named by the row of the best one instead."""
    rows = sorted((r for r in privacy["guarantees"] if r["observer"] == "public"), key=lambda r: r["epsilon"])
    rows[0]["sites"], rows[-1]["sites"] = rows[-1]["sites"], rows[0]["sites"]


@pytest.mark.parametrize("change", [without_a_site, elsewhere])
@pytest.mark.parametrize("name", ["named", "sites"])
def test_every_site_is_named_by_a_row_that_is_not_below_it(name: str, change: Any, tmp_path: Path) -> None:
    found = problems_of(ALL[name], tmp_path, change)
    assert any("name other sites than have such pairs" in problem for problem in found)


def test_the_largest_of_a_range_is_the_row_itself(tmp_path: Path) -> None:
    def wider(privacy: dict[str, Any], ledger: dict[str, Any]) -> None:
        row = next(row for row in privacy["guarantees"] if "epsilon_range" in row)
        row["epsilon_range"][1] *= 2

    assert any("epsilon_range" in problem for problem in problems_of(STAR, tmp_path, wider))


def test_the_least_of_a_range_is_not_checked_and_the_outcome_says_so(tmp_path: Path) -> None:
    outcome = check_run(copied_folder(tmp_path, load_spec(STAR)))
    assert any("epsilon_range" in what for what in outcome.unchecked)

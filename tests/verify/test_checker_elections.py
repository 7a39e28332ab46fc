"""Verification of runs whose supernodes are elected: what holds passes, and what is forged is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from certified_folders import TREE, Documents, copied_folder, forge

from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run

ELECTED = {
    "name": "elected",
    "protocol": "hdp",
    "data": TREE["data"],
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 4, "supernodes": "elected"},
    "training": {"rounds": 5, "local_epochs": 1, "batch_size": 5, "learning_rate": 0.2},
    "privacy": {
        "clip": {"kind": "update", "norm": 0.5},
        "noise": {"multiplier": 1.0, "placement": {"device": 1.0}},
    },
    "transport": {"devices_to_edge": "secure-aggregation"},
}
POISSON = {"participation": {"kind": "poisson", "rate": 0.3}}


def with_changes(section: str, change: Documents, document: Documents = ELECTED) -> Documents:
    return document | {section: document.get(section, {}) | change}


def by(placement: Documents) -> Documents:
    return {"noise": {"multiplier": 1.0, "placement": placement}}


C1_POISSON = with_changes("training", POISSON)
C2 = with_changes("privacy", by({"edge": 1.0}))
C2_POISSON = with_changes("training", POISSON, C2)
SPECS = {
    "C1": ELECTED,
    "C1, Poisson": C1_POISSON,
    "C1, Poisson, plain": with_changes("transport", {"devices_to_edge": "plain"}, C1_POISSON),
    "C1, fixed": with_changes("training", {"participation": {"kind": "fixed", "count": 2}}),
    "C2": C2,
    "C2, Poisson": C2_POISSON,
    "C3, Poisson": with_changes("privacy", by({"device": 0.34, "edge": 0.66}), C1_POISSON),
    "C5": with_changes("privacy", by({"device_fraction": 0.5, "cloud": True})),
    "C7": with_changes("privacy", by({"device": 0.34, "edge": 0.34, "cloud": True})),
    "supernodes that fail": with_changes("faults", {"supernode_failure_rate": 0.2}),
    "several aggregations": TREE
    | {"topology": {**TREE["topology"], "supernodes": "elected"}, "trust": {"trusted_edges": []}},
    "replace": with_changes("privacy", {"neighbours": "replace"}, C1_POISSON),
}

SPECS["records"] = with_changes("privacy", {"unit": "record"}, C2) | {
    "protocol": "h2fdp",
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 3, "supernodes": "elected"},
    "training": {
        "rounds": 2, "local_steps": 1, "batches": "poisson", "batch_size": 5, "learning_rate": 0.2
    },
}  # fmt: skip
"""Where members may be elected no draw of records amplifies."""


@pytest.mark.parametrize("name", SPECS)
def test_what_holds_passes(name: str, tmp_path: Path) -> None:
    outcome = check_run(copied_folder(tmp_path / "run", load_spec(SPECS[name])))
    assert outcome.problems == []
    assert outcome.rows > 3


def bounds(ledger: Documents, key: str) -> list[Documents]:
    found = [
        bound for row in ledger["certificates"]["rows"] for bound in row["bounds"].values() if bound.get(key)
    ]
    assert found
    return found


def smaller_chance(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "chances"):
        bound["chances"] = [1.0 - 0.01, 0.01]


def outcome_left_out(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "chances"):
        bound["chances"], bound["draws"] = [1.0], bound["draws"][:1]


def office_shows_no_more(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "chances"):
        bound["draws"][1]["releases"] = bound["draws"][0]["releases"]
        bound["draws"][1].pop("drawn_noise", None)


def scales_cut(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "chances"):
        sampling = bound["terms"][0]["sampling"]
        sampling["scales"] = sampling["scales"][:-1]


def fewer_elections(privacy: Documents, ledger: Documents) -> None:
    ledger["elections_per_round"] = 0.5


def larger_zones(privacy: Documents, ledger: Documents) -> None:
    ledger["devices_per_leaf"] = [8] * 3


def fewer_zones(privacy: Documents, ledger: Documents) -> None:
    ledger["tiers"][1]["parents"] = [0, 0]
    for key in ("devices_per_leaf", "participants_per_leaf", "device_classes"):
        ledger[key] = ledger[key][:2]


def nobody_elected(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "chances"):
        del bound["chances"]
        bound["draws"] = bound["draws"][:1]


def rarer_term(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "elections"):
        bound["elections"][0]["probability"] /= 2


def fewer_rounds_of_office(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "elections"):
        bound["elections"][0]["rounds"] -= 1


def no_terms(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "elections"):
        del bound["elections"]


def quieter_term(privacy: Documents, ledger: Documents) -> None:
    for bound in bounds(ledger, "elections"):
        bound["elections"][0]["pairs"][0][0] = bound["elections"][0]["pairs"][0][1]


def smaller_epsilon(privacy: Documents, ledger: Documents) -> None:
    for row, cert in zip(privacy["guarantees"], ledger["certificates"]["rows"], strict=True):
        for name, bound in cert["bounds"].items():
            if bound["epsilon"] != "inf":
                bound["epsilon"] *= 0.99
                row["bounds"][name]["epsilon"] = bound["epsilon"]
        row["epsilon"] = row["bounds"][row["bound"]]["epsilon"]


FORGED: list[tuple[Any, str, str]] = [
    (smaller_chance, "C1, Poisson", "probability stated 0.01"),
    (outcome_left_out, "C1, Poisson", "1 outcomes of 1 draws; a round has 2"),
    (office_shows_no_more, "C1, Poisson", "outcome 1: "),
    (office_shows_no_more, "C2, Poisson", "outcome 1: "),
    (scales_cut, "C1, Poisson", "with probability"),
    (scales_cut, "C2, Poisson", "with probability"),
    (fewer_elections, "C1, Poisson", "elections_per_round"),
    (larger_zones, "C1, Poisson", "devices_per_leaf"),
    (fewer_zones, "C1, Poisson", "tiers"),
    (nobody_elected, "C1, Poisson", "exposed set"),
    (rarer_term, "C1", "elections: probability"),
    (fewer_rounds_of_office, "C1", "elections: 4 rounds"),
    (no_terms, "C1", "exposed set"),
    (quieter_term, "C1", "in office"),
    (smaller_epsilon, "C1", "recomputed"),
    (smaller_epsilon, "C1, Poisson", "recomputed"),
    (smaller_epsilon, "C2, Poisson", "recomputed"),
]


@pytest.mark.parametrize(
    ("change", "name", "said"), FORGED, ids=lambda value: getattr(value, "__name__", None)
)
def test_what_is_forged_is_found_and_named(change: Any, name: str, said: str, tmp_path: Path) -> None:
    folder = copied_folder(tmp_path / "run", load_spec(SPECS[name]))
    forge(folder, change)
    problems = check_run(folder).problems
    assert any(said in problem for problem in problems), problems


def test_no_draw_of_records_amplifies_where_a_member_may_be_elected(tmp_path: Path) -> None:
    """Terms of office add what a device meets more; nothing is shown of that beside draws of a record."""

    def drawn(privacy: Documents, ledger: Documents) -> None:
        for cert in ledger["certificates"]["rows"]:
            for bound in cert["bounds"].values():
                (draw, *_) = bound["draws"] or [None]
                if draw is not None and bound.get("elections"):
                    part = {"releases": draw["releases"], "count": draw["count"], "moves": [1.0]}
                    bound["record"] = {"rate": 0.25, "parts": [part]}

    folder = copied_folder(tmp_path / "run", load_spec(SPECS["records"]))
    forge(folder, drawn)
    assert any("where a member may be elected" in problem for problem in check_run(folder).problems)

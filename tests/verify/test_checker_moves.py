"""Verification of runs whose devices move: what holds passes, and what is forged is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from certified_folders import TREE, Documents, certified_folder, copied_folder, forge
from moving_trees import last_trust_throughout, nobody_moves

from sfumato.schedule import moves
from sfumato.spec.load import load_spec
from sfumato.verify.checker import check_run
from sfumato.verify.draws import stated_term
from sfumato.verify.epsilon import recomputed_epsilon

MOVING = TREE | {
    "topology": {**TREE["topology"], "moves": {"trace": [[2, 0, 1], [3, 0, 2], [3, 4, 0]]}},
    "trust": {"from": {0: [1], 3: [0]}},
    "training": TREE["training"] | {"rounds": 4},
}
DRAWN = MOVING | {
    "training": MOVING["training"] | {"rounds": 3, "participation": {"kind": "fixed", "count": 2}},
    "topology": {**TREE["topology"], "moves": {"trace": [[3, 0, 1]]}},
}
RESENT = MOVING | {"training": MOVING["training"] | {"global_update": "resend"}}
OWN = {"edge_every": [1, 2, 4], "edge_at_global": True}
SCHEDULED = MOVING | {"training": MOVING["training"] | OWN}
SCHEDULED_AND_DRAWN = DRAWN | {
    "training": DRAWN["training"] | OWN | {"participation": {"kind": "fixed", "count": [1, 2, 3]}}
}


RECORDS = MOVING | {
    "training": MOVING["training"] | {"batches": "poisson", "edge_every": [2, 2, 4]},
    "privacy": MOVING["privacy"] | {"unit": "record", "noise": {"multiplier": 20.0}},
}
"""With little noise an account of hidden draws takes long."""
RECORDS_AT_STEPS = RECORDS | {
    "privacy": RECORDS["privacy"]
    | {"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 2.0, "at": "step"}}
}
OTHERS_DRAWN = TREE | {
    "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 2, "moves": {"trace": [[2, 0, 1]]}},
    "trust": {},
    "training": {
        "rounds": 3, "local_steps": 2, "edge_every": 2, "batch_size": 5, "learning_rate": 0.2,
        "participation": {"kind": "poisson", "rate": 0.5},
    },
    "privacy": {"clip": {"kind": "update", "norm": 0.5}, "noise": {"multiplier": 20.0}},
}  # fmt: skip
"""Every era has a mixture over who else is drawn, of its own."""


@pytest.mark.parametrize(
    "document",
    [MOVING, OTHERS_DRAWN, DRAWN, RESENT, SCHEDULED, SCHEDULED_AND_DRAWN, RECORDS, RECORDS_AT_STEPS],
    ids=[
        "moving",
        "others are drawn",
        "drawn",
        "resent",
        "scheduled",
        "scheduled and drawn",
        "records",
        "records at steps",
    ],
)
def test_what_holds_passes(document: Documents, tmp_path: Path) -> None:
    outcome = check_run(copied_folder(tmp_path / "run", load_spec(document)))
    assert outcome.problems == []
    assert outcome.finite > 10
    assert any("follow from the seed" in what for what in outcome.unchecked)


def keep(kept: slice) -> Any:
    """Of every mixture over eras the terms that are ``kept``, and the ε that these have."""

    def change(privacy: Documents, ledger: Documents) -> None:
        for row, cert in zip(privacy["guarantees"], ledger["certificates"]["rows"], strict=True):
            for name, bound in cert["bounds"].items():
                bound["terms"] = bound["terms"][kept]
                left = cert["delta"] - bound["failure_probability"]
                events = [stated_term(term) for term in bound["terms"]]
                interval = bound["losses"]["interval"]
                found = recomputed_epsilon(events, bound["method"], left, interval)
                row["bounds"][name]["epsilon"] = bound["epsilon"] = found
            row["epsilon"] = min(bound["epsilon"] for bound in row["bounds"].values())
            row["bound"] = min(row["bounds"], key=lambda name: row["bounds"][name]["epsilon"])

    return change


@pytest.mark.parametrize("kept", [slice(0, 1), slice(1, 2), slice(0, 0)], ids=["first", "second", "none"])
def test_every_era_has_a_mixture_of_its_own(kept: slice, tmp_path: Path) -> None:
    """Terms of an era that are left out are found, although every figure follows from the others."""
    folder = copied_folder(tmp_path / "run", load_spec(OTHERS_DRAWN))
    before = json.loads((folder / "privacy.json").read_text("utf-8"))["guarantees"][0]["epsilon"]
    forge(folder, keep(kept))
    assert json.loads((folder / "privacy.json").read_text("utf-8"))["guarantees"][0]["epsilon"] < before
    assert any("terms: must be one mixture" in problem for problem in check_run(folder).problems)


def another_place(privacy: Documents, ledger: Documents) -> None:
    ledger["eras"][1]["class_per_device"][0] = 2


def another_round(privacy: Documents, ledger: Documents) -> None:
    ledger["eras"][1]["from_round"] = 3


def longer(privacy: Documents, ledger: Documents) -> None:
    ledger["eras"][0]["rounds"] = 2


def fewer(privacy: Documents, ledger: Documents) -> None:
    del ledger["eras"][1]


def smaller(privacy: Documents, ledger: Documents) -> None:
    row = next(row for row in privacy["guarantees"] if row["epsilon"] != "inf")
    row["epsilon"] *= 0.9


def fewer_pairs(privacy: Documents, ledger: Documents) -> None:
    rows = [row for row in privacy["guarantees"] if row["relation"] == "peer"]
    rows[0]["stands_for"] -= 1
    rows[1]["stands_for"] += 1


def another_schedule(privacy: Documents, ledger: Documents) -> None:
    """A device that moved is charged by the schedule of the edge that it left."""
    ledger["eras"][1]["steps"][0]["takes_part_per_leaf"] = [True, True, False]


def drawn_records(privacy: Documents, ledger: Documents) -> None:
    ledger["batches"] = {"rate_per_device": [0.1] * 9}


def no_rule(privacy: Documents, ledger: Documents) -> None:
    ledger["elections_per_round"] = 1.0


@pytest.mark.parametrize(
    "change",
    [another_place, another_round, longer, fewer, smaller, fewer_pairs, drawn_records, no_rule],
    ids=lambda change: change.__name__,
)
def test_what_is_forged_is_found(change: Any, tmp_path: Path) -> None:
    folder = copied_folder(tmp_path / "run", load_spec(MOVING))
    forge(folder, change)
    assert check_run(folder).problems


def test_a_schedule_of_another_edge_is_found(tmp_path: Path) -> None:
    folder = copied_folder(tmp_path / "run", load_spec(SCHEDULED))
    forge(folder, another_schedule)
    assert any(
        "eras[1]" in problem and "takes_part_per_leaf" in problem for problem in check_run(folder).problems
    )


def a_record(ledger: Documents, era: int) -> tuple[Documents, list[Documents]]:
    """The charge of a record that is in every era of the run, and its parts in one of them."""
    found = next(
        row["bounds"]["flow"] for row in ledger["certificates"]["rows"]
        if row["unit"] == "record:0" and row["observer"] == "cloud"
    )  # fmt: skip
    sizes = [len(draw["releases"]) for draw in found["draws"]]
    parts = found["record"]["parts"]
    return found, parts[sum(sizes[:era]) : sum(sizes[: era + 1])]


def rarer(privacy: Documents, ledger: Documents) -> None:
    a_record(ledger, 1)[0]["record"]["rate"] *= 0.5


def fewer_rounds_of_a_record(privacy: Documents, ledger: Documents) -> None:
    a_record(ledger, 2)[1][0]["count"] -= 1


def fewer_steps_of_a_record(privacy: Documents, ledger: Documents) -> None:
    """Under edge 2 a message has four local steps, under the others two."""
    part = a_record(ledger, 2)[1][0]
    part["moves"] = part["moves"][:2]


def releases_of_another_era(privacy: Documents, ledger: Documents) -> None:
    found = a_record(ledger, 0)[0]["record"]
    found["parts"] = found["parts"][::-1]


def rarer_in_an_era(privacy: Documents, ledger: Documents) -> None:
    ledger["eras"][1]["batches"]["moved_share_by_first_step_per_leaf"][1] = [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (rarer, "record: rate: stated"),
        (fewer_rounds_of_a_record, "record: the releases charged are not those of the flow bound"),
        (fewer_steps_of_a_record, "from round 3: record: .*shares that move are not those of the facts"),
        (releases_of_another_era, "from round .*: record"),
        (rarer_in_an_era, r"eras\[1\]: ledger.json: batches.moved_share_by_first_step"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_forged_draws_of_records_are_found(change: Any, problem: str, tmp_path: Path) -> None:
    folder = copied_folder(tmp_path / "run", load_spec(RECORDS))
    forge(folder, change)
    assert any(re.search(problem, found) for found in check_run(folder).problems)


@pytest.mark.parametrize("broken", [nobody_moves, last_trust_throughout])
def test_figures_of_another_network_are_found(
    broken: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder whose figures all follow from its facts, which are not those of its spec."""
    monkeypatch.setattr(moves, "trees_over_time", broken)
    problems = check_run(certified_folder(tmp_path / "run", load_spec(MOVING))).problems
    assert any("spec.yaml" in problem for problem in problems)


def test_one_tree_for_a_network_that_moves_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = MOVING | {"trust": {"trusted_edges": [1]}}
    monkeypatch.setattr(moves, "trees_over_time", nobody_moves)
    problems = check_run(certified_folder(tmp_path / "run", load_spec(document))).problems
    assert any("spec.yaml has moves" in problem for problem in problems)


def test_a_row_that_is_not_the_worst_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several observers that one row stands for, another than the one with the largest figure."""
    from sfumato.privacy.tree.moving_pairs import MovingPairs

    chosen = MovingPairs._by_largest

    def least_first(self: Any, *given: Any) -> Any:
        return [group[::-1] for group in chosen(self, *given)]

    monkeypatch.setattr(MovingPairs, "_by_largest", least_first)
    problems = check_run(certified_folder(tmp_path / "run", load_spec(MOVING))).problems
    assert any("have a larger figure than a row" in problem for problem in problems)

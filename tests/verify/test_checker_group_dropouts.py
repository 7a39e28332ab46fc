"""`sfumato verify` of groups with dropouts: whole folders pass, forged thresholds are named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import certified_folders
import pytest
from certified_folders import Documents, certified_folder, forge

import sfumato as sf
from sfumato import accounting
from sfumato.schedule.resolve import resolve
from sfumato.verify.checker import check_run

GROUPS = certified_folders.GROUPS | {
    "topology": {"kind": "groups", "structure": "ring", "groups": 3, "devices": 15},
    "trust": {"trusted_aggregators": [0]},
    "transport": {"devices_to_master": "secure-aggregation"},
    "training": certified_folders.GROUPS["training"] | {"rounds": 4, "merge_every": 2},
    "faults": {"dropout_rate": 0.2},
}
COHORT = "training.participation={kind: fixed, count: 4}"
SETTINGS = {
    "all workers": [],
    "a share": ["faults.survival_threshold=0.9"],
    "cohorts": [COHORT],
    "cohorts, one by one": [COHORT, "transport.devices_to_master=plain"],
    "trusted masters": [COHORT, "trust.trusted_aggregators=[0, 1, 2]"],
    "drawn workers": ["training.participation={kind: poisson, rate: [1.0, 0.5, 0.3]}"],
    "all must be there": [
        "training.participation={kind: poisson, rate: 0.5}",
        "faults.survival_threshold=1.0",
    ],
    "un-noised inside": ["protocol=dp-ogl+", "trust.trusted_aggregators=[0, 1, 2]", COHORT],
    "intervals": ["protocol=dp-ogl-local", "faults.dropout_rate={unmask: 0.1}"],
    "groups that change": ["topology.eras=[{from_round: 3, groups: [[0, 1, 2, 3, 4, 5, 6], [6, 7, 8, 9, 10],"
                           " [0, 10, 11, 12, 13, 14]]}]"],
}  # fmt: skip


@pytest.mark.parametrize("what", SETTINGS)
def test_folders_pass(what: str, tmp_path: Path) -> None:
    outcome = check_run(certified_folder(tmp_path, sf.load_spec(GROUPS, SETTINGS[what])))
    assert outcome.problems == []
    assert outcome.rows > 0


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "another threshold": ({"least_survivors": ((6, 6, 6),)}, r"least_survivors_per_group: .*6.*5"),
    "no threshold": ({"least_survivors": ((0, 0, 0),)}, r"least_survivors_per_group"),
    "nobody is lost": ({"least_survivors": ()}, r"least_survivors_per_group"),
    "more shares": ({"unmask_thresholds": (6, 6, 6)}, r"shares_that_unmask"),
}


@pytest.mark.parametrize("what", FORGED)
def test_figures_of_other_thresholds_are_refused(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All rows and certificates follow from the facts, but the facts are not those of the spec."""
    change, message = FORGED[what]

    def with_others(wanted: Any) -> Any:
        plan = resolve(wanted)
        found = replace(plan)
        found.__dict__["releases"] = replace(plan.releases, **change)
        return found

    monkeypatch.setattr(accounting, "resolve", with_others)
    problems = check_run(certified_folder(tmp_path, sf.load_spec(GROUPS))).problems
    assert any(re.search(message, problem) for problem in problems), problems


def test_a_forged_threshold_is_named(tmp_path: Path) -> None:
    folder = certified_folder(tmp_path / "run", sf.load_spec(GROUPS, SETTINGS["cohorts"]))

    def forged(privacy: Documents, ledger: Documents) -> None:
        assert ledger["least_survivors_per_group"] == [[3, 3, 3]]
        ledger["least_survivors_per_group"] = [[0, 0, 0]]

    forge(folder, forged)
    problems = check_run(folder).problems
    assert any("least_survivors_per_group" in problem for problem in problems)
    assert any("variance" in problem or "noise" in problem for problem in problems), problems

"""Control with sums and dropouts: the checker derives the budget's facts itself, and names forged ones."""

from __future__ import annotations

import re
from dataclasses import replace

import certified_folders
import pytest
from certified_folders import certified_folder, copied_folder, forge

import sfumato as sf
from sfumato import accounting
from sfumato.schedule.resolve import resolve
from sfumato.verify.checker import check_run

CONTROLLED = certified_folders.TREE | {
    "topology": {"kind": "tree", "edges": 3, "devices_per_edge": 6},
    "control": {"smoothness": 0.5, "max_steps": 8},
    "watch": ["cloud", "edge:0,device:1,device:2,device:3,device:4,device:5"],
}
MASKED = CONTROLLED | {"transport": {"devices_to_edge": "secure-aggregation"}}
SILENT = MASKED | {"faults": {"dropout_rate": 0.1}}
POISSON = CONTROLLED | {"control": CONTROLLED["control"] | {"draw": "poisson"}}
SPECS = {"masked": MASKED, "dropouts": CONTROLLED | {"faults": {"dropout_rate": 0.1}}, "both": SILENT}


@pytest.mark.parametrize("what", [*SPECS, "poisson"])
def test_honest_folders_pass_and_say_what_is_not_checked(what, tmp_path):
    outcome = check_run(copied_folder(tmp_path, sf.load_spec(SPECS.get(what, POISSON))))
    assert outcome.problems == []
    assert any("whether the run kept the budget of its privacy filter" in what for what in outcome.unchecked)


FORGED = {
    "all survive": (lambda facts: replace(facts, guaranteed_contributors=facts.devices), "sure_per_leaf"),
    "every edge has a sum": (lambda facts: replace(facts, all_nodes_always_send=True), "always_sent"),
    "masks that nobody takes off": (
        lambda facts: replace(facts, unmask_thresholds=tuple(t + 1 for t in facts.unmask_thresholds)),
        "shares_that_unmask",
    ),
    "sums that are none": (lambda facts: replace(facts, hops=("plain", "air")), "hops"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_budget_of_other_facts_is_named(what, tmp_path, monkeypatch):
    change, message = FORGED[what]

    def by_others(asked):
        found = resolve(asked)
        found.__dict__["releases"] = change(found.releases)
        return found

    monkeypatch.setattr(accounting, "resolve", by_others)
    problems = check_run(certified_folder(tmp_path, sf.load_spec(SILENT))).problems
    assert any(re.search(message, problem) for problem in problems), problems


def test_a_smaller_budget_than_the_facts_give_is_named(tmp_path):
    folder = copied_folder(tmp_path, sf.load_spec(SILENT))

    def change(privacy, ledger):
        row = next(row for row in privacy["guarantees"] if row["epsilon"] != "inf")
        row["epsilon"] *= 0.5
        row["bounds"][row["bound"]]["epsilon"] *= 0.5

    forge(folder, change)
    assert check_run(folder).problems

"""Schedules of single edges: the checker derives them itself, and names forged facts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import certified_folders
import numpy as np
import pytest
from certified_folders import certified_folder

import sfumato as sf
from sfumato import accounting
from sfumato.schedule.resolve import resolve
from sfumato.verify.checker import check_run

OWN = {"edge_every": [1, 2, 4], "edge_at_global": True, "participation": {"count": [1, 2, 3]}}
TREE = certified_folders.TREE | {"training": certified_folders.TREE["training"] | OWN}
RECORDS = TREE | {
    "training": certified_folders.TREE["training"]
    | {"edge_every": [1, 2, 4], "batches": "poisson", "batch_size": 20},
    "privacy": TREE["privacy"] | {"unit": "both", "clip": {"kind": "step", "norm": 0.5}},
}
SPECS: dict[str, dict[str, Any]] = {
    "increment": TREE,
    "resend": TREE | {"training": TREE["training"] | {"global_update": "resend"}},
    "a trusted cloud": TREE | {"trust": {"cloud": True, "trusted_edges": [1]}},
    "sums": TREE | {"transport": {"devices_to_edge": "secure-aggregation"}},
    "dropouts": TREE | {"faults": {"dropout_rate": 0.1}},
    "records": RECORDS,
    "formula": TREE
    | {"privacy": {"clip": {"kind": "step", "norm": 0.5}, "noise": {"formula": "h2fdp", "epsilon": 1}}},
}


@pytest.mark.parametrize("what", SPECS)
def test_honest_folders_pass(what, tmp_path):
    assert check_run(certified_folder(tmp_path, sf.load_spec(SPECS[what]))).problems == []


def of_step(index, **changes):
    """Other facts at one aggregation of a round."""

    def change(facts):
        steps = list(facts.steps)
        steps[index] = replace(steps[index], **changes)
        return replace(facts, steps=tuple(steps))

    return change


def with_less_moved(facts):
    """Records of the last edge, whose messages hold most steps, count as if they moved them half as far."""
    *others, last = facts.batches.of_leaf
    less = replace(last, moves=tuple(tuple(share / 2 for share in piece) for piece in last.moves))
    return replace(facts, batches=replace(facts.batches, of_leaf=(*others, less)))


FORGED = {
    "an edge that sends takes no part": (
        TREE,
        of_step(0, takes_part=np.array([False, False, False])),
        r"steps\[0\]\.takes_part_per_leaf",
    ),
    "edges broadcast without a word": (
        TREE,
        of_step(-1, leaf_broadcasts=None),
        r"also_broadcasts_per_leaf",
    ),
    "records that move less": (RECORDS, with_less_moved, r"moved_share_by_first_step"),
    "participants of another edge": (
        TREE,
        lambda facts: replace(facts, drawn=facts.drawn[::-1].copy()),
        "participants_per_leaf",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_facts_that_are_not_those_of_the_spec_are_named(what, monkeypatch, tmp_path):
    spec, change, message = FORGED[what]

    def by_others(asked):
        found = resolve(asked)
        found.__dict__["releases"] = change(found.releases)
        return found

    monkeypatch.setattr(accounting, "resolve", by_others)
    problems = check_run(certified_folder(tmp_path, sf.load_spec(spec))).problems
    assert any(re.search(message, problem) for problem in problems), problems

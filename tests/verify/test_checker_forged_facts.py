"""Folders whose figures all follow from facts that are not those of ``spec.yaml``; the hashes are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import certified_folders
import numpy as np
import pytest
from certified_folders import GROUPS, certified_folder

import sfumato as sf
from sfumato import accounting
from sfumato.privacy.groups.vector_clocks import GroupStructure
from sfumato.privacy.records import BatchFacts
from sfumato.privacy.tree.shape import DeviceClasses
from sfumato.schedule.resolve import resolve
from sfumato.verify.checker import check_run

TREE = certified_folders.TREE | {"trust": {}}
POISSON = {"participation": {"kind": "poisson", "rate": 0.25}}
STAR = certified_folders.STAR | {"trust": {}}
DEEP = TREE | {
    "topology": {"kind": "tree", "levels": [2, 2, 2], "level_names": ["region", "cabinet"]},
    "training": {"rounds": 2, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2},
}
ZONES = TREE | {
    "protocol": "hdp",
    "training": {"rounds": 2, "local_epochs": 1, "batch_size": 5, "learning_rate": 0.2} | POISSON,
    "privacy": TREE["privacy"] | {"noise": {"multiplier": 0.7, "placement": {"edge": 1.0}}},
}
RESENT = TREE | {
    "trust": {"trusted_edges": [0, 1, 2]},
    "training": TREE["training"] | {"global_update": "resend"},
}
STEPS = {"clip": {"kind": "example", "norm": 0.5}, "noise": {"multiplier": 1.0, "at": "step"}}
AT_STEPS = TREE | {
    "training": TREE["training"] | {"batches": "poisson", "batch_size": 20},
    "privacy": STEPS | {"unit": "both"},
}
RECORDS = TREE | {
    "training": TREE["training"] | {"batches": "poisson", "batch_size": 20},
    "privacy": TREE["privacy"] | {"unit": "record", "clip": {"kind": "step", "norm": 0.5}},
}
ANSWERED = RECORDS | {
    "data": TREE["data"] | {"examples_per_device": 60},
    "training": TREE["training"] | {"batches": "poisson"},
    "privacy": {"unit": "record", "clip": {"kind": "example", "norm": 0.5}, "noise": {"multiplier": 90.0}},
}
ROUNDED = RECORDS | {
    "trust": {"trusted_edges": [0, 1, 2]},
    "compression": {"kind": "rand-k", "ratio": 1.0, "bits": 4},
}
MASKED_GROUPS = GROUPS | {"transport": {"devices_to_master": "secure-aggregation"}}
Change = Callable[[Any], Any]


def of(**changes: Any) -> Change:
    """Other values of some facts."""
    return lambda facts: replace(facts, **changes)


def of_steps(change: Change) -> Change:
    """Another fact at every aggregation of a round."""
    return lambda facts: replace(facts, steps=tuple(change(step) for step in facts.steps))


def light_leaf(step: Any) -> Any:
    """Messages of leaf 0, and the noise in them, are a tenth of the others'."""
    scale = np.array([0.1, 1.0, 1.0])
    return replace(step, message_norm=step.message_norm * scale, device_std=step.device_std * scale)


def channel(step: Any) -> Any:
    return replace(step, channel_std=(np.zeros(1), np.ones(3)))


def light_devices(facts: Any) -> Any:
    weights = np.where(np.arange(9) < 3, 0.1, 1.0)
    classes = DeviceClasses.of(facts.devices, weights, None)
    return replace(facts, device_classes=classes, denominators=facts.drawn)


def noisy_devices(step: Any) -> Any:
    return replace(step, device_std=np.full(3, 0.9))


def of_batches(**changes: Any) -> Change:
    return lambda facts: replace(facts, batches=replace(facts.batches, **changes))


def small_moves(facts: Any) -> Any:
    moves = tuple(tuple(move / 10 for move in one) for one in facts.batches.moves)
    return replace(facts, batches=BatchFacts(facts.batches.rates, moves))


COHORTS = GROUPS | {"training": GROUPS["training"] | {"participation": {"kind": "fixed", "count": 3}}}


CLUSTERS = GroupStructure(1, ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)))
LATER = GroupStructure(2, CLUSTERS.groups)


def other_later(facts: Any) -> Any:
    return replace(facts, eras=(facts.eras[0], LATER))


FORGED: dict[str, tuple[dict[str, Any], Change, str]] = {
    "an aggregation left out": (TREE, lambda f: replace(f, steps=f.steps[1:]), "number of steps: 1"),
    "parents": (
        DEEP,
        lambda f: replace(f, parents=(*f.parents[:2], np.array([0, 1, 1, 1]))),
        r"tiers\[2\].parents: \[0, 1, 1, 1\]",
    ),
    "divisors": (TREE, of(most_denominators=np.full(3, 0.5)), "largest_denominator_per_leaf"),
    "least divisors": (TREE, of(denominators=np.array([30.0, 3.0, 3.0])), "denominator_per_leaf"),
    "noise that is sure": (STAR, of(guaranteed_contributors=np.array([12])), r"sure_per_leaf: \[12\]"),
    "sums that are always sent": (
        TREE | {"transport": {"devices_to_edge": "secure-aggregation"}, "faults": {"dropout_rate": 0.1}},
        of(all_nodes_always_send=True),
        "always_sent: True",
    ),
    "nobody drops out": (
        TREE | {"faults": {"dropout_rate": 0.1}},
        of(guaranteed_contributors=None),
        "devices_may_drop_out: False",
    ),
    "thresholds": (TREE, of(unmask_thresholds=()), "number of shares_that_unmask"),
    "weights": (TREE, light_devices, "device_classes: weight"),
    "who sees the draw": (ZONES, of(draw_seen_from=1), "draw.seen_by: edge of the device"),
    "bounds of messages": (TREE, of_steps(light_leaf), r"steps\[0\].message_bound_per_leaf"),
    "noise of no channel": (TREE, of_steps(channel), "channel_noise_std: tiers"),
    "what is sent again": (
        RESENT,
        of_steps(lambda step: replace(step, resends=np.zeros(3, dtype=np.bool_))),
        "repeats_hidden_steps_per_leaf",
    ),
    "noise of messages beside that of steps": (
        AT_STEPS,
        of_steps(noisy_devices),
        "device_noise_std_per_leaf",
    ),
    "moves of records": (RECORDS, small_moves, "moved_share_by_first_step"),
    "how many records answer": (ANSWERED, of_batches(answering=20), "batches.answering: 20 of up to 60"),
    "how likely more answer": (ANSWERED, of_batches(beyond=0.0), "batches.answering: 34 of up to 60"),
    "rounding before noise": (ROUNDED, of_batches(rounded=False), "batches: rounded"),
    "members of groups": (GROUPS, of(eras=(CLUSTERS,)), "groups from round 1 are those of the topology"),
    "members of groups later": (GROUPS, other_later, "eras begin with rounds"),
    "merging": (GROUPS, of(merge_every=3), "merge_every: 3"),
    "noise by masters": (
        GROUPS | {"trust": {"trusted_aggregators": []}},
        of(noise_owner=("master",) * 4),
        "noise_added_by: master",
    ),
    "counts of cohorts": (COHORTS, of(cohort=(2, 2, 2, 2)), "cohort_per_group"),
    "rates for cohorts": (COHORTS, of(cohort=(), rate=(0.5,) * 4), "cohort_per_group"),
    "thresholds of groups": (MASKED_GROUPS, of(unmask_thresholds=(16,) * 4), "shares_that_unmask"),
}


def forged(monkeypatch: pytest.MonkeyPatch, folder: Any, spec: dict[str, Any], change: Change) -> list[str]:
    """What is found wrong with a folder of ``spec`` that was accounted for by changed facts."""

    def by_others(wanted: Any) -> Any:
        plan = resolve(wanted)
        ledger = change(plan.releases)
        found = (
            replace(plan) if "releases" not in plan.__dataclass_fields__ else replace(plan, releases=ledger)
        )
        found.__dict__["releases"] = ledger
        return found

    monkeypatch.setattr(accounting, "resolve", by_others)
    return check_run(certified_folder(folder, sf.load_spec(spec))).problems


@pytest.mark.parametrize("what", FORGED)
def test_facts_that_are_not_those_of_the_spec_are_named(what, monkeypatch, tmp_path):
    spec, change, message = FORGED[what]
    assert forged(monkeypatch, tmp_path / "honest", spec, lambda facts: facts) == []
    problems = forged(monkeypatch, tmp_path / "forged", spec, change)
    assert any(re.search(message, problem) for problem in problems), problems

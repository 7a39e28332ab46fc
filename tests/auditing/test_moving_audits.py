"""Audits of networks that move: what a device shows to each edge in the rounds in which it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sfumato as sf
from sfumato.auditing import audit_pair
from sfumato.auditing.tree import tree_harness
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Exposure
from sfumato.privacy.tree.moving_pairs import RoundKinds
from sfumato.privacy.tree.moving_releases import MovingReleases
from sfumato.schedule.participation import draw_participants
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.tree import TreePlan

TRIALS = 4_000
VISITS: dict[str, Any] = {
    "name": "visits",
    "protocol": "h2fdp",
    "data": {"source": "synthetic", "examples_per_device": 20},
    "topology": {
        "kind": "tree", "edges": 3, "devices_per_edge": 3, "moves": {"trace": [[2, 0, 1], [3, 0, 2]]},
    },
    "trust": {"trusted_edges": [0, 1]},
    "training": {"rounds": 3, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    "privacy": {"clip": {"kind": "update", "norm": 1.0}, "noise": {"multiplier": 1.0}},
}  # fmt: skip
"""Device 0 is under edge 0, 1 and 2 in turn; edge 2 is not trusted."""
RECORDS: dict[str, Any] = {"batches": "poisson", "batch_size": 16}


def plan_of(training: dict[str, Any] | None = None, **changes: Any) -> TreePlan:
    return resolve_tree(sf.load_spec(VISITS | {"training": VISITS["training"] | (training or {})} | changes))


def ratio(plan: TreePlan, unit: str, observer: str) -> float:
    finding = audit_pair(plan, unit, observer, trials=TRIALS)
    assert finding.holds == (finding.lower.epsilon <= finding.upper)
    return finding.lower.epsilon / finding.upper


@pytest.mark.parametrize("observer", ["edge:2", "cloud", "device:6", "edge:2,device:1"])
def test_what_is_promised_holds_and_is_nearly_shown(observer: str) -> None:
    assert 0.6 < ratio(plan_of(), "device:0", observer) <= 1


@pytest.mark.parametrize("unit", ["device:0", "device:1"])
def test_trust_that_changes(unit: str) -> None:
    plan = plan_of(trust={"from": {0: [2], 2: [0, 2], 3: []}})
    assert 0.6 < ratio(plan, unit, "cloud") <= 1


@pytest.mark.parametrize(
    "participation",
    [{"kind": "fixed", "count": 2}, {"kind": "poisson", "rate": 0.5}],
    ids=lambda p: p["kind"],
)
def test_draws_of_the_edge_of_the_round(participation: dict[str, Any]) -> None:
    plan = plan_of({"participation": participation})
    for observer in ("edge:2", "cloud"):
        assert 0 < ratio(plan, "device:0", observer) <= 1
    harness = tree_harness(plan, 0, (Party("node", 1, 1),))
    assert [harness.outcomes(number, 0)[0].draws[0].visible for number in range(3)] == [False, True, False]


def test_whoever_takes_the_place_of_the_unit_is_under_its_edge() -> None:
    plan = plan_of({"participation": {"kind": "fixed", "count": 2}})
    harness = tree_harness(plan, 0, ())
    for number, edge in enumerate((0, 1, 2)):
        for seed in range(8):
            here = plan.at(number)
            for part in (True, False):
                found = draw_participants(harness._with_participation(here, number, seed, part), number)
                assert (0 in found) == part
                assert np.bincount(here.tree.leaves_of(found), minlength=3)[edge] == 2


def test_devices_are_exchanged_with_the_unit_only_if_they_go_where_it_goes() -> None:
    plan = plan_of(
        topology=VISITS["topology"] | {"moves": {"trace": [[2, 0, 1], [2, 1, 1], [3, 0, 2], [3, 1, 2]]}}
    )
    assert tree_harness(plan, 0, ()).exchangeable_devices.tolist() == [0, 1]
    assert tree_harness(plan, 2, ()).exchangeable_devices.tolist() == [2]
    assert tree_harness(plan, 3, (Party("device", 0, 4),)).exchangeable_devices.tolist() == [3, 5]


@pytest.mark.parametrize(
    "privacy",
    [
        {"clip": {"kind": "update", "norm": 1.0}},
        {"clip": {"kind": "example", "norm": 1.0}},
        {"clip": {"kind": "example", "norm": 1.0}, "noise": {"multiplier": 1.0, "at": "step"}},
    ],
    ids=["update", "example", "at step"],
)
def test_records(privacy: dict[str, Any]) -> None:
    plan = plan_of(RECORDS, privacy=VISITS["privacy"] | {"unit": "record"} | privacy)
    assert 0.3 < ratio(plan, "record:0", "cloud") <= 1


class TestBrokenBuilds:
    """Each of them promises too little, and the audit says so."""

    def test_an_edge_that_is_not_charged_after_a_move(self, monkeypatch: pytest.MonkeyPatch) -> None:
        charged = RoundKinds.exposures

        def as_the_public(self: RoundKinds, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
            return charged(self, unit, tuple(Party("public") if p.index == 2 else p for p in coalition))

        monkeypatch.setattr(RoundKinds, "exposures", as_the_public)
        assert ratio(plan_of(), "device:0", "edge:2") > 1

    def test_noise_that_is_missing_under_the_last_edge(self) -> None:
        """Devices of trusted edges add none; one that came from there must add its own."""
        plan = plan_of()
        first, last = plan.eras[-1]
        steps = tuple(replace(step, device_std=0.3 * step.device_std) for step in last.releases.steps)
        quieter = first, replace(last, releases=replace(last.releases, steps=steps))
        assert ratio(plan, "device:0", "edge:2") <= 1
        assert ratio(replace(plan, eras=(*plan.eras[:-1], quieter)), "device:0", "edge:2") > 1

    def test_a_run_that_is_charged_as_its_first_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        every = MovingReleases.exposures
        plan = plan_of()

        def first_only(self: MovingReleases, unit: int, coalition: Sequence[Party]) -> tuple[Exposure, ...]:
            return tuple(replace(e, draws=e.draws[:1]) for e in every(self, unit, coalition))

        monkeypatch.setattr(MovingReleases, "exposures", first_only)
        assert ratio(plan, "device:0", "cloud") > 1

    def test_a_record_that_is_charged_in_its_first_round_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        every = MovingReleases.record_releases
        plan = plan_of(RECORDS, privacy=VISITS["privacy"] | {"unit": "record"})
        monkeypatch.setattr(MovingReleases, "record_releases", lambda self, *pair: every(self, *pair)[:1])
        assert ratio(plan, "record:0", "cloud") > 1

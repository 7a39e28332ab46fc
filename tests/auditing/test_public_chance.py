"""Audits of what is decided by public chance: elections, dropouts, and who else takes part."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from audit_worlds import HDP_CASES, hdp_plan, tree_plan

from sfumato.auditing import audit_pair
from sfumato.auditing.elections import coalition_outcomes
from sfumato.auditing.tree import TreeHarness
from sfumato.errors import SpecError
from sfumato.network.tree import Tree
from sfumato.privacy.observers import Party
from sfumato.privacy.release import Release
from sfumato.schedule.tree import TreePlan

ELECTED = {"kind": "tree", "edges": 3, "devices_per_edge": 4, "supernodes": "elected"}
SUMMED = {"devices_to_edge": "secure-aggregation"}
FAILING = {"supernode_failure_rate": 0.3, "dropout_rate": 0.2}
TRIALS = 4_000


def elected(case: str, **sections: Any) -> TreePlan:
    plan = hdp_plan(case, topology=ELECTED, **sections)
    assert isinstance(plan, TreePlan)
    return plan


def hdp(case: str, *, topology: Any = None, neighbours: str = "zero-out", **training: Any) -> TreePlan:
    """As `hdp_plan`, with another way of training."""
    once = {"rounds": 2, "local_steps": 2, "edge_every": None}
    plan = tree_plan(
        protocol="hdp",
        topology=topology or {"kind": "tree", "edges": 3, "devices_per_edge": 4},
        training=once | training,
        privacy={"neighbours": neighbours, "noise": {"multiplier": 0.9, "placement": HDP_CASES[case]}},
    )
    assert isinstance(plan, TreePlan)
    return plan


# --- elections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sections",
    [{}, {"transport": SUMMED}, {"transport": SUMMED, "faults": FAILING}],
    ids=["plain", "sums", "failing"],
)
@pytest.mark.parametrize("case", ["C1", "C3"])
def test_audits_of_elections_hold(case: str, sections: dict[str, Any]) -> None:
    plan = elected(case, **sections)
    for observer in ("device:1", "device:4", "device:1,device:2", "device:1,device:5", "edge:0", "cloud"):
        found = audit_pair(plan, "device:0", observer, trials=1_000)
        assert 0 < found.lower.epsilon <= found.upper, found


def test_a_peer_that_may_be_elected_is_nearly_as_dangerous_as_it_is_said_to_be() -> None:
    for sections in ({}, {"transport": SUMMED}):
        found = audit_pair(elected("C1", **sections), "device:0", "device:1", trials=TRIALS)
        assert 0.55 * found.upper < found.lower.epsilon <= found.upper, found


def test_an_accountant_that_forgets_elections_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert audit_pair(elected("C1", transport=SUMMED), "device:0", "device:1", trials=TRIALS).holds
    monkeypatch.setattr("sfumato.privacy.tree.elections._terms_of_office", lambda *_: [((), ())])
    plan = elected("C1", transport=SUMMED)  # a ledger keeps what it has computed
    assert not audit_pair(plan, "device:0", "device:1", trials=TRIALS).holds


def test_a_zone_elects_as_often_as_it_is_said_to() -> None:
    """Against all orders of a zone's devices, for one and for several that serve."""
    tree = elected("C1").tree
    members = (Party("device", 0, 1), Party("device", 0, 2), Party("device", 0, 5))
    for serving in (1, 2, 4):
        terms = [range(4)[:serving], range(4, 8)[:serving], range(8, 12)[:serving]]
        found = coalition_outcomes(tree, 0, members, terms)
        in_office = {2: 0.0, 1: 0.0}
        for chance, party in found:
            for zone in (0, 1):
                if Party("node", 1, zone) in party:
                    in_office[2 - zone] += chance
        for count, chance in in_office.items():
            orders = list(permutations(range(4)))
            held = sum(any(device < count for device in order[:serving]) for order in orders)
            assert chance == pytest.approx(held / len(orders))
        assert sum(chance for chance, _ in found) == pytest.approx(1)
        assert found[0][1] == members


def test_whoever_holds_an_office_knows_its_own_noise_and_the_unit_is_nobodys_observer() -> None:
    tree, edge = elected("C1").tree, Party("node", 1, 0)
    assert held(tree, edge, serving=3) == {edge, Party("device", 0, 3)}
    assert held(tree, edge, serving=0) == set()


def held(tree: Tree, edge: Party, serving: int) -> set[Party]:
    ((chance, members),) = coalition_outcomes(tree, 0, (edge,), [(serving,), (4,), (8,)])
    assert chance == 1
    return set(members)


def test_members_of_many_zones_are_refused() -> None:
    plan = hdp_plan("C1", topology=ELECTED | {"edges": 6})
    observer = ",".join(f"device:{4 * zone + 1}" for zone in range(5))
    with pytest.raises(SpecError, match="at most 4 zones"):
        audit_pair(plan, "device:0", observer, trials=100)


def test_a_failing_supernode_has_met_the_sum_of_a_zone_that_then_sends_nothing() -> None:
    """With ``skip`` the zone sits the round out; what was met in vain is as good as what is sent on."""
    faults = {"supernode_failure_rate": 0.7, "when_supernode_fails": "skip"}
    plan = elected("C1", transport=SUMMED, faults=faults)
    harness = TreeHarness(plan, 0, [Party("node", 1, 0)])
    heard = [
        {key[2] for key in harness.simulate(0, taking_part=True, signs=torch.ones(64), seed=seed)[0][0]}
        for seed in range(12)
    ]
    assert any("met" in how for how in heard)
    assert any("met" not in how and "received" in how for how in heard)
    values = next(
        found
        for seed in range(12)
        for key, found in harness.simulate(0, taking_part=True, signs=torch.ones(64), seed=seed)[0][0].items()
        if key[2] == "met"
    )
    noise = 0.6 * 0.7 * np.sqrt(4)  # of four clients, in their sum
    assert values.mean() == pytest.approx(0.7, abs=4 * noise / 8)
    assert values.std() == pytest.approx(noise, rel=0.4)


# --- who else takes part ------------------------------------------------------------------------


@pytest.mark.parametrize("participation", [{"kind": "poisson", "rate": 0.5}, {"kind": "fixed", "count": 2}])
def test_the_others_are_the_same_whether_the_unit_is_drawn_or_not(participation: dict[str, Any]) -> None:
    """Else an audit would tell rounds apart by who else was drawn, which is independent of the unit."""
    others = [Party("device", 0, device) for device in range(1, 12)]
    plan = hdp("C1", participation=participation)
    harness = TreeHarness(plan, 0, others)
    for seed in range(8):
        present, absent = (
            {
                key[3]
                for key in harness.simulate(0, taking_part=part, signs=torch.ones(4), seed=seed)[0][0]
                if key[2] == "sent"
            }
            for part in (True, False)
        )
        if participation["kind"] == "poisson":
            assert present == absent
        else:  # one device of the unit's zone has its place
            assert len(absent - present) == 1
            assert present < absent
            assert max(absent - present) < 4


# --- devices that are gone ----------------------------------------------------------------------


def gone(**training: Any) -> TreePlan:
    """The relation *remove*: a zone of eighty, draws that the public does not see, noise of the cloud."""
    one_zone = {"kind": "tree", "edges": 1, "devices_per_edge": 80}
    training = {"participation": {"kind": "poisson", "rate": 0.8}} | training
    return hdp("C4", topology=one_zone, neighbours="remove", **training)


def test_a_device_that_is_gone_is_missed_by_whoever_sees_who_takes_part() -> None:
    found = audit_pair(gone(), "device:0", "cloud", trials=TRIALS)
    assert found.upper == np.inf
    assert found.neighbours == "remove"
    assert found.lower.epsilon > 4  # as much as so many trials can show: it took part
    hidden = audit_pair(gone(), "device:0", "public", trials=TRIALS)
    assert 0.3 * hidden.upper < hidden.lower.epsilon <= hidden.upper, hidden


def test_half_the_sensitivity_of_a_device_that_takes_its_weight_along_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All others send the opposite, so that the denominator moves the average by as much as the message."""
    plan = gone(denominator={"kind": "clipped", "min_weight": 70})
    right = audit_pair(plan, "device:0", "public", trials=TRIALS)
    assert 0.3 * right.upper < right.lower.epsilon <= right.upper, right
    monkeypatch.setattr(
        Release, "sensitivity", lambda release, _: release.own_sensitivity + release.propagated_sensitivity
    )
    assert not audit_pair(plan, "device:0", "public", trials=TRIALS).holds

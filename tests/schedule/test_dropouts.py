"""Who is left, who serves: the draws that a run and its account share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from sfumato.errors import SpecError
from sfumato.network.tree import balanced, star
from sfumato.schedule.faults.dropouts import Attendance, succession_of, turnout_of
from sfumato.schedule.participation import threshold_of
from sfumato.schedule.resolve import resolve
from sfumato.schedule.tree import TreePlan
from sfumato.secure_aggregation.server import Phase
from sfumato.spec.document import Spec
from sfumato.spec.faults import Faults


def plan_of(**sections: Any) -> TreePlan:
    document: dict[str, Any] = {
        "name": "faulty",
        "protocol": "hdp",
        "seed": 3,
        "data": {"source": "synthetic", "examples_per_device": 10},
        "topology": {"kind": "tree", "edges": 4, "devices_per_edge": 9, "supernodes": "elected"},
        "training": {"rounds": 4, "local_epochs": 1, "batch_size": 5, "learning_rate": 0.1},
        "privacy": {
            "clip": {"kind": "update", "norm": 1.0},
            "noise": {"multiplier": 1.0, "placement": {"device": 1.0}},
        },
        "transport": {"devices_to_edge": "secure-aggregation"},
    }
    plan = resolve(Spec.model_validate(document | sections))
    assert isinstance(plan, TreePlan)
    return plan


def test_every_phase_takes_its_share() -> None:
    rates = {"advertise": 0.1, "share": 0.2, "mask": 0.05, "consent": 0.1, "unmask": 0.3}
    plan = plan_of(faults={"dropout_rate": rates})
    counts, everybody = np.zeros(6), np.arange(36)
    for number in range(500):
        silent = turnout_of(plan, number, 0, everybody).dropout_phase
        counts += np.bincount(silent, minlength=6)
    left, expected = 1.0, []
    for rate in rates.values():
        expected.append(left * rate)
        left *= 1 - rate
    shares = np.array([*expected, left])
    total = counts.sum()
    assert ((counts - total * shares) ** 2 / (total * shares)).sum() < chi2.isf(1e-6, 5)


def test_a_draw_depends_on_nothing_but_its_address() -> None:
    plan = plan_of(faults={"dropout_rate": 0.3})
    everybody = turnout_of(plan, 2, 0, np.arange(36))
    some = turnout_of(plan, 2, 0, np.arange(9, 18))
    assert np.array_equal(some.dropout_phase, everybody.dropout_phase[9:18])
    assert some.terms == everybody.terms
    assert not np.array_equal(turnout_of(plan, 3, 0, np.arange(36)).dropout_phase, everybody.dropout_phase)


@pytest.mark.parametrize(
    ("least", "parties", "expected"),
    [(None, 100, 67), (None, 9, 7), (0.51, 100, 51), (0.6, 10, 6), (1.0, 7, 7), (0.5001, 4, 3)],
)
def test_thresholds_are_majorities(least: float | None, parties: int, expected: int) -> None:
    assert threshold_of(Faults(survival_threshold=least), parties) == expected
    assert 2 * expected > parties


def test_dropouts_after_masking_are_in_the_sum_and_in_the_count() -> None:
    plan = plan_of(faults={"dropout_rate": {"consent": 0.1}})
    for number in range(20):
        turnout = turnout_of(plan, number, 0, np.arange(36))
        for zone in range(4):
            here = slice(9 * zone, 9 * zone + 9)
            left = int((turnout.dropout_phase[here] == Phase.DONE).sum())
            assert turnout.formed[zone] == (left >= 7)
            assert turnout.received[here].all() == turnout.formed[zone]


def test_a_session_is_repeated_only_with_the_same_survivors() -> None:
    """A message that is in the first sum and not in the second is their difference."""
    plan = plan_of(
        faults={
            "dropout_rate": {"mask": 0.1, "unmask": 0.05},
            "supernode_failure_rate": 0.5,
            "survival_threshold": 0.6,
        }
    )
    repeated, given_up = 0, 0
    for number in range(40):
        turnout = turnout_of(plan, number, 0, np.arange(36))
        for zone, served in enumerate(turnout.terms):
            here = slice(9 * zone, 9 * zone + 9)
            gone = bool((turnout.received[here] & (turnout.dropout_phase[here] != Phase.DONE)).any())
            if len(served) > 1:
                assert not gone
                repeated += 1
            elif gone and not turnout.formed[zone]:
                assert turnout.received[here].sum() >= 6  # the failed supernode met the sum
                given_up += 1
    assert repeated > 10
    assert given_up > 10


def test_a_supernode_whose_zone_sits_out_has_served_all_the_same() -> None:
    plan = plan_of(faults={"supernode_failure_rate": 0.5, "when_supernode_fails": "skip"})
    for number in range(10):
        turnout = turnout_of(plan, number, 0, np.arange(36))
        first = [succession_of(plan.spec.seed, number, plan.tree, zone)[0] for zone in range(4)]
        assert turnout.terms == tuple((device,) for device in first)
        assert turnout.received.all()


def test_attendance_counts_what_was_drawn() -> None:
    plan = plan_of(faults={"supernode_failure_rate": 0.4, "dropout_rate": 0.2})
    kept = Attendance.of(plan, 4)
    assert kept is not None
    for number in range(4):
        turnout = turnout_of(plan, number, 0, np.arange(36))
        assert kept.supernodes[number] == (turnout.terms,)
        for zone in range(4):
            came = int(turnout.received[9 * zone : 9 * zone + 9].sum())
            assert kept.received[number, 0, zone] == came
            assert kept.survivors[number, 0, zone] == (came if turnout.formed[zone] else 0)
    assert kept.terms(36).sum() == sum(len(zone) for number in kept.supernodes for zone in number[0])
    assert Attendance.of(plan_of(topology={"kind": "tree", "edges": 4, "devices_per_edge": 9}), 4) is None


def test_elections_in_runs_are_uniform() -> None:
    tree, zones, wins = balanced((4, 10), ("edge",)), range(4), np.zeros(40)
    for number in range(2500):
        for zone in zones:
            wins[succession_of(7, number, tree, zone)[0]] += 1
    assert wins.reshape(4, 10).sum(axis=1).tolist() == [2500] * 4
    assert ((wins - 250) ** 2 / 250).sum() < chi2.isf(1e-6, 36)
    order = succession_of(7, 0, star(6), 0)
    assert sorted(order) == list(range(6))


def test_elections_take_the_long_seeds_of_audits() -> None:
    seeds = [2**128 - 1, 2**127, 2**64, 0]
    orders = {succession_of(seed, 0, star(20), 0) for seed in seeds}
    assert len(orders) == len(seeds)
    assert all(sorted(order) == list(range(20)) for order in orders)


@pytest.mark.parametrize(
    ("sections", "place"),
    [
        (
            {
                "faults": {"supernode_failure_rate": 0.1},
                "topology": {"kind": "tree", "edges": 2, "devices_per_edge": 4},
            },
            "supernodes",
        ),
        ({"faults": {"survival_threshold": 0.5}}, "survival_threshold"),
        ({"faults": {"survival_threshold": 0.8}, "transport": {}}, "secure aggregation"),
        ({"faults": {"dropout_rate": {"mask": 1.0}}}, "mask"),
    ],
)
def test_refusals(sections: dict[str, Any], place: str) -> None:
    with pytest.raises((SpecError, ValueError), match=place):
        plan_of(**sections)

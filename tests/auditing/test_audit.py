"""Audits of whole plans: below the accountant everywhere, close to it where it is tight."""

from typing import Any

import numpy as np
import pytest
from audit_worlds import HDP_CASES, groups_plan, hdp_plan, star_plan, tree_plan

from sfumato.accounting import pair_guarantee
from sfumato.auditing import audit_pair
from sfumato.schedule.base import Plan


def test_a_plain_gaussian_is_found_to_fifteen_percent() -> None:
    """Central DP in one round: ε = 8, twenty thousand trials in each world, error 1e-6."""
    plan = star_plan(
        protocol="dp-fedavg",
        trust={"cloud": True},
        training={"rounds": 1, "participation": {"kind": "all"}},
        privacy={"noise": {"epsilon": 8.0, "for": "public"}},
    )
    found = audit_pair(plan, "device:0", "public")
    assert found.upper == pytest.approx(8.0, rel=1e-6)
    assert 0.85 * 8 <= found.lower.epsilon <= 8
    assert found.lower.how == "curve"
    assert 8 / 4 <= found.lower.counting <= 8 / 2  # (ε, δ) alone reaches a third


def all_hold(plan: Plan, trials: int = 400) -> dict[tuple[str, str], float]:
    """Audit one of every class of pairs with a promise; the ratios of lower to upper where it is not 0."""
    ratios = {}
    for pair in plan.releases.pair_classes():
        unit, observer = f"device:{pair.unit}", plan.releases.party_name(pair.observer)
        if np.isinf(pair_guarantee(plan, unit, observer, delta=plan.spec.privacy.delta).epsilon):
            continue  # nothing to refute
        finding = audit_pair(plan, unit, observer, trials=trials)
        assert finding.holds, finding
        if finding.upper > 0:
            ratios[unit, observer] = finding.lower.epsilon / finding.upper
    return ratios


def noise(multiplier: float) -> dict[str, Any]:
    return {"privacy": {"noise": {"multiplier": multiplier}}}


POISSON = {"training": {"participation": {"kind": "poisson", "rate": 0.4}}} | noise(1.0)
FIXED = {"training": {"participation": {"kind": "fixed", "count": 2}}} | noise(0.8)
NEAR = 0.25  # 400 trials show little of a small ε, so where participants are drawn there is less noise


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"training": {"global_update": "resend"}},
        {"training": {"global_update": "resend"}, "privacy": {"clip": {"kind": "step", "norm": 1.0}}},
        POISSON,
        FIXED,
        {"privacy": {"neighbours": "replace"}},
        {"privacy": {"clip": {"kind": "step", "norm": 1.0}}},
        {"protocol": "hfl-dp", "trust": {}},
        {"trust": {"trusted_edges": 1.0, "cloud": True}},
        {"topology": {"kind": "tree", "levels": [2, 2, 3], "names": ["region", "edge"]}, "trust": {}}
        | {"training": {"edge_every": None, "aggregate_every": [4, 2], "local_steps": 8}},
    ],
    ids=[
        "plain",
        "resend",
        "resend, step",
        "poisson",
        "fixed",
        "replace",
        "step",
        "untrusted",
        "central",
        "three tiers",
    ],
)
def test_every_pair_of_a_tree_holds(sections: dict) -> None:
    assert max(all_hold(tree_plan(**sections)).values()) > NEAR


def test_own_edge_and_peers_are_nearly_met() -> None:
    """Where the accountant is exact, the attack comes close."""
    plan = tree_plan()
    for unit, observer in [("device:4", "edge:1"), ("device:0", "device:1"), ("device:0", "cloud")]:
        finding = audit_pair(plan, unit, observer, trials=4_000)
        assert finding.lower.epsilon > 0.6 * finding.upper, finding


def test_a_coalition_knows_its_own_noise() -> None:
    plan = tree_plan(privacy={"noise": {"multiplier": 1.0}})
    alone = audit_pair(plan, "device:4", "public", trials=2_000)
    together = audit_pair(plan, "device:4", "public,device:5,device:6,device:7", trials=2_000)
    assert together.lower.mu is not None
    assert alone.lower.mu is not None
    assert together.lower.mu > 1.5 * alone.lower.mu
    assert together.holds


def test_who_sees_the_draw_learns_more_than_who_does_not() -> None:
    plan = star_plan(trust={"cloud": True}, protocol="dp-fedavg", **noise(0.6))
    public, cloud = (audit_pair(plan, "device:0", o, trials=2_000) for o in ("public", "cloud"))
    assert NEAR * public.upper < public.lower.epsilon <= public.upper
    assert np.isinf(cloud.upper)
    assert cloud.holds
    assert cloud.lower.epsilon > 10 > public.upper


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"trust": {"trusted_aggregators": []}},
        {"trust": {"trusted_aggregators": [0, 1]}},
        {"protocol": "dp-ogl-local"},
        {"training": {"participation": {"kind": "all"}}},
        {"training": {"participation": {"kind": "fixed", "count": 2}}, "trust": {"trusted_aggregators": []}},
    ],
    ids=["dp-ogl", "untrusted", "some trusted", "dp-ogl-local", "all", "fixed cohorts, untrusted"],
)
def test_every_pair_of_groups_holds(sections: dict) -> None:
    assert max(all_hold(groups_plan(**sections, **noise(0.8))).values()) > NEAR


def test_pairs_of_groups_with_fixed_cohorts_hold() -> None:
    """Other workers send zeros, so that whoever takes the unit's place tells little of the draw."""
    plan = groups_plan(training={"participation": {"kind": "fixed", "count": 2}}, **noise(0.8))
    assert max(all_hold(plan).values()) > 0.05


def test_dp_ogl_plus_promises_nothing_in_a_group_and_is_not_heard_outside() -> None:
    plan = groups_plan(protocol="dp-ogl+")
    assert set(all_hold(plan).values()) == {0.0}
    master = audit_pair(plan, "device:0", "master:0", trials=400)
    assert np.isinf(master.upper)
    assert master.lower.epsilon > 10


def test_a_group_without_draws_is_nearly_met() -> None:
    plan = groups_plan(training={"participation": {"kind": "all"}, "rounds": 12})
    finding = audit_pair(plan, "device:0", "device:1", trials=4_000)
    assert 0.5 * finding.upper < finding.lower.epsilon <= finding.upper


def test_who_is_too_far_away_for_the_rounds_hears_nothing() -> None:
    """Two merging steps reach the groups next to the unit's, and no others."""
    plan = groups_plan(training={"participation": {"kind": "all"}})
    found = audit_pair(plan, "device:1", "device:7", trials=500)
    assert found.lower.epsilon == found.upper == 0


@pytest.mark.parametrize("summed", [False, True], ids=["plain", "secure aggregation"])
@pytest.mark.parametrize("case", HDP_CASES)
def test_every_pair_of_the_cases_of_hdp_holds(case: str, summed: bool) -> None:
    hops = {"transport": {"devices_to_edge": "secure-aggregation"}} if summed else {}
    ratios = all_hold(hdp_plan(case, **hops))
    assert max(ratios.values()) > NEAR


def test_a_sum_hides_one_device_behind_the_noise_of_all() -> None:
    """C1: four clients' noise towards their supernode with secure aggregation, the sender's own without."""
    plain = audit_pair(hdp_plan("C1"), "device:0", "edge:0", trials=2_000)
    summed = audit_pair(
        hdp_plan("C1", transport={"devices_to_edge": "secure-aggregation"}),
        "device:0",
        "edge:0",
        trials=2_000,
    )
    assert plain.lower.mu is not None
    assert summed.lower.mu is not None
    assert summed.holds
    assert summed.lower.mu < 0.6 * plain.lower.mu


def test_equal_calls_find_equal_bounds() -> None:
    plan = tree_plan()
    first, second = (audit_pair(plan, "device:4", "edge:1", trials=300) for _ in range(2))
    assert first.lower == second.lower
    assert first.one_run == second.one_run

"""HDP's claims beside rigorous figures, and the worst coalitions of clients."""

import json
import math
from itertools import combinations

import pytest
from places import ROOT

from sfumato.accounting import account, pair_guarantee
from sfumato.claims.hdp import epsilon_by_old_conversion, noisers_of
from sfumato.schedule.resolve import resolve
from sfumato.schedule.rows.coalitions import tolerated_sizes, worst_coalitions
from sfumato.spec.load import load_spec

EXAMPLES = ROOT / "examples" / "hdp"
ELECTED = "topology={edges: 10, devices_per_edge: 10, supernodes: elected}"


def report(case, *overrides):
    return account(load_spec(EXAMPLES / f"{case}.yaml", overrides))


def test_the_papers_conversion_gives_its_table_three():
    """CIFAR: 24.80, and over sqrt(10) and sqrt(100); MATH, section 4 (7.48 is a misprint for 7.84)."""
    epsilon = epsilon_by_old_conversion(1.0, 0.2, 200, 1e-5)
    assert epsilon == pytest.approx(24.807, abs=1e-3)
    assert math.floor(100 * epsilon) == 2480
    assert epsilon / math.sqrt(10) == pytest.approx(7.84, abs=5e-3)
    assert epsilon / 10 == pytest.approx(2.48, abs=5e-3)


def test_the_conversion_without_sampling_is_close_to_its_closed_form():
    rho = 50 / (2 * 4.0**2)
    closed = rho + 2 * math.sqrt(rho * math.log(1e5))
    assert closed <= epsilon_by_old_conversion(4.0, 1.0, 50, 1e-5) <= 1.02 * closed


@pytest.mark.parametrize(
    ("case", "total"),
    [("c1", 100), ("c2", 10), ("c3", 55), ("c4", 1), ("c5", 51), ("c6", 6), ("c7", 44)],
)
def test_table_one_as_the_text_counts_it(case, total):
    found = report(case)
    noisers = noisers_of(found.plan)
    assert (noisers.case, noisers.total) == (case.upper(), total)
    each = epsilon_by_old_conversion(1.1, 1.0, 20, 1e-5)
    for claim in (c for c in found.claims if "Table I" in c.source):
        assert claim.claimed_epsilon == pytest.approx(each / math.sqrt(total))
        rigorous = found.epsilon(claim.unit, claim.observer)
        assert claim.rigorous_epsilon == pytest.approx(rigorous)
        assert claim.holds == (rigorous <= claim.claimed_epsilon)
    assert {c.observer for c in found.claims if "Table I" in c.source} == {"cloud", "public"}


def test_a_claim_that_holds_towards_the_cloud_says_what_the_cloud_meets():
    """With two edges dividing by the root of all devices errs less than the cloud's view of each edge."""
    found = report("c1", "topology.edges=2")
    (cloud,) = [c for c in found.claims if c.observer == "cloud"]
    (public,) = [c for c in found.claims if c.observer == "public"]
    assert cloud.holds
    assert public.holds
    assert "the cloud meets every edge's message before the sum" in cloud.why
    assert "only the sum of all noise" not in cloud.why
    assert "this observer meets only the sum of all noise" in public.why


def test_a_claim_fails_for_the_reason_given():
    cloud = next(c for c in report("c2").claims if c.observer == "cloud")
    assert not cloud.holds
    assert "before the sum" in cloud.why
    plain, secure = (
        next(c for c in report("c1", f"transport.devices_to_edge={t}").claims if c.observer == "edge:0")
        for t in ("plain", "secure-aggregation")
    )
    assert (plain.holds, secure.holds) == (False, True)
    assert "(D3)" in plain.why
    peer = next(c for c in report("c2", ELECTED).claims if c.observer == "device:1")
    assert peer.rigorous_epsilon == math.inf
    assert "(D6)" in peer.why


def test_a_zone_has_the_noise_of_its_own_devices_and_the_rule_of_another_case_is_said_to_be_one():
    in_c3, in_c7 = (next(c for c in report(case).claims if c.observer == "edge:1") for case in ("c3", "c7"))
    assert in_c3.holds
    assert in_c3.source.startswith("HDP Sec. V, Case 3, C3:")
    assert "with the noise of the zone's 10 devices" in in_c3.why
    assert "states this ε for Case 3" not in in_c3.why
    assert in_c7.source.startswith("HDP Sec. V, rule of Case 3, C7:")
    assert "the paper states this ε for Case 3 alone" in in_c7.why
    assert all("by the paper's accountant as it is read here" in c.why for c in (in_c3, in_c7))


def test_no_claim_without_placement_by_zone():
    assert report("c1", "privacy.noise={epsilon: 2.0, for: cloud}").claims == ()


# --- coalitions -------------------------------------------------------------------------------------


def test_sizes_go_up_to_a_third():
    assert tolerated_sizes(100) == tuple(range(1, 34))
    assert tolerated_sizes(9) == (1, 2)
    assert tolerated_sizes(3) == ()
    many = tolerated_sizes(10**6)
    assert (many[0], many[-1]) == (1, 400)
    assert len(many) <= 40


SMALL = "{edges: 3, devices_per_edge: 3"


@pytest.mark.parametrize("case", ["c1", "c3", "c5", "c6"])
@pytest.mark.parametrize("elected", ["fixed", "elected"])
def test_the_worst_coalition_is_the_worst_of_all(case, elected):
    """Every coalition of up to three of nine clients."""
    topology = f"topology={SMALL}, supernodes: {elected}}}"
    overrides = [topology, "training.rounds=4", "privacy.delta=0.01"]
    plan = resolve(load_spec(EXAMPLES / f"{case}.yaml", overrides))
    for unit in {pair.unit for pair in plan.releases.pair_classes()}:
        for found in worst_coalitions(plan, unit, (1, 2, 3), 0.01):
            others = [d for d in range(9) if d != unit]
            worst = max(
                pair_guarantee(plan, f"device:{unit}", ",".join(f"device:{d}" for d in o), delta=0.01).epsilon
                for o in combinations(others, found.size)
            )
            assert found.epsilon == pytest.approx(worst)
            named = pair_guarantee(plan, f"device:{unit}", found.observer, delta=0.01).epsilon
            assert named == pytest.approx(found.epsilon)
            assert found.supernode_epsilon >= found.epsilon * (1 - 1e-9)


def test_masks_come_off_with_enough_colluders_at_the_edge():
    """Of 10 devices under an edge, 7 shares rebuild a mask; fewer colluders at the edge do not."""
    plan = resolve(load_spec(EXAMPLES / "c7.yaml", ["training.rounds=2"]))
    unit = next(pair.unit for pair in plan.releases.pair_classes() if pair.unit == 10)
    six, seven = worst_coalitions(plan, unit, (6, 7), 1e-5)
    assert seven.supernode_epsilon > 1.5 * six.supernode_epsilon
    assert seven.supernode_in_zone == 7
    eight = worst_coalitions(plan, unit, (8,), 1e-5)[0]
    assert eight.supernode_in_zone >= 7 > eight.in_zone


def test_coalitions_are_in_the_json_of_hdp_only():
    rows = json.loads(json.dumps(report("c1").to_dict()))["coalitions"]
    assert [row["size"] for row in rows] == list(range(1, 34))
    z_root = [row["epsilon"] for row in rows]
    assert z_root == sorted(z_root)
    assert "coalitions" not in account(load_spec("quickstart")).to_dict()
    assert account(load_spec(EXAMPLES / "c1.yaml"), unit="device:0").coalitions == ()

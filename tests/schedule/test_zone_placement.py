"""HDP: where noise is placed, what everybody meets in the seven cases, weights, denominators, faults."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from sfumato.accounting import account
from sfumato.errors import SpecError
from sfumato.privacy.charges import ways_to_charge
from sfumato.privacy.observers import Party
from sfumato.schedule.participation import guaranteed_survivors_of, threshold_of
from sfumato.schedule.resolve import resolve
from sfumato.spec.faults import Faults
from sfumato.spec.load import dump_spec, load_spec

EXAMPLES = ROOT / "examples" / "hdp"
Z, M, S = 1.1, 10, 10
K = M * S
INF = math.inf


def load(case, *overrides):
    return resolve(load_spec(EXAMPLES / f"{case}.yaml", overrides))


def multiplier(plan, unit, observer, round_count=20):
    """Effective noise multiplier of one round, from mu of what is charged."""
    exposure = plan.releases.exposures(unit, (observer,))[0]
    if any(r.variance == 0 for r in exposure.releases):
        return 0.0
    square = sum(
        count * (r.own_sensitivity + r.propagated_sensitivity) ** 2 / r.variance
        for r, count in exposure.counted_releases
    )
    return math.sqrt(round_count / square)


def met(plan, coalition):
    """The effective multiplier of device 0's one release a round towards ``coalition``."""
    (release,) = plan.releases.exposures(0, coalition)[0].releases
    return math.sqrt(release.variance) / release.own_sensitivity


def units(plan):
    """A unit for each kind of noise: added by the device itself, by its zone, by neither."""
    declared, noise = plan.releases, plan.noise
    found = {}
    for device in range(declared.device_count):
        leaf = declared.leaf_of(device)
        own = noise.device[leaf].any() and declared.classes.noisy[declared.class_of(device)]
        kind = "own" if own else "zone" if noise.node[-1][leaf].any() else "neither"
        found.setdefault(kind, device)
    return found


# (case, kind of unit) -> supernode without and with secure aggregation, cloud, public; MATH, section 2.
TABLE = {
    ("c1", "own"): (Z, Z * math.sqrt(M), Z * math.sqrt(M), Z * math.sqrt(K)),
    ("c2", "zone"): (0, 0, Z, Z * math.sqrt(S)),
    ("c3", "own"): (Z, Z * math.sqrt(M), Z * math.sqrt(M), Z * math.sqrt(0.5 * K + 0.5 * S)),
    ("c3", "zone"): (0, 0, Z, Z * math.sqrt(0.5 * K + 0.5 * S)),
    ("c4", "neither"): (0, 0, 0, Z),
    ("c5", "own"): (Z, Z * math.sqrt(5), Z * math.sqrt(5), Z * math.sqrt(0.5 * K + 1)),
    ("c5", "neither"): (0, Z * math.sqrt(5), Z * math.sqrt(5), Z * math.sqrt(0.5 * K + 1)),
    ("c6", "zone"): (0, 0, Z, Z * math.sqrt(0.5 * S + 1)),
    ("c6", "neither"): (0, 0, 0, Z * math.sqrt(0.5 * S + 1)),
    ("c7", "own"): (Z, Z * math.sqrt(M), Z * math.sqrt(M), Z * math.sqrt(0.4 * K + 0.3 * S + 1)),
    ("c7", "zone"): (0, 0, Z, Z * math.sqrt(0.4 * K + 0.3 * S + 1)),
    ("c7", "neither"): (0, 0, 0, Z * math.sqrt(0.4 * K + 0.3 * S + 1)),
}


@pytest.mark.parametrize(("case", "kind"), TABLE)
def test_the_seven_cases_have_the_multipliers_of_the_table(case, kind):
    plain, secure, cloud, public = TABLE[case, kind]
    for transport, supernode in (("plain", plain), ("secure-aggregation", secure)):
        plan = load(case, f"transport.devices_to_edge={transport}")
        unit = units(plan)[kind]
        own = Party("node", 1, plan.releases.leaf_of(unit))
        found = [multiplier(plan, unit, o) for o in (own, Party("node", 0, 0), Party("public"))]
        assert found == pytest.approx([supernode, cloud, public], rel=1e-3)


@pytest.mark.parametrize("case", ["c1", "c2", "c3", "c4", "c5", "c6", "c7"])
def test_the_table_covers_every_kind_of_unit_and_the_plan_freezes(case, tmp_path):
    plan = load(case)
    assert {kind for name, kind in TABLE if name == case} == set(units(plan))
    path = tmp_path / "spec.yaml"
    path.write_text(dump_spec(plan.spec), encoding="utf-8")
    for again in (resolve(plan.spec), resolve(load_spec(path, ["seed=5"]))):
        assert again.releases.to_dict() == plan.releases.to_dict()
    assert [e.relation.words for e in plan.releases.pair_classes()].count("public") == len(units(plan))


def test_secure_aggregation_among_zones_hides_the_zones_from_the_cloud():
    plan = load("c2", "transport.edge_to_cloud=secure-aggregation")
    cloud = Party("node", 0, 0)
    assert multiplier(plan, 0, cloud) == pytest.approx(Z * math.sqrt(S))
    exposure = plan.releases.exposures(0, (cloud, Party("node", 1, 3)))[0]
    (release,) = exposure.releases  # the cloud and another zone's supernode, which knows what it sent
    assert math.sqrt(release.variance) / release.own_sensitivity == pytest.approx(Z * math.sqrt(S - 1))


def test_the_clouds_own_noise_protects_nobody_from_it():
    plan = load("c4", "transport.edge_to_cloud=secure-aggregation")
    assert multiplier(plan, 0, Party("node", 0, 0)) == 0
    assert multiplier(plan, 0, Party("public")) == pytest.approx(Z)


# --- placement --------------------------------------------------------------------------------------


def placed(placement, *more):
    return load("c1", f"privacy.noise={{multiplier: 1.1, placement: {placement}}}", *more)


def test_shares_are_rounded_half_up_and_disjoint():
    plan = placed("{device: 0.5, edge: 0.5}", "topology.edges=5")
    device, edge = (set(np.flatnonzero(a.any(axis=1))) for a in (plan.noise.device, plan.noise.node[1]))
    assert (len(device), len(edge)) == (3, 2)
    assert not device & edge
    assert len(np.flatnonzero(placed("{edge: 0.25}", "topology.edges=10").noise.node[1].any(axis=1))) == 3


def test_lists_say_which_zones_and_which_clients():
    plan = placed("{device: [0, 2], edge: [7]}")
    assert list(np.flatnonzero(plan.noise.device.any(axis=1))) == [0, 2]
    assert list(np.flatnonzero(plan.noise.node[1].any(axis=1))) == [7]
    some = placed("{device_fraction: [0, 1, 2, 7], cloud: true}")
    owners = {owner for source in some.spec.privacy.noise.sources for owner in source.owners}
    assert owners == {"cloud", *(f"edge:{i}/devices:0-2,7" for i in range(10))}
    assert some.device_stds_of(0, np.arange(10)).tolist() == [1.1, 1.1, 1.1, 0, 0, 0, 0, 1.1, 0, 0]


def test_a_share_beside_a_list_is_drawn_from_the_other_zones():
    plan = placed("{device: [1, 2, 3], edge: 0.5}")
    edges = set(np.flatnonzero(plan.noise.node[1].any(axis=1)))
    assert len(edges) == 5
    assert not edges & {1, 2, 3}


def test_clients_noise_and_the_edges_too():
    """All clients and all supernodes at once: two layers of noise."""
    plan = placed("{device_fraction: 1.0, edge: 1.0}")
    found = multiplier(plan, 0, Party("node", 0, 0))
    assert found == pytest.approx(Z * math.sqrt(M + 1))


@pytest.mark.parametrize(
    ("placement", "place"),
    [
        ("{device: 0.7, edge: 0.5}", "edge"),
        ("{device: [0, 1], edge: [1]}", "edge"),
        ("{device: [0, 0]}", "device"),
        ("{edge: [10]}", "edge"),
        ("{device: [0, 1, 2], edge: 0.8}", "edge"),
        ("{device: 0.5, device_fraction: 0.5}", "device_fraction"),
        ("{device_fraction: [10]}", "device_fraction"),
    ],
)
def test_placements_that_contradict_themselves_are_refused(placement, place):
    with pytest.raises(SpecError) as caught:
        placed(placement)
    assert caught.value.place == f"privacy.noise.placement.{place}"


@pytest.mark.parametrize(
    ("override", "place"),
    [
        ("training.edge_every=1", "training.edge_every"),
        ("training.global_update=resend", "training.global_update"),
        ("privacy.clip={kind: step, per_layer: [1.0]}", "per_layer"),
        ("privacy.clip={kind: update, norm: 2.0, per_layer: [1.0, 1.0]}", "norm"),
    ],
)
def test_what_hdp_does_not_do_is_refused(override, place):
    with pytest.raises(SpecError) as caught:
        load("c1", "training.local_epochs=null", "training.local_steps=5", override)
    assert place in str(caught.value)


@pytest.mark.parametrize("owners", ["edge:0/devices:0-10", "edge:0/devices:3-1", "edge:0/devices:x"])
def test_owners_that_do_not_exist_are_refused(owners):
    with pytest.raises(SpecError, match="devices 0 to 9"):
        load("c1", f"privacy.noise={{sources: [{{owners: ['{owners}'], multipliers: [1.0, 0.0]}}]}}")


def test_without_placement_trust_decides():
    plan = load("c1", "privacy.noise={multiplier: 1.0}", "trust.trusted_edges=[3]")
    assert list(np.flatnonzero(plan.noise.node[1].any(axis=1))) == [3]
    assert not plan.noise.device[3].any()


# --- the draw ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transport", "observer", "blind"),
    [
        ("plain", Party("node", 0, 0), False),  # HDP's cloud knows who is online
        ("plain", Party("public"), True),
        ("plain", Party("device", 0, 1), True),
        ("secure-aggregation", Party("device", 0, 1), False),  # sees part of the cohort
        ("secure-aggregation", Party("device", 0, 15), True),
    ],
)
def test_who_sees_the_draw(transport, observer, blind):
    plan = load(
        "c2", "training.participation={kind: poisson, rate: 0.2}", f"transport.devices_to_edge={transport}"
    )
    assert plan.releases.exposures(0, (observer,))[0].draw_hidden is blind


@pytest.mark.parametrize(
    ("overrides", "amplified"),
    [
        ([], True),
        (["faults={dropout_rate: 0.3}", "transport={}"], True),  # whoever is missing is missed alone
        (["faults={dropout_rate: 0.3}"], False),  # the unit may be who brings its zone to the threshold
    ],
)
def test_a_sum_that_may_be_missing_tells_of_the_draw(overrides, amplified):
    plan = load("c2", "training.participation={kind: poisson, rate: 0.1}", *overrides)
    exposure = plan.releases.exposures(0, (Party("public"),))[0]
    assert exposure.draw_hidden
    assert all(release.noise_is_draw_independent for release in exposure.releases) is amplified
    (charge,) = ways_to_charge(exposure, "zero-out")
    assert charge.terms[0].sampling.hidden == amplified


# --- colluders take masks off --------------------------------------------------------------------------


def test_a_supernode_with_a_threshold_of_colluders_meets_single_messages():
    """Each client hands shares of its secrets to its zone: seven of ten rebuild anybody's."""
    plan = load("c1")
    for colluders, expected in ((0, math.sqrt(10)), (6, math.sqrt(4)), (7, 1.0), (8, 1.0)):
        coalition = (Party("node", 1, 0), *(Party("device", 0, d) for d in range(1, colluders + 1)))
        assert met(plan, coalition) == pytest.approx(Z * expected)
        elsewhere = (Party("node", 1, 0), *(Party("device", 0, d) for d in range(10, 10 + colluders)))
        assert met(plan, elsewhere) == pytest.approx(Z * math.sqrt(10))
    everybody = tuple(Party("device", 0, d) for d in range(1, 9))
    assert met(plan, everybody) == pytest.approx(Z * math.sqrt(K - 8))  # without the supernode: the sum
    strict = load("c1", "faults={survival_threshold: 1.0}")
    assert met(strict, (Party("node", 1, 0), *everybody)) == pytest.approx(Z * math.sqrt(2))


def test_a_session_is_of_those_drawn():
    """Of four drawn, three rebuild a fourth's masks, whoever else belongs to the zone."""
    plan = load("c1", "training.participation={kind: fixed, count: 4}")
    for colluders, expected in ((0, 2.0), (2, math.sqrt(2)), (3, 1.0)):
        coalition = (Party("node", 1, 0), *(Party("device", 0, d) for d in range(1, colluders + 1)))
        assert met(plan, coalition) == pytest.approx(Z * expected)
    assert plan.releases.view(coalition, 0).how(1, 0) == "single"
    assert [s.tolist() for s in plan.releases.unmask_thresholds] == [[7], [3] * 10]


def test_the_cloud_with_a_threshold_of_supernodes_meets_single_zones():
    plan = load("c2", "transport.edge_to_cloud=secure-aggregation")
    for colluders, expected in ((0, math.sqrt(10)), (6, 2.0), (7, 1.0)):
        coalition = (Party("node", 0, 0), *(Party("node", 1, z) for z in range(1, colluders + 1)))
        assert met(plan, coalition) == pytest.approx(Z * expected)


def test_an_elected_supernode_is_one_of_the_colluders():
    plan = load("c1", "topology.supernodes=elected")
    coalition = (Party("node", 1, 0), *(Party("device", 0, d) for d in range(1, 7)))
    assert met(plan, coalition) == pytest.approx(Z)  # six, and whoever holds the office


# --- weights and denominators --------------------------------------------------------------------------

CAPPED = ["data={source: digits, partition: {kind: iid, size_sigma: 0.8}}", "training.weights={examples: 20}"]


def test_a_device_that_counts_less_hides_behind_more_noise():
    """MATH, section 2: with weights z sqrt(sum w^2) / w_u."""
    plan = load("c1", *CAPPED)
    weights = plan.weights_of(np.arange(K))
    assert 0 < weights.min() < weights.max() == 1.0
    for unit in (int(weights.argmin()), int(weights.argmax())):
        zone = weights[unit // M * M : unit // M * M + M]
        expected = Z * math.sqrt((zone**2).sum()) / weights[unit]
        assert multiplier(plan, unit, Party("node", 1, unit // M)) == pytest.approx(expected)
        own = multiplier(load("c1", *CAPPED, "transport={}"), unit, Party("node", 1, unit // M))
        assert own == pytest.approx(Z)
    np.testing.assert_allclose(plan.participants.count, weights.reshape(S, M).sum(axis=1))
    np.testing.assert_allclose(plan.bounds_of(0, np.arange(K)), weights)
    np.testing.assert_allclose(plan.device_stds_of(0, np.arange(K)), Z * weights)


def test_an_edge_noises_what_a_device_of_full_weight_could_do():
    plan = load("c2", *CAPPED)
    weights = plan.weights_of(np.arange(K))
    np.testing.assert_allclose(plan.releases.steps[0].node_std[1], Z / weights.reshape(S, M).sum(axis=1))
    unit = int(weights.argmin())
    assert multiplier(plan, unit, Party("node", 0, 0)) == pytest.approx(Z / weights[unit])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.floats(0.05, 1.0), st.sampled_from((-1.0, 1.0))), min_size=1, max_size=6),
    st.floats(0.1, 5.0),
)
def test_leaving_a_device_out_moves_a_clipped_average_by_at_most_twice_its_share(devices, least):
    """|sum w x / max(D, sum w)| with and without a device: 2 w / D, the sensitivity that is charged."""
    weights, signs = map(np.array, zip(*devices, strict=True))
    whole = (weights * signs).sum() / max(least, weights.sum())
    rest = (weights * signs)[1:].sum() / max(least, weights[1:].sum())
    assert abs(whole - rest) <= 2 * weights[0] / least + 1e-12


def test_a_clipped_denominator_doubles_the_noise_behind_it():
    """Noise is sized for a device that is gone with its weight; one that sends zeros moves half as much."""
    options = ["training.denominator={min_weight: 4}", "training.participation={kind: poisson, rate: 0.5}"]
    plan = load("c2", *options)
    (release,) = plan.releases.exposures(0, (Party("node", 0, 0),))[0].releases
    assert release.sensitivity("zero-out") == pytest.approx(1 / (0.5 * 4))
    assert release.sensitivity("remove") == pytest.approx(2 / (0.5 * 4))
    assert release.variance == pytest.approx((Z * 2 / (0.5 * 4)) ** 2)
    np.testing.assert_allclose(plan.denominators_of(np.arange(3)), [3.0] + [2.0] * 9)
    np.testing.assert_allclose(plan.releases.largest_denominators, 10.0)
    np.testing.assert_allclose(load("c2").denominators_of(np.arange(3)), 10.0)


def test_weights_need_sizes_that_are_known():
    two = "{kind: two-level, edge: {kind: iid}, device: {kind: labels, labels_per_device: 2}}"
    with pytest.raises(SpecError, match="sizes are known"):
        load("c1", f"data={{source: digits, partition: {two}}}", "training.weights={examples: 20}")


def test_per_layer_clipping_is_bounded_by_the_root_of_the_squares():
    plan = load("c1", "privacy.clip={kind: update, per_layer: [3.0, 4.0]}")
    assert plan.message_scale(0) == pytest.approx(5.0)
    again = resolve(plan.spec)
    assert again.spec.privacy.clip.per_layer == (3.0, 4.0)


# --- faults --------------------------------------------------------------------------------------------


def test_only_the_fewest_survivors_are_counted_on():
    plan = load("c1", "faults={dropout_rate: 0.1, survival_threshold: 0.6}")
    assert threshold_of(plan.spec.faults, M) == 6
    assert multiplier(plan, 0, Party("node", 1, 0)) == pytest.approx(Z * math.sqrt(6))
    # other zones may send nothing, so their noise is not counted on
    assert multiplier(plan, 0, Party("public")) == pytest.approx(Z * math.sqrt(6))
    loose = load("c1", "faults={dropout_rate: 0.1}", "transport={}")
    assert multiplier(loose, 0, Party("node", 0, 0)) == pytest.approx(Z)  # alone, perhaps


def test_failing_supernodes_are_succeeded_and_their_zones_may_be_missing():
    plan = load("c2", "faults={supernode_failure_rate: 0.2}", "topology.supernodes=elected")
    assert plan.releases.elections == pytest.approx(1.25)
    assert multiplier(plan, 0, Party("public")) == pytest.approx(Z)
    skipping = guaranteed_survivors_of(
        Faults(supernode_failure_rate=0.2, when_supernode_fails="skip"),
        "plain",
        np.array([5.0]),
        by_chance=False,
    )
    assert skipping.elections == 1.0
    assert not skipping.all_nodes_always_send


# --- size ----------------------------------------------------------------------------------------------


def test_a_million_devices_in_a_thousand_rounds():
    plan_of = load_spec(
        EXAMPLES / "c5.yaml",
        [
            "data={source: synthetic, examples_per_device: 20}",
            "topology={edges: 1000, devices_per_edge: 1000}",
            "training.rounds=1000",
        ],
    )
    report = account(plan_of)
    total = 10**6 * (1000 + 2 + 10**6 - 1)
    assert sum(row.stands_for for row in report.guarantees) == total
    public = next(row for row in report.guarantees if row.relation.words == "public")
    assert f"{Z * math.sqrt(500_001):.4g}" in public.why


# --- zones -----------------------------------------------------------------------------------------------


def test_zones_by_data_say_what_they_tell():
    told = load("c1", "topology.zones=data").notes
    assert any("not accounted" in note for note in told)
    assert not any("not accounted" in note for note in load("c1", "topology.zones=random").notes)

"""Placement, elections, weights and layers' norms where a round has several aggregations (docs/hdp.md)."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import sfumato as sf
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.privacy.release import total_mu_squared
from sfumato.schedule.resolve.tree import resolve_tree

ROUNDS, M, Z, DELTA = 4, 5, 1.5, 1e-5


def h2fdp(*changes, edges=2, **sections):
    """Two aggregations a round: the edges' after step 1, the cloud's after step 2."""
    spec = {
        "name": "zoned",
        "protocol": "h2fdp",
        "data": {"source": "synthetic", "examples_per_device": 20},
        "topology": {"kind": "tree", "edges": edges, "devices_per_edge": M},
        "training": {
            "rounds": ROUNDS, "local_steps": 2, "edge_every": 1, "batch_size": 4, "learning_rate": 0.1,
        },
        "privacy": {"delta": DELTA, "clip": {"kind": "update", "norm": 1}, "noise": {"multiplier": Z}},
    }  # fmt: skip
    return sf.load_spec(spec | sections, changes)


ELECTED = "topology.supernodes=elected"


def mixture(out, held, chance):
    """Epsilon where a round costs ``held`` in office, with probability ``chance``, and ``out`` else."""
    times = np.arange(ROUNDS + 1)
    weights = binom.pmf(times, ROUNDS, chance)
    squares = ROUNDS * out + times * (held - out)

    def delta(epsilon):
        return sum(
            w * float(gaussian.delta(epsilon=epsilon, mu=math.sqrt(s)))
            for w, s in zip(weights, squares, strict=True)
        )

    low, high = 0.0, 200.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) > DELTA else (low, middle)
    return high


# --- elections -----------------------------------------------------------------------------------


def test_an_office_shows_every_aggregation_of_its_round():
    """A peer, noise at devices: the edge's and the global average out of office, single messages in it."""
    row = sf.account(h2fdp(ELECTED), unit="device:0", observer="device:1").guarantees[0]
    out = (1 / (M - 1) + 1 / (2 * M - 1)) / Z**2
    held = 2 / Z**2
    assert row.epsilon == pytest.approx(mixture(out, held, 1 / M), rel=1e-4)


def test_who_holds_the_office_in_every_round_meets_it_always():
    row = sf.account(h2fdp(ELECTED), unit="device:0", observer="edge:0").guarantees[0]
    assert row.epsilon == pytest.approx(gaussian.epsilon(delta=DELTA, mu=math.sqrt(2 * ROUNDS) / Z), rel=1e-6)


def test_a_round_in_office_is_charged_by_the_bound_of_the_rounds_out_of_it():
    """Zone 0 adds little noise of its own; zone 1's members never see its average, and flow charges it.

    The cut bound charges the global aggregation alone, other devices as replaced, and so does the increment
    of a round in which a member holds the office of zone 1 and takes that zone's noise off.
    """
    placed = h2fdp(ELECTED, "privacy.noise.placement={edge: [0], device: [1]}")
    plan = resolve_tree(placed)
    quiet = replace(plan.releases, elections=0.0)
    member, office = Party("device", 0, M), Party("node", 1, 1)
    found = {e.bound_name: e for e in plan.releases.exposures(0, (member,))}
    for number, name in enumerate(("flow", "cut")):
        out, held = (
            total_mu_squared(quiet.exposures(0, coalition)[number].releases, "zero-out")
            for coalition in ((member,), (member, office))
        )
        assert held > out > 0
        epsilon = plan.releases.bound_epsilon(found[name], delta=DELTA, neighbours="zero-out").epsilon
        assert epsilon == pytest.approx(mixture(out, held, 1 / M), rel=1e-4), name
    squares = [total_mu_squared(e.releases, "zero-out") for e in quiet.exposures(0, (member,))]
    assert squares[0] != pytest.approx(squares[1])  # else the test cannot tell the two bounds apart


def test_zones_elect_once_a_round(tmp_path):
    run = sf.run(h2fdp(ELECTED, "training.rounds=3"), out=tmp_path / "run")
    held = json.loads((run.folder.path / "ledger.json").read_text("utf-8"))["realised"]["supernodes"]
    assert [len(aggregations) for aggregations in held] == [2, 2, 2]
    assert all(first == second for first, second in held)
    assert len({str(aggregations) for aggregations in held}) > 1


# --- placement -----------------------------------------------------------------------------------


def test_noise_is_added_at_every_aggregation_a_message_is_part_of():
    plan = resolve_tree(h2fdp("privacy.noise.placement={device: [0], edge: [1], cloud: true}"))
    assert plan.noise.device.tolist() == [[Z, Z], [0, 0]]
    assert plan.noise.node[1].tolist() == [[0, 0], [Z, Z]]
    assert plan.noise.node[0].tolist() == [[Z, 0]]  # the cloud aggregates at the end of a round only
    (own,) = sf.account(plan.spec, unit="device:0", observer="edge:0").guarantees
    assert own.epsilon == pytest.approx(gaussian.epsilon(delta=DELTA, mu=math.sqrt(2 * ROUNDS) / Z), rel=1e-6)
    (raw,) = sf.account(plan.spec, unit=f"device:{M}", observer="edge:1").guarantees
    assert raw.epsilon == math.inf
    (cloud,) = sf.account(plan.spec, unit=f"device:{M}", observer="cloud").guarantees
    assert cloud.bounds["flow"].epsilon == pytest.approx(own.epsilon, rel=1e-6)


def test_devices_that_add_none_hide_behind_those_that_do():
    plan = resolve_tree(h2fdp("privacy.noise.placement={device_fraction: [0, 1, 2]}"))
    flow = plan.releases.exposures(M - 1, (Party("public"),))[0]
    assert [r.variance for r in flow.releases] == pytest.approx([Z**2 * 3 / M**2, Z**2 * 6 / (2 * M) ** 2])
    (edge,) = sf.account(plan.spec, unit=f"device:{M - 1}", observer="edge:0").guarantees
    assert edge.epsilon == math.inf


DEEP = {"kind": "tree", "levels": [2, 2, 3], "level_names": ["region", "cabinet"]}
THREE = {"rounds": ROUNDS, "local_steps": 4, "aggregate_every": [2, 1], "batch_size": 4, "learning_rate": 0.1}


def test_any_level_of_a_deeper_tree_may_add_the_noise():
    """Regions add it: cabinets and regions meet devices raw, whoever is above or elsewhere does not."""
    spec = h2fdp("privacy.noise.placement={levels: {region: 1.0}}", topology=DEEP, training=THREE)
    plan = resolve_tree(spec)
    assert not plan.noise.device.any()
    assert not plan.noise.node[2].any()
    assert plan.noise.node[1].tolist() == [[Z, Z, 0], [Z, Z, 0]]
    epsilon = sf.account(spec).epsilon
    assert epsilon(0, "region:0") == epsilon(0, "cabinet:0") == math.inf
    # a cabinet's own average, after steps 1 and 3, goes to its devices with no noise at all
    assert epsilon(0, "device:1") == math.inf
    # the cloud meets one noised region average a round; its bound charges both regional aggregations
    cut = plan.releases.exposures(0, (Party("node", 0, 0),))[1]
    assert [r.variance for r in cut.releases] == pytest.approx([(Z / 6) ** 2])
    both = h2fdp(
        "privacy.noise.placement={device: 1.0, levels: {region: [1]}}", topology=DEEP, training=THREE
    )
    assert resolve_tree(both).noise.node[1].tolist() == [[0, 0, 0], [Z, Z, 0]]
    assert sf.account(both, unit="device:0", observer="region:0").guarantees[0].epsilon < math.inf


def test_a_share_of_a_level_is_drawn_with_the_seed():
    topology = {"kind": "tree", "levels": [8, 1, 2], "level_names": ["region", "cabinet"]}

    def chosen(seed):
        spec = h2fdp(
            "privacy.noise.placement={levels: {region: 0.5}}",
            f"seed={seed}",
            topology=topology,
            training=THREE,
        )
        return np.flatnonzero(resolve_tree(spec).noise.node[1].any(axis=1)).tolist()

    assert chosen(1) == chosen(1)
    assert len(chosen(1)) == 4
    assert len({tuple(chosen(seed)) for seed in range(6)}) > 1


# --- weights and layers --------------------------------------------------------------------------


def test_weights_hold_at_every_aggregation():
    spec = h2fdp(
        "training.weights={kind: capped, examples: 20}",
        "data.partition={kind: iid, size_sigma: 0.9}",
    )
    plan = resolve_tree(spec)
    weights = plan.participants.weights
    assert weights is not None
    assert len(set(weights.tolist())) > 2
    whole = weights[:M].sum()
    for unit in range(M):
        flow = plan.releases.exposures(unit, (Party("device", 0, (unit + 1) % M),))[0]
        own = [weights[unit] / whole, weights[unit] / whole / 2]
        assert [r.own_sensitivity for r in flow.releases] == pytest.approx(own)
        known = weights[(unit + 1) % M] ** 2
        inside = ((weights[:M] ** 2).sum() - known) * Z**2 / whole**2
        other = (weights[M:] ** 2).sum() * Z**2 / weights[M:].sum() ** 2
        assert [r.variance for r in flow.releases] == pytest.approx([inside, (inside + other) / 4])


@pytest.mark.usefixtures("no_report")
def test_all_of_it_trains(tmp_path):
    """Messages stay within what the schedule declared, or the run would stop."""
    spec = h2fdp(
        ELECTED,
        "training.rounds=2",
        "training.weights={kind: capped, examples: 20}",
        "data.partition={kind: iid, size_sigma: 0.9}",
        "privacy.noise.placement={device: [0], edge: [1], cloud: true}",
        "privacy.clip={kind: update, per_layer: [0.5]}",
        "transport.devices_to_edge=secure-aggregation",
    )
    run = sf.run(spec, out=tmp_path / "run")
    assert len(run.metrics) == 2
    assert (run.metrics["noise_std"] > 0).all()


# --- what is refused -----------------------------------------------------------------------------

WEIGHTS = "training.weights={kind: capped, examples: 20}"
PLACED = "privacy.noise.placement={device: 1.0}"
LAYERS = "privacy.clip={kind: update, per_layer: [1.0]}"
GROUPS = {
    "protocol": "dp-ogl",
    "topology": {"kind": "groups", "structure": "clusters", "groups": 2, "devices": 8},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
}
STAR = {
    "topology": {"kind": "star", "devices": 8},
    "training": {"rounds": 2, "local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
}


@pytest.mark.parametrize(
    ("changes", "sections", "place", "says"),
    [
        ([WEIGHTS], GROUPS, "training.weights", "goes with topology.kind: star or tree only"),
        ([PLACED], GROUPS, "privacy.noise.placement", "goes with topology.kind: star or tree only"),
        ([LAYERS], GROUPS, "privacy.clip.per_layer", "goes with topology.kind: star or tree only"),
        ([ELECTED, "control={}"], {}, "topology.supernodes", "must be left out with control"),
        ([WEIGHTS, "control={}"], {}, "training.weights", "must be left out with control"),
        ([PLACED, "control={}"], {}, "privacy.noise.placement", "must be left out with control"),
        ([WEIGHTS], {**STAR, "protocol": "dp-fedavg"}, "training.weights", "must be uniform with dp-fedavg"),
        (
            [PLACED],
            {**STAR, "protocol": "pedpfl"},
            "privacy.noise.placement",
            "goes with topology.kind: tree",
        ),
        ([PLACED], {"protocol": "hfl-dp"}, "privacy.noise.placement", "every device adds its own noise"),
        ([ELECTED, "training.global_update=resend"], {}, "topology.supernodes", "global_update: increment"),
        (
            [ELECTED, "faults={supernode_failure_rate: 0.1}"],
            {},
            "faults.supernode_failure_rate",
            "goes with one aggregation a round",
        ),
        (
            ["training.denominator={kind: clipped, min_weight: 2}"],
            {},
            "training.denominator",
            "goes with protocol: hdp only",
        ),
        (
            ["privacy.noise.placement={levels: {region: 1.0}}"],
            {},
            "privacy.noise.placement.levels.region",
            "is no level below the cloud; levels are edge",
        ),
        (
            ["privacy.noise.placement={levels: {edge: [0, 2]}}"],
            {},
            "privacy.noise.placement.levels.edge",
            "must name each once, from 0 to 1",
        ),
    ],
)
def test_what_was_not_derived_is_refused_in_one_line(changes, sections, place, says):
    with pytest.raises(sf.SpecError) as caught:
        resolve_tree(h2fdp(*changes, **sections))
    assert place in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_over_the_air_they_are_left_out():
    with pytest.raises(sf.SpecError, match=r"topology.supernodes.* must be left out over the air"):
        h2fdp(ELECTED, "transport.devices_to_edge=air")

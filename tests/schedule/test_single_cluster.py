"""PEDPFL on a tree: one untrusted edge with all devices, which keep their data, distances and periods."""

from __future__ import annotations

import numpy as np
import pytest

import sfumato as sf
from sfumato.errors import SpecError
from sfumato.radio.channels import Channels
from sfumato.radio.costs import TreeCosts
from sfumato.schedule.resolve.tree import resolve_tree
from sfumato.schedule.tree import TreePlan
from sfumato.simulation.training_inputs import TrainingInputs
from sfumato.spec.load import load_spec

TREE = ("data.source=digits", "topology.edges=4", "topology.devices_per_edge=[3, 2, 4, 1]")


def plan_of(protocol: str, *changes: str) -> TreePlan:
    return resolve_tree(load_spec("h2fdp-fmnist", [*TREE, f"protocol={protocol}", *changes]))


def test_all_devices_are_under_one_edge_that_is_not_trusted() -> None:
    plan = plan_of("pedpfl", "trust.trusted_edges=[0, 1]")
    assert plan.tree.devices.tolist() == [10]
    assert not plan.tree.tiers[-1].trusted.any()
    assert plan.noise.device.min() > 0
    assert any("10 devices of 4 edges form one cluster" in note for note in plan.notes)
    assert any("pedpfl trusts no server: the trust section is ignored" in note for note in plan.notes)


def test_local_steps_and_edge_periods_stay() -> None:
    assert plan_of("pedpfl").aggregations == plan_of("h2fdp").aggregations
    bare = plan_of("pedpfl", "training.local_steps=null", "training.edge_every=null")
    assert [a.step for a in bare.aggregations] == [5, 10, 15, 20]


@pytest.mark.parametrize("partition", ["{kind: labels, labels_per_device: 3}", "iid", "{alpha: 0.5}"])
def test_every_device_keeps_its_data(partition: str) -> None:
    parts = [
        TrainingInputs.of(plan_of(protocol, f"data.partition={partition}")).partition
        for protocol in ("hfl-dp", "pedpfl")
    ]
    for device in range(10):
        assert np.array_equal(*(part.indices(device) for part in parts))


def test_every_device_keeps_its_distance_and_its_channel() -> None:
    plans = [plan_of(protocol) for protocol in ("hfl-dp", "pedpfl")]
    links = [Channels.of_tree(plan.spec, plan.tree) for plan in plans]
    assert np.array_equal(*(link.distances_m for link in links))
    assert np.array_equal(*(link.gains(3) for link in links))


def test_one_edge_sends_to_the_cloud_and_every_device_to_the_edge() -> None:
    """The devices' energy is the same in both; of the wires of four edges one is left."""
    costs = [
        TreeCosts.of(plan.spec, plan.tree, 640).round(0).predicted(plan.tree.devices[None])
        for plan in (plan_of("hfl-dp"), plan_of("pedpfl"))
    ]
    many, one = costs
    assert one.local_energy_j.sum() == pytest.approx(many.local_energy_j.sum())
    wired = [float((c.global_energy_j - c.local_energy_j.sum(axis=-1)).item()) for c in costs]
    assert wired[0] == pytest.approx(4 * wired[1])
    assert wired[1] > 0


def test_the_own_edge_sees_every_device_and_the_cloud_their_mean() -> None:
    changes = ("privacy.noise={multiplier: 4.0}", "training.rounds=3")
    report = sf.account(load_spec("h2fdp-fmnist", [*TREE, "protocol=pedpfl", *changes]))
    spec = load_spec(
        "h2fdp-fmnist", [*TREE, "topology={edges: 1, devices_per_edge: 10}", "protocol=hfl-dp", *changes]
    )
    same = sf.account(spec)
    for observer in ("edge:0", "cloud", "public"):
        assert report.epsilon("device:0", observer) == same.epsilon("device:0", observer)
    assert report.epsilon("device:0", "cloud") < report.epsilon("device:0", "edge:0")


def test_a_resolved_spec_resolves_to_the_same_plan() -> None:
    plan = plan_of("pedpfl")
    again = resolve_tree(plan.spec)
    assert again.spec == plan.spec
    assert again.aggregations == plan.aggregations


@pytest.mark.parametrize(
    "topology",
    [
        "{levels: [4, 3]}",
        "{sites: [{devices: 5}, {name: north, devices: 7}]}",
        "{edges: 1, devices_per_edge: 12}",
    ],
)
def test_trees_of_edges_may_be_written_in_every_way(topology: str) -> None:
    assert plan_of("pedpfl", f"topology={topology}").tree.devices.tolist() == [12]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("topology={levels: [2, 2, 3], level_names: [region, edge]}", "edges directly under the cloud"),
        ("topology.supernodes=elected", "must be fixed with protocol pedpfl"),
        ("topology.zones=random", "must be left out with pedpfl"),
    ],
)
def test_what_is_said_about_single_edges_is_refused(change: str, message: str) -> None:
    extra = ["training.edge_every=null"] if "levels" in change else []
    with pytest.raises(SpecError, match=message):
        plan_of("pedpfl", *extra, change)


def test_a_star_stays_a_star() -> None:
    star = ("topology={kind: star, devices: 10}", "trust={}", "training.edge_every=null")
    assert plan_of("pedpfl", *star).tree.depth == 1

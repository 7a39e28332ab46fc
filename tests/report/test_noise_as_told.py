"""What pages, drawings and the terminal say of noise agrees with the noise of the plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np
import pytest
from resumed_specs import groups_of, spec_of
from rich.console import Console

from sfumato import account
from sfumato.accounting import PrivacyReport
from sfumato.explore.accounted_setting import AccountedSetting
from sfumato.explore.figures import network_figure
from sfumato.families import family_of
from sfumato.report.drawings.topology_figure import topology_figure
from sfumato.report.figures.figure import Figure
from sfumato.report.page.who_adds_noise import noise_of, noise_part, training_of
from sfumato.report.results.network import owners_in_words, parties_in_words, read_network
from sfumato.report.results.observer_labels import labels_for
from sfumato.schedule.tree import TreePlan
from sfumato.spec.document import Spec

CLIP = {"clip": {"kind": "update", "norm": 0.5}}
EXAMPLES = {"unit": "record", "clip": {"kind": "example", "norm": 0.5}}
AT_STEPS = EXAMPLES | {"noise": {"multiplier": 2.0, "at": "step"}}
POISSON = {"rounds": 2, "local_steps": 2, "batches": "poisson", "batch_size": 5, "learning_rate": 0.2}
TREE = {"kind": "tree", "edges": 2, "devices_per_edge": 4}
HDP = {"protocol": "hdp", "topology": TREE, "trust": {"trusted_edges": []}}
STAR = {"topology": {"kind": "star", "devices": 4}, "trust": {}}
AIR = STAR | {
    "protocol": "pfels",
    "training": {"rounds": 2, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2},
    "compression": {"kind": "rand-k", "ratio": 0.3},
    "privacy": {"delta": 1e-3, **CLIP, "noise": {"formula": "pfels", "epsilon": 1.5}},
}


def _placed(placement: Mapping[str, Any]) -> Spec:
    training = {"rounds": 2, "local_steps": 2, "batch_size": 5, "learning_rate": 0.2}
    return spec_of(
        **HDP, training=training, privacy=CLIP | {"noise": {"multiplier": 1.0, "placement": placement}}
    )


SPECS = {
    "none": spec_of(privacy=CLIP | {"noise": "none"}),
    "by trust": spec_of(),
    "edges": spec_of(trust={"trusted_edges": [0, 1]}),
    "cloud": spec_of(trust={"cloud": True, "trusted_edges": [0, 1]}),
    "some devices": _placed({"device_fraction": [0, 2]}),
    "zones": _placed({"device": [0], "edge": [1]}),
    "records, steps, tree": spec_of(training=POISSON, privacy=AT_STEPS, trust={}),
    "records, steps, star": spec_of(**STAR, protocol="dp-fedavg", training=POISSON, privacy=AT_STEPS),
    "records, messages": spec_of(training=POISSON, privacy=EXAMPLES | {"noise": {"multiplier": 2.0}}),
    "receiver": spec_of(**AIR),
}  # fmt: skip


def _noisy_devices(plan: TreePlan) -> set[str]:
    """The devices that add noise by the plan."""
    if plan.spec.privacy.step_noise:
        return {f"device:{number}" for number in range(plan.tree.device_count)}
    own = np.repeat((plan.noise.device > 0).any(axis=1), plan.tree.devices)
    some = own if plan.noise.noisy is None else own & plan.noise.noisy
    return {f"device:{number}" for number in np.flatnonzero(some)}


def _noisy_nodes(plan: TreePlan) -> set[str]:
    """The aggregators that add noise by the plan."""
    return {
        plan.tree.node_name(depth, int(index))
        for depth, noise in enumerate(plan.noise.node)
        for index in np.flatnonzero((noise > 0).any(axis=1))
    }


def _marked(figure: Figure, name: str) -> set[str]:
    """The parties with marks of one kind."""
    return {party for trace in figure.data if trace["name"] == name for party in trace["customdata"]}


def _resolved(report: PrivacyReport) -> dict[str, Any]:
    found: dict[str, Any] = report.plan.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


@pytest.mark.parametrize("name", SPECS)
def test_what_is_told_of_noise_is_the_plan_s(name: str) -> None:
    report = account(SPECS[name])
    plan, spec = report.plan, _resolved(report)
    assert isinstance(plan, TreePlan)
    devices, nodes, network = _noisy_devices(plan), _noisy_nodes(plan), read_network(spec)
    at_steps, on_air, anybody = plan.spec.privacy.step_noise > 0, name == "receiver", bool(devices | nodes)
    for figure in (topology_figure(network), network_figure(_setting(report), unit="", coalition=())):
        assert figure is not None
        assert _marked(figure, "device that adds noise") == devices
        assert _marked(figure, "device") == {f"device:{n}" for n in range(plan.tree.device_count)} - devices
        assert _marked(figure, "aggregator that adds noise") == nodes
        links = {trace["name"] for trace in figure.data if trace["mode"] == "lines"}
        sends_raw = len(devices) < plan.tree.device_count and not on_air
        assert any(link.startswith("messages without noise go up") for link in links) == sends_raw
        assert ("No party adds noise" in figure.caption) == (not anybody)
        assert ("at every local step" in figure.caption) == at_steps
        assert ("the receiver's noise" in figure.caption) == on_air
    for number in range(plan.tree.device_count):
        detail = labels_for(network).row(f"device:{number}").detail
        leaf = plan.tree.leaf_of(number)
        path = {plan.tree.node_name(d, int(i)) for d, i in enumerate(plan.tree.paths[leaf])}
        beside = {f"device:{n}" for n in range(plan.tree.device_count) if plan.tree.leaf_of(n) == leaf}
        assert ("no noise" in detail) == (not (path & nodes or beside & devices or on_air))
        assert ("at every local step" in detail) == at_steps
        assert ("noise of the receiver" in detail) == on_air
    said = noise_part(noise_of(spec, network), training_of(spec, network), persons=False)
    assert ("at every local step" in said) == at_steps
    assert ("<table>" in said) == anybody
    assert ("No party adds noise" in said) == (not anybody and not on_air)


@pytest.mark.parametrize("name", ["by trust", "edges", "cloud", "zones"])
def test_a_link_to_the_cloud_is_noised_where_noise_is_on_what_is_sent_in_global_steps(name: str) -> None:
    """Noise at the aggregations of edges alone is on none of it; where they have none, none is missing."""
    report = account(SPECS[name])
    plan = report.plan
    assert isinstance(plan, TreePlan)
    figure = topology_figure(read_network(_resolved(report)))
    assert figure is not None
    tiers = sorted({aggregation.tier for aggregation in plan.aggregations})
    assert tiers == ([0] if name == "zones" else [0, 1])
    raw_to_edges = int((plan.noise.device[:, tiers] <= 0).any(axis=1).sum())
    raw_to_cloud = int(((plan.noise.node[1][:, 0] <= 0) & (plan.noise.device[:, 0] <= 0)).sum())
    drawn = [
        trace["x"].count(None)
        for trace in figure.data
        if trace["name"].startswith("messages without noise go up")
    ]
    assert sum(drawn) == raw_to_edges + raw_to_cloud
    assert (raw_to_cloud > 0) == (name == "cloud")
    assert (raw_to_edges == 1) == (name in ("by trust", "zones"))


def _setting(report: PrivacyReport) -> AccountedSetting:
    return AccountedSetting(report.plan.spec, report, read_network(_resolved(report)))


def test_the_noise_of_workers_at_steps_is_drawn_and_told() -> None:
    groups = groups_of("dp-ogl-local", 1)
    training = groups.training.model_dump() | {"batches": "poisson"}
    report = account(Spec.model_validate(groups.model_dump() | {"privacy": AT_STEPS, "training": training}))
    figure = topology_figure(read_network(_resolved(report)))
    assert figure is not None
    assert _marked(figure, "device") == set()
    assert len(_marked(figure, "device that adds noise")) == 7
    assert "Noise is added by every device, at every local step." in figure.caption


@pytest.mark.parametrize("name", SPECS)
def test_the_terminal_shows_the_plan_s_noise(name: str) -> None:
    plan = account(SPECS[name]).plan
    assert isinstance(plan, TreePlan)
    out = Console(width=200, record=True, file=StringIO())
    out.print(family_of(plan.spec).summary(plan).drawing())
    shown = out.export_text()
    at_steps = plan.spec.privacy.step_noise > 0
    assert ("at every local step" in shown) == at_steps
    devices = [line for line in shown.splitlines() if re.search(r"\d+ devices?\b", line)]
    assert any("noise ×" in line for line in devices) == bool(_noisy_devices(plan))


def test_owners_and_observers_are_named_by_one_rule() -> None:
    assert parties_in_words("edge:3") == "edge 3"
    assert parties_in_words("cloud,edge:3,device:12") == "cloud,edge 3,device 12"
    assert parties_in_words("kiel") == "kiel"
    owners = ["edge:0/devices", "edge:1/devices", "edge:3/devices:0-4", "edge:2", "cloud", "kiel/devices"]
    said = "devices 0-4 under edge 3, the cloud, every device under kiel, every device under edges 0, 1"
    assert owners_in_words(owners, 9) == f"{said} and edge 2"

import math

import numpy as np
import pytest
import yaml
from places import ROOT

from sfumato.accounting import account
from sfumato.data.builtin_datasets import BUILT_IN
from sfumato.data.dataset_sizes import label_counts
from sfumato.data.partition import partition
from sfumato.errors import SpecError
from sfumato.privacy.losses import gaussian
from sfumato.privacy.observers import Party
from sfumato.schedule.resolve.groups import resolve_groups
from sfumato.spec.load import dump_spec, load_spec

EXAMPLES = ROOT / "examples" / "dp-ogl"
RING = {
    "name": "ogl-ring",
    "protocol": "dp-ogl",
    "seed": 0,
    "data": {"source": "fashion-mnist", "partition": {"kind": "dirichlet", "alpha": 0.1}},
    "model": {"kind": "softmax"},
    "topology": {"kind": "groups", "structure": "ring", "groups": 4, "devices": 100},
    "training": {
        "rounds": 199, "local_steps": 10, "batch_size": 20, "learning_rate": 0.05, "merge_every": 10,
        "participation": {"kind": "poisson", "rate": 0.7},
    },
    "privacy": {"delta": 1e-5, "clip": {"kind": "update", "norm": 0.05}, "noise": {"multiplier": 2.0}},
}  # fmt: skip


def plan_of(*overrides, **sections):
    return resolve_groups(load_spec(RING | sections, overrides))


def test_the_ring_of_the_paper():
    plan = plan_of()
    assert (plan.kind, plan.rounds, plan.merge_every, plan.release_count) == ("dp-ogl", 199, 10, 199)
    np.testing.assert_allclose(plan.bounds, 0.05)
    np.testing.assert_allclose(plan.noise_std(0), 0.1)
    np.testing.assert_allclose(plan.denominators, 0.7 * 26)
    np.testing.assert_allclose(plan.model_noise_std(0), 0.1 / 18.2)
    assert plan.trusted.all()
    assert plan.notes == ()
    assert plan.interval_start(19) == 10


@pytest.mark.parametrize("protocol", ["dp-ogl+", "dp-ogl-local"])
def test_intervals_release_once_with_a_larger_clip(protocol):
    plan = plan_of("training.merge_every=4", protocol=protocol)
    np.testing.assert_allclose(plan.bounds, 0.1)
    np.testing.assert_allclose(plan.noise_std(0), 0.2)
    assert [plan.releases_after(number) for number in range(5)] == [False, False, False, True, False]
    assert plan.release_count == 49
    assert "199 rounds are no multiple" in plan.notes[0]
    assert plan_of("training.merge_every=1", protocol=protocol).release_count == 199


def test_ms_fedavg_says_what_it_ignores():
    plan = plan_of("training.merge_every=1", protocol="ms-fedavg")
    assert not plan.noise_std(0).any()
    assert np.isinf(plan.bounds).all()
    assert len(plan.notes) == 2
    assert "nobody has a guarantee" in " ".join(plan.notes)


def test_one_group_is_the_baseline():
    plan = plan_of(topology={"kind": "groups", "structure": "global", "devices": 100})
    assert plan.groups.as_lists() == (tuple(range(100)),)


def test_untrusted_masters_leave_noise_to_every_sampled_worker():
    plan = plan_of(trust={"trusted_aggregators": []})
    np.testing.assert_allclose(plan.noise_std(0), 0.1)
    np.testing.assert_allclose(plan.model_noise_std(0), 0.1 * np.sqrt(18.2) / 18.2)
    assert plan.releases.noise_owner == ("devices",) * 4
    owners = [owner for source in plan.spec.privacy.noise.sources for owner in source.owners]
    assert owners == [f"master:{group}/devices" for group in range(4)]


def test_groups_may_differ_in_clip_noise_and_rate():
    plan = plan_of(
        "privacy.clip.norm=[0.1, 2e-1, 0.3, 0.4]",
        "privacy.noise.multiplier=[1, 0, 2, 3]",
        "training.participation.rate=[0.5, 1, 0.25, 0.75]",
    )
    assert plan.releases.clip == (0.1, 0.2, 0.3, 0.4)
    assert plan.releases.noise_multiplier == (1, 0, 2, 3)
    assert plan.releases.rate == (0.5, 1, 0.25, 0.75)
    np.testing.assert_allclose(plan.noise_std(0), [0.1, 0, 0.6, 1.2])


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"protocol": "dp-ogl-local"},
        {"trust": {"trusted_aggregators": 0.0}},
        {"topology": {"kind": "groups", "structure": "labels", "groups": 5, "devices": 100}},
        {"topology": {"kind": "groups", "structure": "list", "groups": [[0, 1, 2], [2, 3]]}},
    ],
)
def test_a_resolved_spec_gives_the_same_plan_again(sections):
    plan = plan_of(**sections)
    again = resolve_groups(load_spec(yaml.safe_load(dump_spec(plan.spec))))
    assert again.spec == plan.spec
    assert again.releases == plan.releases


def test_a_graph_file_is_kept_as_a_list(tmp_path):
    path = tmp_path / "three.edges"
    path.write_text("0 1\n1 2\n", "utf-8")
    plan = plan_of(topology={"kind": "groups", "structure": "graph", "file": str(path), "devices": 12})
    path.unlink()
    assert resolve_groups(plan.spec).releases == plan.releases
    assert plan.groups.shared.toarray()[0].tolist() == [5, 1, 0]


@pytest.mark.parametrize(
    "written", [{"kind": "dirichlet", "alpha": 0.1}, {"kind": "labels", "labels_per_device": 3}]
)
def test_labels_are_known_without_data(written):
    data = RING["data"] | {"source": "mnist", "partition": written}
    spec = load_spec(RING | {"data": data})
    counts = label_counts(spec.data, 100, seed=3)
    labels = np.repeat(np.arange(10), BUILT_IN["mnist"].facts.class_counts)
    made = partition(labels, [100], spec.data.partition, seed=3)
    found = [np.bincount(labels[made.indices(worker)], minlength=10) for worker in range(100)]
    np.testing.assert_array_equal(counts, found)


def test_label_groups_hold_who_holds_their_labels():
    plan = plan_of(topology={"kind": "groups", "structure": "labels", "groups": 5, "devices": 100})
    counts = label_counts(load_spec(RING).data, 100, seed=0)
    for worker in range(100):
        held = {int(label) % 5 for label in np.flatnonzero(counts[worker])}
        assert set(plan.groups.groups_of(worker).tolist()) == held


def test_label_groups_say_what_they_tell():
    plan = plan_of(topology={"kind": "groups", "structure": "labels", "groups": 5, "devices": 100})
    (note,) = [note for note in plan.notes if "which labels" in note]
    assert note == "structure: labels: a worker's groups tell which labels it holds; that is not accounted"
    assert note in resolve_groups(plan.spec).notes  # as a run folder keeps it, in lists
    assert not any("labels" in note for note in plan_of().notes)


@pytest.mark.parametrize("protocol", ["dp-ogl", "dp-ogl+", "dp-ogl-local"])
def test_what_masters_make_of_noised_averages_costs_nothing(protocol):
    """Their optimizers read released sums only: the facts, and so every epsilon, are the same."""
    small = ["training.rounds=20", "topology.devices=12"]
    plain = plan_of(*small, protocol=protocol)
    for server in ("{momentum: 0.9}", "{optimizer: adam}"):
        other = plan_of(*small, f"training.server={server}", protocol=protocol)
        assert other.releases == plain.releases
        assert other.spec.training.server != plain.spec.training.server


def groups(structure, count=None, **more):
    written = {"kind": "groups", "structure": structure, "groups": count, **more}
    return {"topology": {key: value for key, value in written.items() if value is not None}}


@pytest.mark.parametrize(
    ("sections", "overrides", "place", "words"),
    [
        (groups("list", [[0, 1], [3, 1]]), [], "topology.groups", "worker 2 is in no group"),
        (groups("list", [[0, 1], [2]]), [], "topology.groups[1]", "at least two"),
        (groups("list", [[0, 1], [1, 5]], devices=3), [], "topology.groups[1]", "no worker"),
        (groups("list", 3, devices=3), [], "topology.groups", "must list"),
        (groups("list"), [], "topology.groups", "must list"),
        (groups("ring", 4), [], "topology.devices", "required"),
        (groups("ring", devices=9), [], "topology.groups", "required"),
        (groups("ring", [[0, 1]], devices=2), [], "topology.groups", "must be a number"),
        (groups("ring", 10, devices=9), [], "topology.groups", "at most 9"),
        (groups("global", 2, devices=9), [], "topology.groups", "must be 1"),
        (groups("graph", devices=9), [], "topology.file", "required"),
        (groups("ring", 2, devices=9, file="x.json"), [], "topology.file", "goes with"),
        (groups("graph", file="nowhere.json"), [], "topology.file", "cannot be read"),
        (
            groups("labels", 5, devices=100),
            ["data.partition=iid"],
            "topology.structure",
            "labels or dirichlet",
        ),
        (groups("labels", 11, devices=100), [], "topology.groups", "at most 10"),
        (groups("ring", 5, devices=100, stated="labels"), [], "topology.stated", "goes with structure: list"),
        ({}, ["training.merge_every=0"], "training.merge_every", "from 1 to"),
        ({}, ["training.edge_every=2"], "training.edge_every", "no edges"),
        ({}, ["training.global_update=resend"], "training.global_update", "trees"),
        (
            {"protocol": "ms-fedavg"},
            ["training.merge_every=1", "training.server={optimizer: adam}"],
            "training.server",
            "in a way of its own",
        ),
        (
            {},
            ["training.participation={kind: fixed, count: 99}"],
            "training.participation.count",
            "workers of group 0",
        ),
        (
            {},
            ["training.participation={kind: fixed, count: [2, 2]}"],
            "training.participation.count",
            "one for each group",
        ),
        ({}, ["training.participation.rate=[0.1, 0.2]"], "training.participation.rate", "must list 4"),
        ({}, ["training.participation.rate=[0.1, 2]"], "training.participation.rate", "from 1e-09 to 1"),
        ({}, ["privacy.clip.kind=step"], "privacy.clip.kind", "update"),
        ({}, ["privacy.clip.norm=[0.1]"], "privacy.clip.norm", "must list 4"),
        ({}, ["privacy.noise.multiplier=[1, 2, 3]"], "privacy.noise.multiplier", "must list 4"),
        ({}, ["privacy.noise.multiplier=0"], "privacy.noise", "noise: none"),
        ({}, ["privacy.noise={epsilon: 3, formula: h2fdp}"], "privacy.noise", "belongs to trees"),
        (
            {},
            ["privacy.noise={multiplier: 3, placement: {cloud: true}}"],
            "privacy.noise.placement",
            "star or tree",
        ),
        ({}, ["transport={devices_to_master: air}"], "transport.devices_to_master", "plain"),
        ({}, ["transport={devices_to_edge: plain}"], "transport.devices_to_edge", "no hop"),
        ({"protocol": "ms-fedavg"}, [], "training.merge_every", "merges in every round"),
        ({"protocol": "dp-ogl+", "trust": {"trusted_aggregators": 0}}, [], "trust", "un-noised"),
        ({"protocol": "dp-ogl+", "trust": {"trusted": ["master:0"]}}, [], "trust", "trust all masters"),
        ({"trust": {"trusted": ["master:4"]}}, [], "trust.trusted", "master:0 to master:3"),
    ],
)
def test_specs_that_are_refused(sections, overrides, place, words):
    with pytest.raises(SpecError, match=words) as caught:
        plan_of(*overrides, **sections)
    assert caught.value.place.removeprefix("overrides: ").startswith(place)


@pytest.mark.parametrize("owner", ["master:9", "edge:0", "master:0/devices"])
def test_resolved_noise_must_be_the_noisers(owner):
    noise = {"sources": [{"owners": [owner], "multipliers": [2]}]}
    with pytest.raises(SpecError, match=r"sources\[0\].owners"):
        plan_of(privacy=RING["privacy"] | {"noise": noise})


@pytest.mark.parametrize(
    ("unit", "observer", "releases"),
    [(1, 2, 199), (1, 30, 190), (1, 60, 180), (25, 1, 369), (25, 60, 370), (25, 50, 379)],
)
def test_the_ledger_counts_the_releases_of_the_golden_values(unit, observer, releases):
    exposures = plan_of().releases.exposures(unit, (Party("device", 0, observer),))
    flow = next(exposure for exposure in exposures if exposure.bound_name == "flow")
    assert flow.release_count == releases


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_the_settings_of_the_paper(path):
    plan = resolve_groups(load_spec(path))
    groups, every, multiplier = {
        "gl": (1, 1, 2),
        "cl": (4, 2, 2),
        "lb": (5, 10, 3),
        "ri": (4, 10, 2),
        "ogl-plus": (4, 2, 2),
        "ogl-local": (4, 2, 2),
        "ms-fedavg": (4, 1, 0),
    }[path.stem]
    assert (plan.groups.count, plan.merge_every, plan.groups.workers) == (groups, every, 100)
    assert set(plan.multipliers) == {multiplier}
    assert plan.rounds % every == 0 or not plan.by_interval


def test_behind_secure_aggregation_an_untrusted_master_meets_all_the_noise_of_its_group():
    """26 workers of multiplier 2, all of them there: 2 sqrt(26) towards the master, 2 without."""
    changes = ["trust.trusted_aggregators=[]", "training.participation=all", "training.rounds=1"]
    secure = "transport={devices_to_master: secure-aggregation}"
    specs = [load_spec(RING, [*changes, *more]) for more in ([], [secure])]
    found = [account(spec, unit="device:1", observer="master:0").guarantees[0].epsilon for spec in specs]
    wanted = [
        gaussian.epsilon(delta=1e-5, mu=1 / 2),
        gaussian.epsilon(delta=1e-5, mu=1 / (2 * math.sqrt(26))),
    ]
    assert found == pytest.approx(wanted)
    notes = [resolve_groups(spec).notes for spec in specs]
    assert not any("idealised" in note for note in notes[0])
    assert any("idealised" in note for note in notes[1])
